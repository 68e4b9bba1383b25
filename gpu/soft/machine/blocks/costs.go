package blocks

import "math"

// Costs are what a GPU has and charges for, in nanoseconds where nothing else is said.
type Costs struct {
	SMs int
	// Warps is how many an SM holds.
	Warps int
	// Start is from one block's last instruction to the first of the next in its slot.
	Start float64
	// Look is how long one thread's read of a word in GPU memory and the block's agreement on it take, beside nothing
	// else that the block does.
	Look float64
	// LookBeside is what such a read adds to a fetch that the block waits for anyway.
	LookBeside float64
	// Fetch is how long one thread's atomic, the shared word and the two barriers around it take.
	Fetch float64
	// Note is how long noting a skipped unit takes a block: an atomic, and a store that it need not wait for.
	Note float64
	// LineRead and LineAtomic are how long a line of memory is kept by one warp's read, and by an atomic; LineMixed is
	// what either takes on a line that is read and written by all.
	LineRead, LineAtomic, LineMixed float64
	// HostRead is how long a read of a word in host memory takes, and HostEach how long it keeps the bus: reads of one
	// line are done one after the other, the SMs' in turns. What an SM's blocks load is given to them in the order in
	// which they asked for it, so while one block waits for the bus the SM's others soon wait too.
	HostRead, HostEach float64
	// Seen is from the host's write of a word in GPU memory until blocks read it, SeenHost the same of a word in host
	// memory, and Gone from the last block's end until the host knows.
	Seen, SeenHost, Gone float64
	// Launch is what a launch costs the GPU beside its blocks.
	Launch float64
	// Bandwidth is the bytes a nanosecond that the memory approaches as more is asked of it.
	Bandwidth float64
	// Fill is the number of warps by which an SM's issue slots fill: with w warps the SM issues 1-e^(-w/Fill) of what
	// it could with ever more.
	Fill float64
	// Unequal is how much faster or slower one block of an SM may be than the others: schedulers prefer some warps.
	Unequal float64
	// Jitter is by which part the wait for memory varies.
	Jitter float64
	// Far is by how much later than the nearest SM the farthest gets its first blocks.
	Far float64
}

// H100 is an H100 SXM as docs/results/preemption-on-h100.md found it. Which of its lines a number comes from is said
// beside it; the test of this package holds the whole against all the others.
var H100 = Costs{
	SMs:   132,
	Warps: 64,
	// Early exit with one reader, and the same coarsened, for vector addition: 1,250 and 1,135 µs against 1,160.
	Start: 100,
	Look:  235,
	// Persistent, a task and 4 tasks a fetch: 1,485 and 1,183 µs.
	Fetch:      640,
	LookBeside: 110,
	// 900,000 blocks drain in about 470 µs: an atomic each on one line.
	Note:       200,
	LineAtomic: 0.52,
	// Early exit where all threads read: 8 warps' reads of each of 1,048,576 blocks take 2,865 µs.
	LineRead: 0.34,
	// The word beside the counter: 1,048,576 of both take 3,040 µs.
	LineMixed: 1.45,
	// Persistent with the word in host memory: 1,048,576 looks take 1.02 s, whatever the kernel.
	HostRead: 978, HostEach: 978,
	// An eviction that has nothing to wait for but a task of 1.1 µs takes 8.1 µs, and the launch of an empty kernel
	// until the host sees its end 8.06 µs, of which the call is 2.66 µs.
	Seen: 3500, SeenHost: 500, Gone: 2700,
	Launch: 2000,
	// The loop over tasks with the fewest overheads reaches 2.86 TB/s; fewer blocks than fit lose at once: 7 of 8
	// 4 %, 2 of 8 93 %.
	Bandwidth: 4050,
	// N-body with 2 blocks an SM, coarsened by 32: 29 % slower.
	Fill: 8.5,
	// N-body coarsened by 8, 7.6 % slower: blocks don't end together. In chunks of 16, 115 %: near SMs have fetched all
	// before far ones begin.
	Unequal: 0.25,
	Far:     800,
	// Memory's latency varies; any such number keeps blocks out of step.
	Jitter: 0.2,
}

// fill is the part of an SM's issue slots that w warps use, relative to all its warps.
func (c *Costs) fill(w int) float64 {
	return (1 - math.Exp(-float64(w)/c.Fill)) / (1 - math.Exp(-float64(c.Warps)/c.Fill))
}

// part is an n-th of the GPU with an n-th of all that its SMs share, so that its SMs fare as they do in the whole.
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

// parts is how small a part of the GPU may stand for the whole.
func (c *Costs) parts() int {
	const most = 11
	for n := most; n > 1; n-- {
		if c.SMs%n == 0 {
			return n
		}
	}
	return 1
}

// Kernel is a kernel as the model sees it.
type Kernel struct {
	Tasks uint64 // blocks of the original grid
	PerSM int    // blocks that an SM holds
	Warps int    // of a block
	// Issue is how long a task keeps an SM with all its warps busy.
	Issue float64
	// Latency is how long a task waits for memory that is otherwise idle, and Bytes what it moves.
	Latency float64
	Bytes   float64
	// Setup is what a block does once, however many tasks it runs.
	Setup float64
}

// Kind is how a kernel is asked to leave.
type Kind uint8

// The kinds.
const (
	// Original is the kernel as it was: it does not leave.
	Original Kind = iota
	// EarlyExit is the original grid, divided by the group: a block looks once as it starts.
	EarlyExit
	// Persistent is blocks that stay and fetch tasks, a group at a time.
	Persistent
)

// Word is where the evict word lies and who reads it.
type Word uint8

// The words.
const (
	// OwnLine is GPU memory, on a line of its own; one thread of a block reads it. The host writes it.
	OwnLine Word = iota
	// AllThreads is the same, read by all threads.
	AllThreads
	// BesideCounter is GPU memory on the line of the counter that tasks are fetched from.
	BesideCounter
	// HostMemory is read over the bus by one thread of a block.
	HostMemory
	// HostMemoryAll is read over the bus by all threads: EffiSha's basic form (§6.2).
	HostMemoryAll
	// Proxy is GPU memory on a line of its own, read by all threads, to which a block that does nothing else copies
	// the word in host memory (EffiSha §6.3).
	Proxy
	// ProxyOne is the same read by one thread of a block.
	ProxyOne
)

// Form is a form of a kernel.
type Form struct {
	Kind Kind
	// Group is the tasks of a unit or of a fetch, at least 1.
	Group int
	// Every is how many fetches a persistent block makes for a look, at least 1.
	Every int
	Word  Word
	// PerBlock, PerUnit and PerTask are what the form's code issues beside the original's: SM time, with all warps.
	PerBlock, PerUnit, PerTask float64
}

// Slots is how many of k's blocks run at a time.
func (c *Costs) Slots(k Kernel) int { return c.SMs * k.PerSM }

// units is how many units of work f makes of the kernel's tasks.
func (f *Form) units(tasks uint64) uint64 {
	g := uint64(f.group())
	return (tasks + g - 1) / g
}

func (f *Form) group() int { return max(f.Group, 1) }

// hosted is whether blocks read the word in host memory.
func (f *Form) hosted() bool { return f.Word == HostMemory || f.Word == HostMemoryAll }

// proxied is whether one block of the grid only copies the word.
func (f *Form) proxied() bool { return f.Kind != Original && (f.Word == Proxy || f.Word == ProxyOne) }
