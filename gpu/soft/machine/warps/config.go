package warps

// Config are the properties of a GPU. Times are in cycles.
type Config struct {
	Cores int
	// Blocks, Threads, Registers and SharedBytes are what a core holds.
	Blocks, Threads, Registers, SharedBytes int
	// Schedulers is the number of warp schedulers of a core. Each issues an instruction a cycle.
	Schedulers int
	// Buffer is the number of instructions that a warp's buffer holds, and a fetch brings.
	Buffer int
	// L1Bytes is the size of each core's cache and L2Bytes that of the GPU's.
	L1Bytes, L2Bytes int
	// Misses is the number of lines that a core waits for at a time (MSHRs).
	Misses int
	// L1Latency, SharedLatency, L2Latency and MemoryLatency are from the access to the result, where
	// nothing else is in the way.
	L1Latency, SharedLatency, L2Latency, MemoryLatency uint64
	// L2Line and MemoryLine are how long a line of 128 bytes occupies the GPU's cache and its
	// memory, in sixteenths of a cycle.
	L2Line, MemoryLine uint64
	// Dispatch is from an event's doorbell to the scheduler of blocks (§VI.A).
	Dispatch uint64
	// Table is the number of events that wait at a core (§IV.C).
	Table int
}

// TableII is the GPU of the paper's table II. Values that the table leaves open are about those of
// GPGPU-Sim's model of a GTX 480, which the authors used: two schedulers, the buffer, latencies. The
// memory is two channels of DDR3-1600, since the table says that CPU and GPU share gem5's.
var TableII = Config{
	Cores: 16, Blocks: 16, Threads: 2048, Registers: 65536, SharedBytes: 48 << 10,
	Schedulers: 2, Buffer: 2,
	L1Bytes: 64 << 10, L2Bytes: 1 << 20, Misses: 64,
	L1Latency: 32, SharedLatency: 24, L2Latency: 180, MemoryLatency: 300,
	L2Line: 8, MemoryLine: 56, // 25.6 GB/s at 700 MHz
	Dispatch: 300, Table: 4,
}

// WarpThreads is the number of threads of a warp.
const WarpThreads = 32

// Hz is the clock by which the paper converts cycles to time (§VI.A). Table II says 700 MHz.
const Hz = 705e6

// Technique is how events get onto the cores.
type Technique uint8

// The techniques.
const (
	// Ordered has events wait until all blocks of what was launched before have begun.
	Ordered Technique = iota
	// Drain begins no more blocks of the background while an event waits (§IV.B).
	Drain
	// Reserve keeps half of the cores for events (§IV.A).
	Reserve
	// Preempt takes the place of a warp (§IV.D).
	Preempt
	// Adaptive keeps as many contexts free as events have needed lately, and preempts where those
	// are not enough: the paper's future work (§VI.E).
	Adaptive
)

// String returns the technique's name.
func (t Technique) String() string {
	return [...]string{"in order", "draining", "reservation", "preemption", "reservation by rate"}[t]
}

// Victims is which warp is preempted.
type Victims uint8

// The choices.
const (
	Oldest Victims = iota // the least recently launched
	Newest                // the most recently launched
	// Ready is ours: the warp with the least to wait for. That is one with nothing in flight or at a
	// barrier, then one with only loads that can be dropped, the newest of those.
	Ready
)

// String returns the choice's name.
func (v Victims) String() string { return [...]string{"oldest", "newest", "ours"}[v] }

// Flush is how a victim's pipeline is emptied: §IV.D's optimisations, any of them together. Without
// one, the victim is preempted when it has issued what is in its buffer and all of it has ended.
type Flush uint8

// The optimisations.
const (
	Raise  Flush = 1 << iota // the victim is scheduled before other warps
	Buffer                   // what is in its buffer is fetched again later
	Skip                     // it need not pass the barrier it is at, and goes back to it later
	Replay                   // loads in flight are dropped and executed again later

	All = Raise | Buffer | Skip | Replay
)

// Options are what a run varies.
type Options struct {
	Technique Technique
	Victims   Victims
	Flush     Flush
	// AnyRegisters lets an event that needs more registers than a warp has preempt it if enough are
	// free.
	AnyRegisters bool
	// Skip has events end as they could begin, to measure how long that takes (§VI.C).
	Skip bool
}
