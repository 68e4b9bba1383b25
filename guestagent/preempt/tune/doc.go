// Package tune chooses in which form a kernel is launched: as it was written, or in one of its
// preemptible forms ([abi.PreemptForm]), and how many tasks a block takes for each check of the
// evict word.
//
// No form is best everywhere: on an H100 the papers' persistent form cost between -11 % and +66 %,
// the coarsened early exit between -11 % and +29 %, each the best for some kernel
// (docs/results/preemption-on-h100.md). So the choice is made per kernel and class of grids by the
// measured cost of launches, within a wanted latency and a bound on overhead ([Parameters]): among
// the forms that cost next to nothing the one that leaves the soonest, and otherwise the cheapest.
// A kernel that ends within the wanted latency stays as it is.
//
// A [Tuner] chooses before each launch ([Tuner.Pick]) and learns how long the launch took
// ([Tuner.Observe]). It first measures the original, then each candidate a few times, alternately, and
// those that decide the choice more often; then it keeps the best and measures again now and then: one
// launch in [Parameters.Again] is spent on measuring. Its knowledge can be saved and restored
// ([Tuner.Record], [Tuner.Recall]); package tune/cache keeps it on disk.
//
// The package is pure: no clock, no goroutine, no I/O. Its values are used by one goroutine at a
// time.
package tune
