// Package machine models how a GPU shares its engine among contexts: channels with queued launches,
// a dispatcher that chooses what executes, context switches, and the status registers that show all
// of it. It does not execute kernels: it only knows how long a launch takes and which resources it
// occupies.
//
// The model is driven by events and is told the time. It has no goroutine, clock, lock or
// randomness. [Machine.Next] returns the time of the next event and [Machine.Step] advances the
// machine to it. A live device steps the machine with the real time as it passes; a simulation
// jumps from event to event.
//
// Package blocks below it models one grid at the level of thread blocks, in order to predict how
// long a preemptible kernel runs and how fast it can be evicted. Package sim attaches simulated
// guests to a machine.
//
// # Dispatchers
//
// [Exclusive] takes one command at a time from the channels in turn, and runs it to its end (LoGA
// §2.2). A guest that submits longer commands gets more of the GPU.
//
// [Slices] is what later GPUs do. Each channel group has the engine for a time slice, and is
// preempted at its end if another group has work. A switch takes time, and more so to a group that
// just became ready than to one that waited for its slice. The channels within a group take turns
// by the slice as well, which costs nothing.
//
// Under both, launches of different channels of one group execute side by side if all their blocks
// fit, as CUDA's concurrent kernels do. They start in the order of the channels' turns. A launch of
// another group waits until all of them have ended, or have been preempted.
//
// [CoRun] fills the space that is left. When all thread blocks of a launch are resident and the SMs
// have room, blocks of the next launch take it (FLEP §2.1), whichever context it belongs to, as
// under MPS. Launches that together want more than the memory's bandwidth slow each other down
// ([Work].Memory); they have their SMs' issue slots as if alone.
//
// A simulation of preemptible kernels evicts them with [Machine.Evict]; package blocks predicts how
// long that takes.
//
// # Accounting
//
// The machine keeps the exact usage that others estimate: the time that each group executed, and
// idle and switching time. These add up to the elapsed time. A group whose launches execute side by
// side is charged once. Under CoRun each interval is divided among the groups in proportion to
// their resident threads.
//
// # Registers
//
// Each change is written to a [Registers] when it happens: the group on the engine, the phase of a
// context switch, and each channel's entry. The engine's status and the host's side (the channel
// entries) may lag behind by different times, since on real GPUs the two "sometimes reflect context
// switches at different times" (LoGA §5.4).
package machine
