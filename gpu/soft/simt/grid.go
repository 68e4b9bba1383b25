package simt

import (
	"fmt"
	"io"

	"vgpud/gpu"
	"vgpud/gpu/soft/texture"
)

// Launch is one execution of a kernel.
type Launch struct {
	Kernel      *Kernel
	Grid, Block gpu.Dim3
	SharedBytes uint64 // dynamic
	Params      []byte // copied; laid out as the kernel's attributes describe
	Memory      *Memory
	SMs         int       // %nsmid
	ID          uint64    // %gridid
	Print       io.Writer // receives vprintf's output, which it must limit; nil drops it
	Trace       *Trace    // receives what each warp executes; nil records nothing
}

// Grid is a launch in progress.
type Grid struct {
	launch   Launch
	prog     *program
	costs    CostModel
	shared   int // bytes per block
	threads  int // per block
	counts   Counts
	next     uint64 // the next block to start
	done     uint64
	free     []*Block
	mappings []cachedMapping // by memory operation
	epoch    uint32
	matrices *matrixScratch
	texel    texture.Value // of the texture instruction that is executed
}

// cachedMapping is the mapping of a memory operation's last access.
type cachedMapping struct {
	lo   uint64
	data []byte
	ro   bool
}

// MaxSharedBytes is the maximum of static and dynamic shared memory of a block.
const MaxSharedBytes = 227 << 10

// NewGrid checks and prepares a launch without starting a block. The error wraps
// gpu.ErrInvalidLaunch, or gpu.ErrUnsupported if the kernel is refused.
func NewGrid(l Launch) (*Grid, error) {
	k := l.Kernel
	if k.refused != "" {
		return nil, fmt.Errorf("launch: %w", RefusedError(k.Name(), k.refused))
	}
	refuse := func(format string, args ...any) (*Grid, error) {
		return nil, fmt.Errorf("launch %s: %s: %w", k.Name(), fmt.Sprintf(format, args...), gpu.ErrInvalidLaunch)
	}
	a := &k.attr
	g, b := l.Grid, l.Block
	switch {
	case g.X == 0 || g.Y == 0 || g.Z == 0 || g.X > 1<<31-1 || g.Y > 65535 || g.Z > 65535:
		return refuse("a grid of %d×%d×%d blocks", g.X, g.Y, g.Z)
	case b.X == 0 || b.Y == 0 || b.Z == 0 || b.X > 1024 || b.Y > 1024 || b.Z > 64 || b.Count() > uint64(a.MaxThreadsPerBlock):
		return refuse("a block of %d×%d×%d threads, at most %d", b.X, b.Y, b.Z, a.MaxThreadsPerBlock)
	case a.ReqBlock.X != 0 && a.ReqBlock != b:
		return refuse("a block of %d×%d×%d threads where .reqntid asks for %d×%d×%d", b.X, b.Y, b.Z, a.ReqBlock.X, a.ReqBlock.Y, a.ReqBlock.Z)
	case l.SharedBytes > MaxSharedBytes || a.SharedBytes+l.SharedBytes > MaxSharedBytes:
		return refuse("%d bytes of shared memory, at most %d", a.SharedBytes+l.SharedBytes, MaxSharedBytes)
	case uint64(len(l.Params)) < a.ParamBytes:
		return refuse("%d bytes of parameters, expected %d", len(l.Params), a.ParamBytes)
	case k.module.vars.size > 0 && k.module.vars.base == 0:
		return refuse("the module's variables are not placed")
	}
	if l.Trace != nil {
		if err := l.Trace.begin(l.Grid.Count()); err != nil {
			return nil, fmt.Errorf("launch %s: %w", k.Name(), err)
		}
	}
	l.Params = append(make([]byte, 0, a.ParamBytes), l.Params[:a.ParamBytes]...)
	grid := &Grid{
		launch:   l,
		prog:     k.prog,
		costs:    k.prog.costs,
		shared:   int(k.prog.dynamicShared) + int(l.SharedBytes),
		threads:  int(b.Count()),
		mappings: make([]cachedMapping, k.prog.sites),
		epoch:    l.Memory.epoch,
	}
	return grid, nil
}

// Blocks returns the number of blocks of the grid.
func (g *Grid) Blocks() uint64 { return g.launch.Grid.Count() }

// Started returns the number of blocks that StartBlock has returned.
func (g *Grid) Started() uint64 { return g.next }

// Finished returns the number of blocks that have finished.
func (g *Grid) Finished() uint64 { return g.done }

// Done reports whether every block has finished.
func (g *Grid) Done() bool { return g.done == g.Blocks() }

// Counts returns what the grid has executed so far.
func (g *Grid) Counts() Counts { return g.counts }

// StartBlock makes the next block, in order of index, resident on SM sm. It returns nil if all have
// been started.
func (g *Grid) StartBlock(sm int) *Block {
	if g.next == g.Blocks() {
		return nil
	}
	var b *Block
	if n := len(g.free); n > 0 {
		b, g.free = g.free[n-1], g.free[:n-1]
	} else {
		b = g.newBlock()
	}
	b.start(sm, g.next)
	g.next++
	return b
}

// retire keeps a finished block's memory for another block.
func (g *Grid) retire(b *Block) {
	g.done++
	g.free = append(g.free, b)
	if g.Done() {
		g.launch.Memory.idle.keep(g.prog, g.free)
		g.free = g.free[:0]
	}
}

// sync drops cached mappings of a memory that has changed.
func (g *Grid) sync() {
	if g.epoch != g.launch.Memory.epoch {
		g.epoch = g.launch.Memory.epoch
		clear(g.mappings)
	}
}
