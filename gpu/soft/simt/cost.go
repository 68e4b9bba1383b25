package simt

// CostModel is the number of SM cycles that each kind of work occupies an SM. It models throughput:
// an SM issues one simple warp instruction a cycle, whatever the number of active lanes, and
// latencies are assumed to be hidden by other warps. A zero field costs nothing.
//
// The numbers of [DefaultCosts] have the proportions of recent NVIDIA hardware (CUDA C++
// Programming Guide, arithmetic instructions: throughput relative to 32-bit addition), except that
// instructions that this interpreter executes slowly are not cheaper than their interpretation.
type CostModel struct {
	Simple  uint32 // 32-bit arithmetic, logic, moves, comparisons, branches
	Wide    uint32 // 64-bit integer multiplication and double precision
	Convert uint32 // conversions between types; directed rounding and clamping
	Special uint32 // reciprocal, root, sine, division; half precision
	Slow    uint32 // double-precision division, video and packed operations
	Control uint32 // barrier, call, return
	Shuffle uint32 // exchange between the lanes of a warp
	Memory  uint32 // any load or store
	Sector  uint32 // each 32-byte sector of global memory that a warp's access touches
	Atomic  uint32 // each lane of an atomic operation
	Print   uint32 // each lane that calls vprintf or an allocator
	Block   uint32 // starting a block
	Warp    uint32 // starting a warp
}

// DefaultCosts is the default of [Options].
var DefaultCosts = CostModel{
	Simple:  1,
	Wide:    2,
	Convert: 4,
	Special: 12,
	Slow:    16,
	Control: 2,
	Shuffle: 4,
	Memory:  2,
	Sector:  1,
	Atomic:  2,
	Print:   100,
	Block:   40,
	Warp:    4,
}

// Counts is what a grid has executed so far.
type Counts struct {
	WarpInstructions   uint64 // one for each instruction that a warp executed
	ThreadInstructions uint64 // one for each lane that took part
	Cycles             uint64 // modelled SM cycles of all SMs
	GlobalBytes        uint64 // moved to and from global memory, in whole sectors
}

func (c *Counts) add(o Counts) {
	c.WarpInstructions += o.WarpInstructions
	c.ThreadInstructions += o.ThreadInstructions
	c.Cycles += o.Cycles
	c.GlobalBytes += o.GlobalBytes
}
