// Package preempt makes a tenant's kernels leave the GPU when asked: a pure transformation from PTX to PTX, with a
// report for each kernel. The tenant's source is not needed.
//
// [Transform] keeps every function as it is and adds kernels beside them, of three forms that share one design: a
// hardware block runs tasks, which are the blocks of the original grid, and now and then one thread looks at a word in
// GPU memory that says whether to leave.
//
//   - [Single], the early exit: a block looks once as it starts, and then runs its one task or notes itself as skipped.
//     The body keeps its returns and its barriers, so it is sound for nearly every kernel.
//   - [Coarse], the early exit with a look for several tasks, which run one after the other. On an H100 it costs least
//     (docs/results/preemption-on-h100.md).
//   - [Persistent], the form of EffiSha (§5) and FLEP (§4.1): as many blocks as the GPU holds take tasks from a counter,
//     some at a time, until none is left. What leaves goes on later from the counter.
//
// In a body %ctaid becomes the task's index and %nctaid the original grid's size; device functions that need them get
// them as one more parameter, in a copy beside the original. (A shared variable would need a barrier before each use, and
// inlining here what the assembler inlines anyway would make the text grow without bound.) Where a body runs in a loop,
// returns lead to the task's end, and no thread comes to the next task while others may still use shared memory or a
// barrier for the last one. A barrier that only some threads of a block may pass, since the others have returned, is
// rewritten: threads that are done go on meeting the others until none needs a barrier any more.
//
// What can't be proven sound is left out, with a [Reason] from a closed list.
//
// The launch's extra arguments and the control block are laid out in package abi ([abi.PreemptArgs], [abi.ControlWords]).
//
// To read: transform.go, form.go with fragments.go, rewrite.go; then study.go, facts.go, lanes.go and settle.go for what
// is sound and why; and for blocks that wait for blocks waits.go, with sources.go and round.go, and lookback.go, with
// linear.go and tickets.go.
package preempt
