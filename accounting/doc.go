// Package accounting measures which channel group used the GPU and for how long. It reads the GPU's
// own status registers (LoGA §3.3 and §4.1) and does not get in the guests' way. It decides
// nothing, and it knows groups, not guests: package mediator maps groups to guests.
//
// A [Source] tells what the compute engine executes at one instant. A [Meter] takes these answers
// and sums the time between context switches for each channel group. The meter is a pure state
// machine. Two samplers feed it: [Sampler] live, on an operating system thread of its own with
// real-time priority, and [SimulatedSampler] in simulated time, where it skips polls that can't see
// a change. Both alternate polling phases and quiet phases, whose lengths and places a [Planner]
// draws, and tell a [Handler] what each phase came to.
//
// Quiet time is not watched. The handler estimates it from the polling phase after it (LoGA §3.4)
// or takes the executors' own measurements.
//
// Hardware that records its own context switches needs no polling. A [Recorder] reads such an
// [EventSource] up to fifty times a second and feeds a [RecordMeter], which is as pure as Meter.
// The record tells which context was on the engine, not whether it executed, so the meter also
// takes what executors report of their work. The record costs the GPU time at each switch. While
// the reports alone tell who was on the engine, the recorder pauses it.
//
// All instants of a phase are on the GPU's own clock, as a [time.Duration] since that clock's
// epoch. A GPU whose time stretches is thus accounted in its own time.
//
// Locks: there are none. A meter belongs to one goroutine. A sampler hands phases to its handler's
// goroutine through a channel and an atomic counter; see sampling.
package accounting
