// Package preemption plans the launches of a preemptible kernel: first the whole grid, and after
// each eviction what is left of it, until every task has run once. It is pure; it launches and
// reads nothing itself.
//
// The owner of a [Launch] asks for a [Plan], fills in the addresses, carries the plan out (zeroes,
// uploads, launches, waits), reads the control block back, and calls [Launch.Next] with a
// [Readback] until the launch is done. The owner sets the evict word whenever it wants, unless
// [Plan.Stay] asks it not to.
//
// Everything that is read back lies in memory that the guest's kernels can write. A readback that no
// honest kernel leaves ends the launch with [ErrReadback]; one that is false but possible harms only
// the guest's own results. [MaxUnits] bounds what a launch keeps, and the number of its launches is
// bounded by what is left to do: see [MaxStalls] and [MaxUnasked].
//
// launch.go has the configuration and its bounds, plan.go what to run next, readback.go what came
// of it, and units.go the set of units that are left. There are no locks.
package preemption
