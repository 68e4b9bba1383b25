// Package machine models how a GPU takes turns: contexts with channels, launches queued in them, a dispatcher that
// chooses who executes, context switches, and the status registers that show it all. What a launch computes is not
// its business; it knows how long a launch takes and what it occupies.
//
// The model is driven by events and told the time. It has no goroutine, clock or randomness: [Machine.Next] says when
// something will happen by itself, and [Machine.Step] carries the machine there. A live device steps it with the real
// time as that passes; a simulation jumps from event to event.
//
// # Dispatchers
//
// [Exclusive] takes one command at a time from the channels in turn, and runs it to its end (LoGA §2.2). Whoever
// submits longer commands gets more of the GPU.
//
// [Slices] is what later GPUs do: each channel group has the engine for a time slice, and is preempted at its end when
// another group has work. A switch costs time: less from slice to slice than to a group that just became ready. Within a
// group, its channels take turns by the slice, which costs nothing.
//
// [CoRun] fills what is left over: when all thread blocks of a launch are resident and the SMs have room, blocks of
// the next launch take it (FLEP §2.1), whosever context that is, as under MPS.
//
// Where launches are kernels that leave when asked, a simulation says so with [Machine.Evict]; package blocks knows how
// long that takes.
//
// # Accounts
//
// The machine keeps the truth that others measure: for each group the time it executed, and idle and switching time.
// They add up to the time that has passed. Under CoRun the time of an instant is divided among the groups by the
// threads that they have resident.
//
// # Registers
//
// Each change is written to a [Registers] when it happens: who is on the engine, how far a switch is, and each
// channel's entry. What the engine shows and what the host's side shows (the channel entries) may lag behind the truth
// by different times, since on real GPUs the two "sometimes reflect context switches at different times" (LoGA §5.4).
package machine
