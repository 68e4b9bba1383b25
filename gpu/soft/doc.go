// Package soft is a GPU in software: it executes PTX (package simt), takes turns as GPUs do (package machine), shows
// what it does in a page of registers with NVIDIA's layout (package nvreg), and takes as long as its cost model says.
//
// # The engine
//
// An [Engine] is the GPU itself. One OS thread, the pacing thread, owns everything that moves: it fetches launches from
// the channels' rings, steps the machine with the time, interprets what executes, writes registers, completes launches,
// and sleeps when there is nothing to do. An idle GPU costs no CPU. Other goroutines hand it closures. It runs under
// SCHED_FIFO where that is allowed, above the thread that samples the registers, and says in [Usage] whether it does.
//
// # Time
//
// The GPU's clock is the host's CLOCK_MONOTONIC. One SM cycle is one nanosecond: the clock is 1 GHz, and an instruction
// takes many cycles, since the whole GPU issues one simple warp instruction in [Options.WarpTime]. That time is set to
// at least twice what interpreting one takes here, so a kernel's modelled duration is at least twice the CPU it costs,
// and the pacing thread uses at most about half a core.
//
// A kernel is interpreted while it executes, at most [Options.Lead] ahead. Its memory therefore changes up to that much
// earlier than its time says; its end, and everything that waits for it, does not. When the interpreter is late, the
// kernel lasts longer, and so do the registers' and the GPU's own account of it; by how much is [machine.Totals]'s
// Overrun.
//
// # Memory
//
// A context's memory is a file in memory, mapped by the GPU and by the program that has the context. Copies are done
// by the program, in its channel's order, as a copy engine would (client.go). What an allocation hands out is zero.
//
// # Using it
//
// [NewLocal] starts an engine in this process and returns it as a gpu.Device. Package remote serves an engine to other
// processes and is their gpu.Device. Both are the same client over a [Driver].
package soft
