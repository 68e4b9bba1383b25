package main

// whys are why goals are missed, where they are.
var whys = map[string]string{}

const intro = `# EDGE's preemption of warps in a model

Made by ` + "`make bench-edge`" + `, the same each time; also as [JSON](edge.json) and [drawings](edge.svg). ` + "`go run ./e2e/papers/edge -check docs/results`" + ` compares it with the goals.
**All of it is a model**: the GPU of the paper's table II cycle by cycle (` + "`gpu/soft/machine/warps`" + `), driven by what the soft GPU recorded of each warp of the corpus' kernels. Registers are those
that the soft GPU's compiler allots. What the table leaves open is chosen, and was before anything was compared: latencies are about GPGPU-Sim's for a GTX 480, the memory moves 25.6 GB/s.

Background grids are at least two waves of blocks, of those that only figure 11 has one; those with more blocks than were recorded repeat the recorded ones at other addresses. Dependent launches follow each other after 300 cycles. "Preemption" has our
choice of victims where nothing else is said: nothing in flight or at a barrier first, and a victim executes at least one instruction between two preemptions. Events of figures 11 and 12 come at random
times and end as they could begin (§VI.C); the tail is the 99th percentile; ratios are of means over pairs. In figure 13 each of the sources rings again 300 cycles after its last event has ended. CONV is the first of the two
convolutions. Cycles are converted at 705 MHz. The launch in figure 1 is the paper's measurement and its estimate; the GPU's rows (` + "`launch_…`" + ` and after) need hardware and are not measured here.
`
