package blocks

import "math"

// Costs are the properties of a GPU that the model uses. Times are in nanoseconds.
type Costs struct {
	SMs int
	// Warps is the number of warps that an SM holds.
	Warps int
	// Start is the time from one block's last instruction to the first instruction of the next in
	// its slot.
	Start float64
	// Poll is the time of one thread's read of a word in GPU memory and of the block's agreement on
	// it, if the block does nothing else meanwhile.
	Poll float64
	// PollBeside is what such a read adds to a fetch that the block waits for anyway.
	PollBeside float64
	// Fetch is the time of one thread's atomic, of the shared word, and of the two barriers around
	// it.
	Fetch float64
	// Note is the time that a block takes to record a skipped unit: an atomic, and a store that it
	// need not wait for.
	Note float64
	// LineRead and LineAtomic are how long one warp's read, or an atomic, occupies a line of
	// memory. LineMixed is the same for either if all blocks read and write the line.
	LineRead, LineAtomic, LineMixed float64
	// HostRead is the latency of a read of a word in host memory. HostEach is how long it occupies
	// the bus: reads of one line are served one at a time, with SMs taking turns. An SM gets its
	// data in the order of its requests, so while one block waits for the bus the SM's other blocks
	// soon wait too.
	HostRead, HostEach float64
	// Seen is the time from the host's write of a word in GPU memory until blocks read it, and
	// SeenHost the same for a word in host memory. Gone is the time from the last block's end until
	// the host knows.
	Seen, SeenHost, Gone float64
	// Launch is the GPU's cost of a launch beside its blocks.
	Launch float64
	// Bandwidth is the limit of the memory's throughput under load, in bytes per nanosecond.
	Bandwidth float64
	// Fill is the number of warps by which an SM's issue slots fill: with w warps the SM issues
	// 1-e^(-w/Fill) of what it could issue with unlimited warps.
	Fill float64
	// Unequal is how much faster or slower one block of an SM may be than the others, since
	// schedulers prefer some warps.
	Unequal float64
	// Jitter is the fraction by which memory latency varies.
	Jitter float64
	// Far is how much later than the nearest SM the farthest gets its first blocks.
	Far float64
}

// H100 is an H100 SXM as measured in docs/results/preemption-on-h100.md. The comment at each number
// names its source there. The test of this package compares the model with the other measurements.
var H100 = Costs{
	SMs:   132,
	Warps: 64,
	// Early exit with one reader, and the same coarsened, for vector addition: 1,250 and 1,135 µs
	// against 1,160.
	Start: 100,
	Poll:  235,
	// Persistent, a task and 4 tasks a fetch: 1,485 and 1,183 µs.
	Fetch:      640,
	PollBeside: 110,
	// 900,000 blocks drain in about 470 µs: an atomic each on one line.
	Note:       200,
	LineAtomic: 0.52,
	// Early exit where all threads read: 8 warps' reads of each of 1,048,576 blocks take 2,865 µs.
	LineRead: 0.34,
	// The word beside the counter: 1,048,576 of both take 3,040 µs.
	LineMixed: 1.45,
	// Persistent with the word in host memory: 1,048,576 polls take 1.02 s for any kernel.
	HostRead: 978, HostEach: 978,
	// An eviction that waits only for a task of 1.1 µs takes 8.1 µs. From the launch of an empty
	// kernel until the host sees its end it takes 8.06 µs, of which the call is 2.66 µs.
	Seen: 3500, SeenHost: 500, Gone: 2700,
	Launch: 2000,
	// The loop over tasks with the fewest overheads reaches 2.86 TB/s; fewer blocks than fit lose
	// at once: 7 of 8 4 %, 2 of 8 93 %.
	Bandwidth: 4050,
	// N-body with 2 blocks an SM, coarsened by 32: 29 % slower.
	Fill: 8.5,
	// N-body coarsened by 8 is 7.6 % slower: blocks don't end together. In chunks of 16 it is 115 %
	// slower: near SMs have fetched all tasks before far ones begin.
	Unequal: 0.25,
	Far:     800,
	// Memory latency varies; any such number keeps blocks from running in lockstep.
	Jitter: 0.2,
}

