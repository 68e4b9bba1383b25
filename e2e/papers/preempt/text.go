package main

import "fmt"

// reportHead introduces the report. The conclusions are computed separately, by conclude.
func reportHead() string {
	return fmt.Sprintf(`# Preemptible kernels: EffiSha's and FLEP's experiments, redone in a model

Made by `+"`make bench-preempt`"+`, the same each time; also as [JSON](preempt.json) and [drawings](preempt.svg). **All of it is a
model's**, except what stands under "H100" in the figures 0, which is measured ([the notes](preemption-on-h100.md)), and in those called
"H100" and "H200", which are [our own measurements](preempt-gpu.md). Figures are numbered as in the papers: EffiSha's 9 to 15, FLEP's 7 to 17.

## The model

- **The GPU** is an H100 SXM at the grain of thread blocks (gpu/soft/machine/blocks): dispatch to slots, issue slots that an SM's
  blocks share, memory that takes longer the more wait for it, lines that serve reads and atomics one after the other, the bus
  that serves reads of host memory one after the other while the SMs that asked wait for theirs, and how long a written word takes to
  be seen and an end to be known. Its costs were set by single lines of the notes (marked * in the figures 0) and are held against all
  the others. That an SM gets on with nothing until its last read of host memory is back was not measured by itself; nothing was fitted
  for n-body's lines with the word in host memory, nor for the notes' matrix product, nor for our own forms on the H200 and the H100.
- **Kernels** are the corpus'. What a task issues and moves is counted by the soft GPU's interpreter with its cost model; how many
  tasks there are is chosen so that the original lasts as long as the paper's benchmark (EffiSha table 3, FLEP table 1), or 10 ms.
- **Forms**: the transformation is applied to the corpus' PTX and the result interpreted; what its code issues more for each unit
  and task is added. Which form is launched is what the agents' tuner chooses when each launch takes as long as the model says
  (at most 2 %% more than the original, or else at most 5 %%; %[1]v to leave are wanted). A kernel for which it finds none is left
  as it is, and can't be evicted. To each launch in a form the host's part is added, %.0[2]f µs: the channel goes on when the host has
  found it done.
- **L**, how many tasks FLEP's form does between two looks, is found off line for the papers' form here, as in FLEP §4.1. No product code
  does so: the product chooses form, group and L on line, from what launches take (guestagent/preempt/tune).
- **Scheduling** is by the policies of package fairshare, by name, unchanged, on the soft GPU's machine; launches, verdicts and
  evictions are carried out as the daemon and executors do, a verdict taking %[3]v (assumed). EffiSha's programs have contexts of
  their own (%[4]v a switch); FLEP's share one, as under MPS.
- **Not modelled**: what the assembler makes of a loop's body, caches, the memory traffic of kernels that run side by side, noise
  of a real host. Blocks of one kernel all take the same, but for the part of an SM that each gets.

`, wanted, hostTime/1e3, react, contextSwitch)
}

// reasons explains the differences from the papers. It is written by hand and says nothing that a
// run could change.
const reasons = `## Why it differs

Written by hand, as reasons for what is listed above:

- An H100's tasks are some 1 to 100 µs of a slot, and its bus serves one read in a microsecond: that every block looks once over it costs as
  many microseconds as there are slots, in which SMs do little else. So the papers' words in host memory are dear.
- Launches follow each other in 2 µs here, so slices cost little where latencies are not short.
- Under the default a kernel waits for all that came before it here, while a K40m lets a new kernel in after some time (EffiSha §2): its
  turnarounds are longer than the paper's.
- The forms that are chosen cost next to nothing on the GPU: what FLEP's throughput is lost to is mostly not there.
- FLEP's 28 triples are random there as here, and not the same.
- Spatial eviction: what remains of the kernel goes on beside the small one, and fills the SMs that this leaves idle. What kernels side by
  side do to one another's memory is not modelled; a block alone on an SM has that SM's issue slots, and no more of the cache.
- Durations are foreseen for a GPU without a real machine's noise.
- Loops around a body cost what the assembler makes of them, which is not modelled: the notes' matrix product loses 22 to 25 % by any loop,
  vector addition wins more than here. The cost model has a reciprocal root at 12 instructions, so that n-body is dearer here.

`
