package simt

import "vgpud/gpu"

// Block is a resident thread block.
type Block struct {
	grid *Grid
	sm   int
}

// State is what became of a block in a step.
type State uint8

// The states a block can be in after a step.
const (
	Running  State = iota + 1 // more to do: step it again
	Sleeping                  // all its warps wait for a time: step it again at Result.Wake
	Finished                  // its threads have all exited; the block must not be used again
	Faulted                   // Result.Fault says why; the grid must not be stepped any more
)

// Now is the time at which a step begins.
type Now struct {
	Cycle       uint64 // %clock64 of the block's SM
	Nanos       uint64 // %globaltimer
	CyclesPerUS uint64 // rate at which both advance during the step; 0: 1,000
}

// Result is the outcome of a step.
type Result struct {
	State  State
	Cycles uint64     // SM cycles spent, by the cost model
	Wake   uint64     // Sleeping: the %globaltimer value to wait for
	Fault  *gpu.Fault // Faulted
}

// SM is where the block is resident.
func (b *Block) SM() int { return b.sm }

// Grid is the grid the block belongs to.
func (b *Block) Grid() *Grid { return b.grid }

// Step executes up to about budget warp instructions of the block, all its
// warps in turn. It returns early when nothing is left to do.
func (b *Block) Step(now Now, budget int) Result {
	return Result{State: Finished}
}