// fill returns the fraction of an SM's issue slots that w warps use, relative to all its warps.
func (c *Costs) fill(w int) float64 {
	return (1 - math.Exp(-float64(w)/c.Fill)) / (1 - math.Exp(-float64(c.Warps)/c.Fill))
}

// part returns 1/n of the GPU with 1/n of the resources that SMs share, so that its SMs perform as
// they would in the whole.
func (c Costs) part(n int) Costs {
	by := float64(n)
	c.SMs /= n
	c.Bandwidth /= by
	c.LineRead *= by
	c.LineAtomic *= by
	c.LineMixed *= by
	c.HostEach *= by
	return c
}

// parts returns the n of the smallest part of the GPU (see part) that may stand for the whole.
func (c *Costs) parts() int {
	const most = 11
	for n := most; n > 1; n-- {
		if c.SMs%n == 0 {
			return n
		}
	}
	return 1
}

// Kernel describes a kernel to the model.
type Kernel struct {
	Tasks uint64 // the blocks of the original grid
	PerSM int    // the blocks that an SM holds
	Warps int    // the warps of a block
	// Issue is how long a task occupies an SM with all its warps.
	Issue float64
	// Latency is how long a task waits for otherwise idle memory, and Bytes how much it moves.
	Latency float64
	Bytes   float64
	// Setup is the time of what a block does once, however many tasks it runs.
	Setup float64
}

// Kind is how a kernel is evicted.
type Kind uint8

// The kinds.
const (
	// Original is the unmodified kernel: it cannot be evicted.
	Original Kind = iota
	// EarlyExit is the original grid divided by the group. A block polls once, as it starts.
	EarlyExit
	// Persistent has blocks that stay and fetch tasks, a group at a time.
	Persistent
)

// Word is where the evict word is and which threads read it.
type Word uint8

// The words.
const (
	// OwnLine is GPU memory, on a line of its own. The host writes it; one thread of a block reads
	// it.
	OwnLine Word = iota
	// AllThreads is OwnLine, read by all threads of a block.
	AllThreads
	// BesideCounter is GPU memory, on the line of the counter that tasks are fetched from.
	BesideCounter
	// HostMemory is read over the bus by one thread of a block.
	HostMemory
	// HostMemoryAll is read over the bus by all threads: EffiSha's basic form (§6.2).
	HostMemoryAll
	// Proxy is GPU memory on a line of its own, read by all threads. A block that does nothing else
	// copies the word in host memory to it (EffiSha §6.3).
	Proxy
	// ProxyOne is Proxy, read by one thread of a block.
	ProxyOne
)

// Form is a form of a kernel, preemptible or not.
type Form struct {
	Kind Kind
	// Group is the number of tasks in a unit or a fetch, at least 1.
	Group int
	// Every is the number of fetches per poll of a persistent block, at least 1.
	Every int
	Word  Word
	// PerBlock, PerUnit and PerTask are the SM time, with all warps, of the instructions that the
	// form issues in addition to the original's.
	PerBlock, PerUnit, PerTask float64
}

// Slots returns how many of k's blocks run at a time.
func (c *Costs) Slots(k Kernel) int { return c.SMs * k.PerSM }

// units returns the number of units of work that f makes of the kernel's tasks.
func (f *Form) units(tasks uint64) uint64 {
	g := uint64(f.group())
	return (tasks + g - 1) / g
}

func (f *Form) group() int { return max(f.Group, 1) }

// hosted reports whether blocks read the word in host memory.
func (f *Form) hosted() bool { return f.Word == HostMemory || f.Word == HostMemoryAll }

// proxied reports whether one block of the grid only copies the word.
func (f *Form) proxied() bool { return f.Kind != Original && (f.Word == Proxy || f.Word == ProxyOne) }
