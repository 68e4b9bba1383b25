// Package tune chooses in which form a kernel is launched: as it was written, or in one of the forms that leave the
// GPU when asked ([abi.PreemptForm]), and how many tasks a block takes for each look at the evict word.
//
// No form is best everywhere: on an H100 the papers' persistent form cost between -11 % and +66 %, the coarsened early
// exit between -11 % and +29 %, each the best for some kernel (docs/results/preemption-on-h100.md). So the choice
// is made per kernel and class of grids by what launches were measured to cost, within a latency wanted and a bound on overhead
// ([Parameters]): of the forms that cost next to nothing the one that leaves the soonest, or else the cheapest. A kernel that
// ends within the latency wanted is left as it is.
//
// A [Tuner] is asked before each launch ([Tuner.Pick]) and told how long it took ([Tuner.Observe]). It first measures
// the original, then each candidate a few times, turn about, and those on which the choice hangs more often; then it keeps to
// the best and looks again now and then: a launch in [Parameters.Again] is spent on looking. What it learned can be taken out and put back ([Tuner.Record],
// [Tuner.Recall]); package tune/cache keeps it on disk.
//
// [AdaptiveEvery] is EffiSha's way to choose how often to look, [Amortize] FLEP's, by runs off line: they are there to
// measure against (e2e/papers/preempt), and the tuner doesn't use them: what it has fetched at a time saves looks too.
//
// The package is pure: no clock, no goroutine, no I/O. Its values are used by one goroutine at a time.
package tune
