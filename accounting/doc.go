// Package accounting finds out who used the GPU, and for how long, by watching
// the GPU's own status registers (LoGA §3.3 and §4.1) and without getting in
// the guests' way.
//
// A [Source] answers what the compute engine is executing at one instant. A
// [Meter] is fed its answers and sums the time between context switches for
// each channel group; it is a pure state machine, and everything else here is
// a thin shell around it: [Poller] reads a Source over one polling phase in
// simulated time, skipping to the next poll after each change of a [Steady]
// source; [Sampler] does so live, on an operating system thread of its own
// under a real-time priority. A [Planner] says how long rounds are and where in
// them the pieces of polling lie.
//
// Time between phases is not watched. What groups used in it is estimated from
// the polling phase after it by whoever sums up (LoGA §3.4), or measured by the
// executors.
//
// Hardware that records its own context switches needs no polling: an
// [EventSource] is read fifty times a second by a [Recorder], the live shell
// around a [SpanMeter], which is just as pure as Meter. Such a record shows whose
// turn it was, and not whether anything executed; so what executors say of their
// work belongs to it.
//
// [Neon] is the older way (LoGA §2.3), kept to measure against: it drains the
// GPU and lets each guest run alone for a while.
//
// All instants of a phase are on the GPU's own clock, as a [time.Duration]
// since that clock's epoch, so that a GPU whose time stretches is accounted in
// its own time. Groups, not guests, are accounted: which groups are a guest's
// is the mediator's knowledge.
package accounting
