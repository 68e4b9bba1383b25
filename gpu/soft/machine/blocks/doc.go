// Package blocks models one grid on a GPU at the grain of its thread blocks: how they are dispatched to slots of SMs,
// what a block's tasks take while others share the SM and the memory, and what it costs to ask in between whether to
// leave. It answers how long a kernel lasts in each form in which it can be asked to leave, and how long leaving takes.
//
// It is a pure function of costs, kernel, form and seed. Times are nanoseconds of simulated time. What a kernel
// computes is not its business: a [Kernel] is so many tasks, each of which keeps an SM's issue slots and the memory busy
// for so long.
//
// # What is modelled
//
//   - An SM holds so many blocks; each freed slot gets the next block after [Costs.Start].
//   - A task waits for memory, longer the more blocks do ([Costs.Bandwidth] is where that ends), and then shares its
//     SM's issue slots with the SM's other blocks; few warps don't fill them ([Costs.Fill]), and blocks of an SM are
//     not equally fast ([Costs.Unequal]).
//   - Looking at the evict word: a read of a line takes [Costs.Look]; reads of one line are served one after the other
//     ([Costs.LineRead]), atomics too ([Costs.LineAtomic]), and reads of a word in host memory one at a time over the
//     bus, during which nothing else goes on in their SM ([Costs.HostRead]).
//   - What the transformed code executes more than the original: given by the [Form], in issue time.
//   - Leaving: the word becomes visible after [Costs.Seen]; skipped units are noted with an atomic each; the host knows
//     [Costs.Gone] after the last block left.
//
// # What is not modelled
//
// What the assembler makes of a body that stands in a loop, or behind one more barrier (it cost the tiled product of
// docs/results/preemption-on-h100.md 22 %); caches, and with them what a relaunched task no longer finds there; that
// a loop over tasks hoists what they have in common, except by [Kernel.Setup]; clocks that vary with the load.
package blocks
