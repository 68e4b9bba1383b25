package simt

import (
	"encoding/binary"

	"vgpud/gpu"
)

// special is a special register that a kernel reads, and the register that holds its value.
type special struct {
	reg  uint32
	wide bool
	kind sreg
}

// sreg identifies a special register, or one component of it.
type sreg uint8

const (
	tidX sreg = iota
	tidY
	tidZ
	ntidX
	ntidY
	ntidZ
	ctaidX
	ctaidY
	ctaidZ
	nctaidX
	nctaidY
	nctaidZ
	laneID
	warpID
	nwarpID
	smID
	nsmID
	gridID
	lanemaskEq
	lanemaskLe
	lanemaskLt
	lanemaskGe
	lanemaskGt
	dynamicShared
	totalShared
	zeroReg // registers that read as zero: %envreg, %pm, cluster ranks
	oneReg  // cluster sizes
)

// newBlock returns a block's memory, new or from an earlier launch of the kernel, with everything
// filled in that a launch does not change.
func (g *Grid) newBlock() *Block {
	b := g.launch.Memory.idle.take(g)
	if b == nil {
		b = g.makeBlock()
	}
	b.grid = g
	for i := range b.warps {
		w := &b.warps[i]
		w.grid = g
		w.present = full
		if rest := g.threads - i*lanes; rest < lanes {
			w.present = 1<<rest - 1
		}
		for _, u := range g.prog.uniforms {
			v := u.bits
			switch {
			case u.param:
				v = fetch(g.launch.Params[u.bits:], int(u.size), u.sext)
			case u.image:
				v += g.launch.Kernel.module.vars.base
			}
			w.setUniform(u.reg, u.wide, v)
		}
		w.pred[0] = full
		for _, s := range g.prog.perWarp {
			w.setSpecial(s)
		}
	}
	return b
}

// makeBlock allocates a block's registers, shared and local memory.
func (g *Grid) makeBlock() *Block {
	p := g.prog
	b := &Block{
		warps:  make([]warp, (g.threads+lanes-1)/lanes),
		shared: make([]byte, g.shared),
	}
	b.size = len(b.shared) + len(b.warps)*(p.n32*4*lanes+p.n64*8*lanes+int(p.localBytes)*lanes)
	for i := range b.warps {
		w := &b.warps[i]
		w.r32 = make([][lanes]uint32, p.n32)
		w.r64 = make([][lanes]uint64, p.n64)
		w.pred = make([]uint32, p.np)
		w.block, w.prog, w.index = b, p, uint32(i)
		w.shared = b.shared
		w.localBytes = int(p.localBytes)
		w.local = make([]byte, lanes*w.localBytes)
	}
	return b
}

// idleBlocks keeps the memory of blocks of finished grids for later launches of their kernels. It
// belongs to one context, so that data never leaks to another context.
type idleBlocks struct {
	blocks map[*program][]*Block
	size   int // bytes
}

// maxIdle limits the kept memory in bytes.
const maxIdle = 64 << 20

// take returns a block that fits g, or nil.
func (p *idleBlocks) take(g *Grid) *Block {
	list := p.blocks[g.prog]
	for i := len(list) - 1; i >= 0; i-- {
		b := list[i]
		if len(b.warps) != (g.threads+lanes-1)/lanes || len(b.shared) != g.shared {
			continue
		}
		p.blocks[g.prog] = append(list[:i], list[i+1:]...)
		p.size -= b.size
		return b
	}
	return nil
}

// forget drops the blocks of a kernel.
func (p *idleBlocks) forget(prog *program) {
	for _, b := range p.blocks[prog] {
		p.size -= b.size
	}
	delete(p.blocks, prog)
}

// keep keeps the blocks of a finished grid.
func (p *idleBlocks) keep(prog *program, blocks []*Block) {
	if p.blocks == nil {
		p.blocks = map[*program][]*Block{}
	}
	for _, b := range blocks {
		if p.size+b.size > maxIdle {
			clear(p.blocks) // instead of choosing which to drop
			p.size = 0
		}
		if b.size > maxIdle {
			continue
		}
		b.grid = nil
		for i := range b.warps {
			b.warps[i].grid, b.warps[i].watch = nil, nil
		}
		p.blocks[prog] = append(p.blocks[prog], b)
		p.size += b.size
	}
}

func (w *warp) setUniform(reg uint32, wide bool, v uint64) {
	if wide {
		fill(&w.r64[reg], full, v)
	} else {
		fill(&w.r32[reg], full, uint32(v))
	}
}

