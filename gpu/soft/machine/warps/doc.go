// Package warps models a GPU's cores cycle by cycle, as far as it matters to how soon a warp can take
// the place of another: EDGE's preemption of single warps (Hetherington, Lubeznov, Shah, Aamodt:
// EDGE, PACT 2019, §IV). It executes no kernel. A [Kernel] is a trace of what the warps of a grid
// executed (simt.Trace), which the model times. Package machine models how contexts take turns, and
// package blocks one grid at the level of thread blocks.
//
// A run is a pure function of its configuration, kernels and seed.
//
// # What is modelled
//
//   - Table II's GPU: 16 cores with 16 blocks, 2,048 threads and 65,536 registers each, caches, and
//     greedy-then-oldest schedulers ([TableII]).
//   - A warp's instructions are fetched into its buffer, issued in order past a scoreboard, and end
//     out of order. A load's lines go through the core's cache, the GPU's, and the memory, whose
//     bandwidth is shared (memory.go).
//   - Blocks' barriers, memory fences and divergence: a trace has each path's instructions.
//   - Events: grids of one warp that arrive while a background kernel runs. A [Technique] says how
//     they get onto a core: with a warp preempted, when blocks drain, in order, or on reserved cores
//     (events.go). The preemption is in preempt.go.
//
// # What is not modelled
//
// Address translation; bank conflicts of shared memory; atomics' contention; writes' replies.
package warps
