// Package preempt makes kernels preemptible: it transforms PTX to PTX, without the tenant's source,
// and reports on each kernel. It executes nothing and talks to no device.
//
// [Transform] keeps every function (see placed.go for those that change) and adds kernels beside
// them, in up to three forms. They share one design: a hardware block runs tasks, which are the
// blocks of the original grid, and from time to time one thread reads the evict word, a word in GPU
// memory that tells blocks to leave.
//
//   - [Single], the early exit: a block reads the word once as it starts, and then either runs its one task or records
//     itself as skipped. The body keeps its returns and barriers, so this form is sound for nearly every kernel.
//   - [Coarse], the early exit with one check for several tasks, which run one after the other. On an H100 it costs least
//     (docs/results/preemption-on-h100.md).
//   - [Persistent], the form of EffiSha (§5) and FLEP (§4.1): as many blocks as the GPU holds take tasks from a counter,
//     in chunks, until none remain. An evicted launch later continues from the counter.
//
// In a body %ctaid becomes the task's index and %nctaid the original grid's size. Device functions
// that need them get them as an additional parameter, in a copy beside the original, or, where they
// are called through pointers, in shared memory (placed.go). (Inlining what the assembler inlines
// anyway would make the text grow without bound.) Where a body runs in a loop, returns branch to the
// task's end, and no thread starts the next task while others may still use shared memory or a
// barrier for the previous one. A barrier that some threads of a block miss, because they have
// returned, is rewritten: threads that are done keep arriving at barriers until no thread needs
// one.
//
// A form that can't be proven sound is left out, with a [Reason] from a closed list.
//
// Package abi defines the launch's additional arguments and the control block ([abi.PreemptArgs],
// [abi.ControlWords]).
//
// Reading order: transform.go, form.go with fragments.go, rewrite.go; then analysis.go,
// function.go, lanes.go and broadcast.go for what is sound and why; and for blocks that wait for
// blocks waits.go, with sources.go, loop.go, walks.go and claims.go, and lookback.go, with linear.go and tickets.go.
package preempt
