// Package blocks models one grid at the level of thread blocks: how they are dispatched to slots of
// SMs, how long a block's tasks take while others share the SM and the memory, and what it costs to
// poll an evict word in between. It predicts how long a kernel runs in each preemptible form, and
// how long an eviction takes. It does not model contexts, channels or turns; package machine does.
//
// The model is a pure function of costs, kernel, form and seed. Times are nanoseconds of simulated
// time. It does not execute kernels: a [Kernel] is a number of tasks, each of which occupies the
// issue slots of an SM and the memory for some time.
//
// # What is modelled
//
//   - An SM holds a number of blocks; each freed slot gets the next block after [Costs.Start].
//   - A task waits for memory, longer if more blocks do (up to [Costs.Bandwidth]), and then shares
//     its SM's issue slots with the SM's other blocks. Few warps don't fill the slots
//     ([Costs.Fill]), and blocks of an SM are not equally fast ([Costs.Unequal]).
//   - Polling the evict word: a read of a line takes [Costs.Poll]. Reads of one line are served one
//     at a time ([Costs.LineRead]), and so are atomics ([Costs.LineAtomic]). Reads of a word in
//     host memory go over the bus one at a time, and nothing else proceeds in their SM meanwhile
//     ([Costs.HostRead]).
//   - Instructions that the transformed code executes in addition to the original's: given by the
//     [Form], in issue time.
//   - Eviction: the word becomes visible after [Costs.Seen]; each skipped unit is recorded with an
//     atomic; the host knows [Costs.Gone] after the last block left.
//
// # What is not modelled
//
// The assembler's effect on a body inside a loop or behind one more barrier, which slowed the tiled
// product of docs/results/preemption-on-h100.md by 22 %; caches, including the loss of their
// contents when a task is relaunched; code that a loop over tasks hoists, except for
// [Kernel.Setup]; clocks that vary with the load.
package blocks
