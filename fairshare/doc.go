// Package fairshare decides which guest may use the GPU next. Its policies are
// pure functions of what they are told: no clock, no goroutine, no input or
// output. Whoever has those (the mediator) tells a [Policy] what happened and
// carries out its [Verdict]s.
//
// Policies by name, see [New]:
//
//	none       everybody runs; the hardware's round-robin decides
//	dfq        weighted disengaged fair queueing
//	dfq-loga   disengaged fair queueing as LoGA §3.4 prints it, a baseline
//	loga-cl    the same by mean command length (LoGA §5.5), a baseline
//
// Quotas bound any policy's answer: see [Bound].
//
// Policies that decide about single kernels rather than rounds (FLEP, EffiSha)
// have the same shape: they are told of launches that arrive and finish, and
// answer with verdicts about launches.
package fairshare
