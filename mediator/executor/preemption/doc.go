// Package preemption decides, for one launch of a preemptible kernel, what the
// hardware is asked to run: first the whole grid, and after each eviction what is
// left of it, until every task ran once.
//
// A [Launch] is a value of state without goroutine, clock or GPU. Its owner asks
// for a [Plan], fills in the addresses that only it knows, carries the plan out
// (zeroes, uploads, launches, waits), reads the control block back, and asks again
// with a [Readback] until told that the launch is done. The owner sets the evict
// word whenever it wants, save where [Plan.Stay] asks it not to.
//
// Everything that is read back lies in memory that the guest's kernels can write.
// A readback that no honest kernel leaves ends the launch with [ErrReadback]; one
// that is false but possible harms the guest's own results only. What is kept is
// bounded by [MaxUnits], and the number of launches by what is left to do: see
// [MaxStalls] and [MaxUnasked].
//
// Read launch.go (the configuration and its bounds), plan.go (what to run next),
// readback.go (what came of it), units.go (the set of units that are left).
package preemption
