package preemption

import (
	"fmt"

	"vgpud/mediator/vgpu/abi"
)

// Plan is one launch of the hardware. To carry it out, zero the control words and the bitmap, write
// the list, and launch, in this order.
type Plan struct {
	// Grid is the hardware's grid.
	Grid [3]uint32
	// Args are the kernel's last parameter without addresses: the owner sets Control, Skipped if
	// SkippedBytes is not 0, and List if there is one.
	Args abi.PreemptArgs
	// List are the units to run, to be written to the list's memory, or nil if they are consecutive
	// from Args.First on. It is valid until the next call.
	List []uint32
	// Zero are the offsets in the control block of the u32 words to zero.
	Zero []uint32
	// BitmapBytes is how much of the memory for skipped units to zero.
	BitmapBytes uint64
	// Stay asks not to evict this launch: it was evicted MaxStalls times in a row before it got
	// anything done.
	Stay bool
}

// piece is the units of a launch under way: all that are left from lo up to but not including hi.
type piece struct {
	lo, hi, count uint32
	capacity      uint32 // of the list of skipped units; 0: a bitmap
}

var (
	wholeBlock = []uint32{abi.ControlEvict, abi.ControlNext, abi.ControlSkipped, abi.ControlInside}
	// A persistent kernel goes on from Next.
	persistentAgain = []uint32{abi.ControlEvict}
	earlyExitAgain  = []uint32{abi.ControlEvict, abi.ControlSkipped}
)

// First plans the launch of the whole grid. It is called once.
func (l *Launch) First() Plan {
	if l.begun {
		panic("preemption: First called twice")
	}
	l.begun = true
	if !l.c.Form.EarlyExit() {
		return l.persistent(wholeBlock)
	}
	l.piece = piece{hi: l.units, count: l.units}
	p := l.earlyExit(nil, wholeBlock)
	if l.c.Form == abi.PreemptSingle {
		p.Grid, p.Args.Flags = l.c.Grid, abi.PreemptWhole
	}
	return p
}

// again plans the next launch of what is left.
func (l *Launch) again() Plan {
	if !l.c.Form.EarlyExit() {
		return l.persistent(persistentAgain)
	}
	// The lowest first. A long run of consecutive units needs no list. Most often a few units were
	// skipped and then all from some unit on; a list that ends within that run fills the GPU, which
	// the few alone would not.
	lo := l.left.lowest()
	run := l.left.run(lo)
	if run == l.left.count || run >= MaxList {
		l.piece = piece{lo: lo, hi: lo + run, count: run}
		return l.earlyExit(nil, earlyExitAgain)
	}
	l.list = l.left.appendTo(l.list[:0], lo, MaxList)
	n := uint32(len(l.list))
	l.piece = piece{lo: lo, hi: l.list[n-1] + 1, count: n}
	return l.earlyExit(l.list, earlyExitAgain)
}

// earlyExit plans a launch of l.piece.
func (l *Launch) earlyExit(list []uint32, zero []uint32) Plan {
	p := l.plan(zero)
	n := l.piece.count
	p.Grid = [3]uint32{n, 1, 1}
	p.Args.Count = n
	p.List = list
	if list == nil {
		p.Args.First = l.piece.lo
	}
	if n <= MaxSkippedList {
		l.piece.capacity = n
	} else {
		p.BitmapBytes = l.bitmapBytes()
	}
	p.Args.Capacity = l.piece.capacity
	return p
}

// persistent plans a launch that goes on from the counter of tasks.
func (l *Launch) persistent(zero []uint32) Plan {
	p := l.plan(zero)
	n := l.hardwareBlocks()
	l.blocks = uint64(n)
	p.Grid = [3]uint32{n, 1, 1}
	return p
}

// plan returns a plan with what all plans have.
func (l *Launch) plan(zero []uint32) Plan {
	l.under = true
	l.launches++
	return Plan{
		Args: abi.PreemptArgs{Tasks: l.tasks, Grid: l.c.Grid, Group: l.c.Group, Every: l.c.Every},
		Zero: zero,
		Stay: l.stalls >= MaxStalls,
	}
}

// Refill plans a second launch beside one of a persistent kernel that is under way: after a spatial
// eviction its blocks take the freed SMs, and fetch from the same counter (FLEP §5.2). The evict
// word must be zero again first, and the readback is taken when all launches have ended. Its errors
// wrap [ErrInvalid] if no such launch is under way, and [ErrTooManyUnits] if there would be too
// many blocks.
func (l *Launch) Refill(blocks uint32) (Plan, error) {
	switch {
	case l.c.Form.EarlyExit() || !l.under || blocks == 0:
		return Plan{}, fmt.Errorf("refill %d blocks of a launch in form %v: %w", blocks, l.c.Form, ErrInvalid)
	case l.overrun(l.blocks + uint64(blocks)):
		return Plan{}, fmt.Errorf("refill %d blocks beside %d: %w", blocks, l.blocks, ErrTooManyUnits)
	}
	had := l.blocks
	p := l.persistent(persistentAgain)
	p.Grid[0] = blocks
	l.blocks = had + uint64(blocks)
	return p, nil
}
