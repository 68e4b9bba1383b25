// Package soft is a GPU in software. It executes PTX (package simt), shares the GPU among contexts
// (package machine), shows its state in a page of registers with NVIDIA's layout (package nvreg),
// and takes the time that its cost model computes. It does not emulate NVIDIA's driver interface;
// package remote gives other processes access.
//
// # The engine
//
// An [Engine] is the GPU itself. One OS thread, the pacing thread, owns all changing state. It
// fetches launches from the channels' rings, steps the machine with the time, interprets kernels,
// writes registers, completes launches, and sleeps if there is nothing to do. An idle GPU costs no
// CPU. Other goroutines pass closures to it. It runs under SCHED_FIFO if permitted, with a higher
// priority than the thread that samples the registers; [Usage] reports whether it does.
//
// # Time
//
// The GPU's clock is the host's CLOCK_MONOTONIC. One SM cycle is one nanosecond, so the clock is 1
// GHz. An instruction takes many cycles, since the whole GPU issues one simple warp instruction in
// [Options.WarpTime]. That time is at least twice the time of interpreting one, so a kernel's
// modelled duration is at least twice its CPU time, and the pacing thread uses at most about half a
// core.
//
// A kernel is interpreted while it executes, at most [Options.Lead] ahead. Its effects on memory
// are therefore early by up to that much; its end, and everything that waits for it, is not. If the
// interpreter is late, the kernel takes longer, and the registers and the GPU's usage agree with
// that. [machine.Totals] has the delay as Overrun.
//
// # Memory
//
// A context's memory is a file in memory that the GPU and the program map. The program performs
// copies, in its channel's order, like a copy engine (client.go). Allocations are zeroed.
//
// # Event kernels
//
// A context with registered event kernels ([gpu.EventKernels]) has a poller: an endless launch of one
// warp in the machine, so that it takes turns and is charged as any kernel. While the poller executes,
// the pacing thread looks at the doorbells and starts events on channels of their own. The poller
// parks, by leaving the machine, when others wait and it has nothing to do, and after 5 ms alone.
// Parked, its kernels ask for a kick, which is a ring of the program's doorbell.
//
// # Use
//
// [NewLocal] starts an engine in this process and returns it as a gpu.Device. Package remote serves
// an engine to other processes and is their gpu.Device. Both are the same client over a [Driver].
package soft