// fetch reads a little-endian integer of size bytes.
func fetch(p []byte, size int, sext bool) uint64 {
	switch size {
	case 1:
		if sext {
			return uint64(int64(int8(p[0])))
		}
		return uint64(p[0])
	case 2:
		v := binary.LittleEndian.Uint16(p)
		if sext {
			return uint64(int64(int16(v)))
		}
		return uint64(v)
	case 4:
		v := binary.LittleEndian.Uint32(p)
		if sext {
			return uint64(int64(int32(v)))
		}
		return uint64(v)
	}
	return binary.LittleEndian.Uint64(p)
}

// start makes b block number n of the grid.
func (b *Block) start(sm int, n uint64) {
	g := b.grid
	d := g.launch.Grid
	b.sm = sm
	b.coord = gpu.Dim3{X: uint32(n % uint64(d.X)), Y: uint32(n / uint64(d.X) % uint64(d.Y)), Z: uint32(n / uint64(d.X) / uint64(d.Y))}
	b.live = g.threads
	b.turn = 0
	b.fault = nil
	b.nextWake = never
	b.bars = [barriers]barrier{}
	var traces []WarpTrace
	if t := g.launch.Trace; t != nil {
		traces = make([]WarpTrace, len(b.warps))
		t.Blocks[n].Warps = traces
	}
	for i := range b.warps {
		w := &b.warps[i]
		w.live, w.mask = w.present, w.present
		w.pc, w.spins, w.sp, w.carry = w.prog.entry, 0, 0, 0
		w.frame, w.join = nil, nil
		w.paths = w.paths[:0]
		w.state = warpReady
		if traces != nil {
			w.watch = &watch{trace: &traces[i]}
		}
		for _, s := range w.prog.perBlock {
			w.setSpecial(s)
		}
	}
	g.counts.Cycles += uint64(g.costs.Block) + uint64(g.costs.Warp)*uint64(len(b.warps))
	b.startCycles = uint64(g.costs.Block) + uint64(g.costs.Warp)*uint64(len(b.warps))
}

// setSpecial fills in one special register.
func (w *warp) setSpecial(s special) {
	l := &w.grid.launch
	switch s.kind {
	case tidX, tidY, tidZ, laneID, lanemaskEq, lanemaskLe, lanemaskLt, lanemaskGe, lanemaskGt:
		for i := range uint32(lanes) {
			v := w.ofLane(s.kind, i)
			if s.wide {
				w.r64[s.reg][i] = uint64(v)
			} else {
				w.r32[s.reg][i] = v
			}
		}
		return
	}
	var v uint64
	switch s.kind {
	case ntidX:
		v = uint64(l.Block.X)
	case ntidY:
		v = uint64(l.Block.Y)
	case ntidZ:
		v = uint64(l.Block.Z)
	case ctaidX:
		v = uint64(w.block.coord.X)
	case ctaidY:
		v = uint64(w.block.coord.Y)
	case ctaidZ:
		v = uint64(w.block.coord.Z)
	case nctaidX:
		v = uint64(l.Grid.X)
	case nctaidY:
		v = uint64(l.Grid.Y)
	case nctaidZ:
		v = uint64(l.Grid.Z)
	case warpID:
		v = uint64(w.index)
	case nwarpID:
		v = uint64(len(w.block.warps))
	case smID:
		v = uint64(w.block.sm)
	case nsmID:
		v = uint64(l.SMs)
	case gridID:
		v = l.ID
	case dynamicShared:
		v = l.SharedBytes
	case totalShared:
		v = uint64(w.grid.shared)
	case oneReg:
		v = 1
	}
	w.setUniform(s.reg, s.wide, v)
}

// ofLane reports whether a special register differs between the lanes of a warp.
func (w *warp) ofLane(kind sreg, lane uint32) uint32 {
	d := w.grid.launch.Block
	t := w.index*lanes + lane
	switch kind {
	case tidX:
		return t % d.X
	case tidY:
		return t / d.X % d.Y
	case tidZ:
		return t / d.X / d.Y
	case laneID:
		return lane
	case lanemaskEq:
		return 1 << lane
	case lanemaskLe:
		return 2<<lane - 1
	case lanemaskLt:
		return 1<<lane - 1
	case lanemaskGe:
		return full << lane
	default:
		return full << lane << 1
	}
}
