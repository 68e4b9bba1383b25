package simt

import (
	"io"

	"vgpud/gpu"
)

// Launch is one execution of a kernel.
type Launch struct {
	Kernel      *Kernel
	Grid, Block gpu.Dim3
	SharedBytes uint64 // dynamic
	Params      []byte // laid out as the kernel's attributes say; copied
	Memory      *Memory
	SMs         int        // %nsmid
	ID          uint64     // %gridid
	Print       io.Writer  // where vprintf's text goes; nil drops it. It bounds what it keeps
	Costs       *CostModel // nil: DefaultCosts
}

// Grid is a launch that is being executed.
type Grid struct {
	launch Launch
	counts Counts
	next   uint64 // block to start
	done   uint64
}

// NewGrid checks a launch and prepares it. No block is started. The error wraps
// gpu.ErrInvalidLaunch.
func NewGrid(l Launch) (*Grid, error) {
	return &Grid{launch: l}, nil
}

// Blocks is the number of blocks of the grid.
func (g *Grid) Blocks() uint64 { return g.launch.Grid.Count() }

// Started is how many blocks StartBlock has handed out.
func (g *Grid) Started() uint64 { return g.next }

// Finished is how many blocks ran to their end.
func (g *Grid) Finished() uint64 { return g.done }

// Done reports whether every block has finished.
func (g *Grid) Done() bool { return g.done == g.Blocks() }

// Counts is what the grid has done so far.
func (g *Grid) Counts() Counts { return g.counts }

// StartBlock makes the next block, in order of index, resident on SM sm. It
// returns nil when all have been started.
func (g *Grid) StartBlock(sm int) *Block {
	if g.next == g.Blocks() {
		return nil
	}
	g.next++
	return &Block{grid: g, sm: sm}
}
