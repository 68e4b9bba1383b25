package main

// reportHead is what the report says beside its tables.
const reportHead = `# Preemptible kernels: EffiSha's and FLEP's experiments, redone in a model

Made by ` + "`make bench-preempt`" + `, the same each time; also as [JSON](preempt.json) and [drawings](preempt.svg). **All of it is a
model's**, except what stands under "H100" in the figures 0, which is measured ([the notes](preemption-on-h100.md)), and in those called
"H100" and "H200", which are [our own measurements](preempt-gpu.md). Figures are numbered as in the papers: EffiSha's 9 to 15, FLEP's 7 to 17.

## The model

- **The GPU** is an H100 SXM at the grain of thread blocks (gpu/soft/machine/blocks): dispatch to slots, issue slots that an SM's
  blocks share, memory that takes longer the more wait for it, lines that serve reads and atomics one after the other, the bus
  that serves reads of host memory one after the other while the SMs that asked wait for theirs, and how long a written word takes to
  be seen and an end to be known. Its costs were set by single lines of the notes (marked * in the figures 0) and are held against all
  the others. That an SM gets on with nothing until its last read of host memory is back was not measured by itself; with it n-body's
  two lines with the word in host memory come out as +222 and +34 % (there +220 and +32), and nothing was fitted for them. Nor for
  our own n-body on an H100, of which 2,112 blocks look once: that takes 1.96 ms more there, and 2.05 ms here.
- **Kernels** are the corpus'. What a task issues and moves is counted by the soft GPU's interpreter with its cost model; how many
  tasks there are is chosen so that the original lasts as long as the paper's benchmark (EffiSha table 3, FLEP table 1), or 10 ms.
- **Forms**: the transformation is applied to the corpus' PTX and the result interpreted; what its code issues more for each unit
  and task is added. Which form is launched is what the agents' tuner chooses when each launch takes as long as the model says
  (at most 2 % more than the original, or else at most 5 %; 500 µs to leave are wanted). A kernel for which it finds none is left
  as it is, and can't be evicted.
- **Scheduling** is by the policies of package fairshare, by name, unchanged, on the soft GPU's machine; launches, verdicts and
  evictions are carried out as the daemon and executors do, a verdict taking 10 µs (assumed). EffiSha's programs have contexts of
  their own (135 µs a switch); FLEP's share one, as under MPS.
- **Not modelled**: what the assembler makes of a loop's body, caches, the memory traffic of kernels that run side by side, noise
  of a real host. Blocks of one kernel all take the same, but for the part of an SM that each gets.

## What agrees with the papers, what does not, and why

- **The papers' own forms are much dearer here** (EffiSha figure 10, FLEP figure 17): the plain form 18 to 5,900 times
  as long as the original, not up to 97 times; all of EffiSha's optimisations cost 7 % and FLEP's amortised form 61 % on average, not
  4 and 2.5 %. The notes measured as much on an H100 (880 to 960 times; 24 to 66 %). An H100's tasks are some 1 to 100 µs of a slot,
  and its bus serves one read in a microsecond: that every block looks once costs as many microseconds as there are slots,
  1,056 to 4,224, in which SMs do little else.
- **The chosen forms are cheaper than the papers'**, and than slices of the same latency, as the papers' are cheaper than slices on
  their GPUs. By response time slicing costs what EffiSha found (figure 11: at 0.0625 ms 31 % on average and 149 % at most, there 45
  and 98). At equal latency it costs 6 %, not 58 and 8 %: launches follow each other in 2 µs here, and latencies are not as short.
  Of the corpus' kernels that are not left as they are, slices are better for two (figure 0, corpus): blackscholes, whose chosen form
  costs 2.1 % and slices 1.6 %, and warp, which has only the form without a loop: 1.0 and 0.3 %.
- **EffiSha's figures 9, 12, 14 and 15** agree: fewer evictions of higher priorities and at longer waits; overhead under 5 %, dprr's
  the larger; turnarounds under piv with priorities by group within a tenth of the paper's for Reduction, Sort and Scan; far less
  on average with SJF, near 1 right of Sort; more throughput than the default. At long waits middle priorities have more evictions than
  at short ones, where they hardly ever run. The default's turnarounds are twice the paper's (10 on average, not 5): here a kernel
  waits for all that came before it, while a K40m lets a new kernel in after some time (§2). Therefore piv's average in the group
  setting is not larger than the default's, as it is there.
- **The papers' words** were measured on an H100 too (figure 0, H100), nothing fitted: of the pairs of forms that are apart by more
  than 1.5 points 93 % are in the same order, and one latency of 53 is off by more than a factor of two. A proxy that one thread reads
  costs what a word that the host writes does, and is seen no later; what costs is all threads' reading (+22 to +172 % where tasks are
  short) and the bus (+92,000 % for each task, +1,360 % for each 64th).
- **On the H200** nothing was fitted: of the pairs of forms that are apart by more than 1.5 points nine in ten are in the same order,
  and all latencies are within a factor of two. Loops over short tasks win more there than the model says (vecadd by 8 -6 %, here
  -1 %), presumably since the assembler hoists what tasks have in common; the n-body kernel is dearer here, since the cost model has a reciprocal
  root at 12 instructions.
- **EffiSha's figure 13**: as there, what a task takes decides; NeuralNet's are the longest here, MD's there. Spmv has no form that
  the tuner would choose, see below.
- **FLEP's figures 8 to 11** agree: 10.1 times on average and 24.2 for SPMV beside NN, here 12 and 26; almost linear decay with the delay
  and a plateau at 1; ANTT better by 8 times, here by 7: SPMV's large input can't be evicted. Throughput is lost by 0.3 %, not 5.4 %,
  since the forms cost nothing.
- **FLEP's figure 12** is larger (10 times on average, 6.6 there): the 28 triples are random there as here, and not the same. Reordering
  without preemption gains 1 %, there 2.3 %.
- **FLEP's figures 13 and 14** agree: shares within a point of 2/3; throughput lost near the bound of 10 % where an eviction is
  dear, at most 10.8 %, and 6.9 % on average.
- **FLEP's figure 15** differs in kind: spatial eviction costs less than nothing here, because what remains of the kernel goes on
  beside the trivial one, and fills the SMs that this leaves idle; the paper found 31 % less overhead. What kernels side by side do to one
  another's memory is not modelled.
- **FLEP's figure 16**: at most 1.6 times as fast with more SMs, 2.2 there: a block alone on an SM has that SM's issue slots here, and no
  more of the cache.
- **FLEP's figure 7**: errors of 1.4 % on average, not 6.9: the noise of a real machine's runs is not in it. MD and SPMV, the
  irregular ones, have the largest errors, as there.

`
