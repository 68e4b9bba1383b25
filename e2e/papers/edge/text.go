package main

// whys are why goals are missed, where they are.
var whys = map[string]string{
	"preempt_oldest":      overtaken,
	"preempt_oldest_gain": overtaken,
	"high_drain":          shortBlocks,
	"antt_drain":          shortBlocks,
	"rate_drain":          shortBlocks,
	"high_reserve":        roomyHalf,
	"high_bg_reserve":     roomyHalf,
	"antt_reserve":        roomyHalf,
	"total_edge":          shortWaits,
}

const (
	overtaken = "KMN and SC make the mean. Many of their oldest warps have a load in flight that a later instruction has overtaken, so that it may not be dropped, and it waits behind those of other " +
		"warps for the memory; in the other backgrounds the pipeline is mostly empty at once (docs/results/edge.md, table P1, oldest). The gain is small as the oldest warps are issued first and wait little without the optimisations (figure 11a)."
	shortBlocks = "Of the backgrounds MM gains most. Blocks of the others end so often that events soon find room by draining too (docs/results/edge.md, tables P2 and P3). That they then share the memory with the background either way is likely to be the rest; it was not measured apart."
	roomyHalf   = "Half of the cores have contexts for all events that overlap here, so none waits there, and the background loses half of its cores " +
		"(docs/results/edge.md, table P3). That events there share no core's cache with the background, as those that preempt do, is likely to be the rest; it was not measured apart. In the paper events on half of the cores slow each other down more."
	shortWaits = "Events wait less for blocks to end than in the paper, so the launch, which is the same, is most of either sum (docs/results/edge.md, figures 1 and 12)."
)

const intro = `# EDGE's preemption of warps in a model

Made by ` + "`make bench-edge`" + `, the same each time; also as [JSON](edge.json) and [drawings](edge.svg). ` + "`go run ./e2e/papers/edge -check docs/results`" + ` compares it with the goals.
**All of it is a model**: the GPU of the paper's table II cycle by cycle (` + "`gpu/soft/machine/warps`" + `), driven by what the soft GPU recorded of each warp of the corpus' kernels. Registers are those
that the soft GPU's compiler allots. What the table leaves open is chosen, and was before anything was compared, but for one thing: latencies are about GPGPU-Sim's for a GTX 480, the memory moves 25.6 GB/s. Later, since ratios to preemptions that took no time were infinite, it was added that each takes at least a cycle: ` + "`drain_…_fit` and `drain_…_freeregs`" + ` are ratios to about that one cycle, and say little beyond it.

Background grids are at least two waves of blocks, of those that only figure 11 has one; those with more blocks than were recorded repeat the recorded ones at other addresses. Dependent launches follow each other after 300 cycles. "Preemption" has our
choice of victims where nothing else is said: nothing in flight or at a barrier first, and a victim executes at least one instruction between two preemptions. Events of figures 11 and 12 come at random
times and end as they could begin (§VI.C); the tail is the 99th percentile; ratios are of means over pairs. In figure 13 each of the sources rings again 300 cycles after its last event has ended. CONV is the first of the two
convolutions. Cycles are converted at 705 MHz. The launch in figure 1 is the paper's measurement and its estimate; the rows of a GPU (` + "`launch_…`" + ` and after) are in [edge-gpu.md](edge-gpu.md).
`
