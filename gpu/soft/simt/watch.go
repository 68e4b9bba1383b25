package simt

import (
	"errors"
	"fmt"
	"slices"

	"vgpud/ptx"
)

// watch is what looks at each instruction of a warp before it is executed.
type watch struct {
	trace *WarpTrace // records it, if set
	event *Block     // takes the warp's place, if set (preempt.go)
	after int        // the instructions that the warp executes before
	lent  *bank      // the event's own registers, while it has the warp's
}

// before looks at an instruction of the running path, and reports whether the warp is to execute it
// now.
func (w *warp) before(in *inst) (step *Step, now bool) {
	if x := w.watch; x.event != nil {
		if x.after == 0 {
			return nil, false
		}
		x.after--
	}
	return w.record(in), true
}

// executeWatched is execute for a warp that is watched. It executes the same instructions between
// two checks of the budget, so that the warps of a block take the same turns.
func (w *warp) executeWatched(budget int) {
	w.budget = budget
	code := w.prog.code
	for w.budget > 0 {
		in := &code[w.pc]
		if n := in.run; n > 0 {
			w.tally(int(n), in.cost)
			block := code[w.pc : w.pc+int32(n)]
			for i := range block {
				if _, now := w.before(&block[i]); !now {
					w.tally(i-int(n), -block[i].cost) // not yet
					w.pc += int32(i)
					return
				}
				block[i].op(w, &block[i])
			}
			if w.fault != nil {
				return
			}
			w.pc += int32(n)
			if in = &code[w.pc]; in.run > 0 {
				continue
			}
		}
		mask, parts := w.mask, len(w.paths)
		step, now := w.before(in)
		if !now {
			return
		}
		w.tally(1, in.cost)
		in.op(w, in)
		if step != nil && w.mask != 0 && w.mask != mask && (len(w.paths) > parts || w.join != nil) {
			step.Diverges = true
		}
		if w.fault != nil {
			return
		}
	}
}

var errTooManyBlocks = errors.New("too many blocks to trace")

// begin prepares the trace for a grid.
func (t *Trace) begin(blocks uint64) error {
	if blocks > maxTracedSteps {
		return fmt.Errorf("%w: %d", errTooManyBlocks, blocks)
	}
	*t = Trace{Blocks: make([]BlockTrace, blocks), Limit: t.Limit, index: map[*Op]uint32{}}
	if t.Limit <= 0 {
		t.Limit = maxTracedSteps
	}
	return nil
}

// number returns the index of an instruction in Ops.
func (t *Trace) number(op *Op) uint32 {
	n, ok := t.index[op]
	if !ok {
		n = uint32(len(t.Ops))
		t.Ops = append(t.Ops, *op)
		t.index[op] = n
	}
	return n
}

// record appends the instruction that is about to be executed to the warp's trace. It returns nil
// if it is no instruction of the PTX, or there is no room.
func (w *warp) record(in *inst) *Step {
	t, own, op := w.grid.launch.Trace, w.watch.trace, in.x.note
	if own == nil || op == nil {
		return nil
	}
	if t.steps == t.Limit {
		t.Truncated = true
		return nil
	}
	t.steps++
	s := Step{Op: t.number(op), Mask: w.mask}
	switch op.Class {
	case OpLoad, OpStore, OpAtomic:
		s.Lines = w.recordLines(in, own)
	case OpBarrier, OpArrive:
		w.recordBarrier(in, &s)
	}
	own.Steps = append(own.Steps, s)
	return &own.Steps[len(own.Steps)-1]
}

// recordLines appends the lines of global memory that an access is about to touch, and returns how
// many.
func (w *warp) recordLines(in *inst, own *WarpTrace) uint16 {
	m := in.x.mem
	if m == nil || m.space == ptx.SharedSpace || m.space == ptx.LocalSpace || m.space == ptx.ParamSpace {
		return 0
	}
	mask := w.mask
	if in.x.guarded != nil {
		mask &= w.pred[in.x.guard] ^ in.x.unless
	}
	base := vec[uint64](w, in.a)
	begin := len(own.Lines)
	for ; mask != 0; mask &= mask - 1 {
		at := base[first(mask)] + in.imm
		if at >= GlobalLimit {
			continue // a window of the generic space
		}
		for line := at / LineBytes; line <= (at+uint64(m.size)-1)/LineBytes; line++ {
			if !slices.Contains(own.Lines[begin:], line) {
				own.Lines = append(own.Lines, line)
			}
		}
	}
	return uint16(len(own.Lines) - begin)
}

// recordBarrier fills in a step that is about to arrive at a barrier.
func (w *warp) recordBarrier(in *inst, s *Step) {
	lane := first(w.mask)
	id, expect := vec[uint32](w, in.a)[lane], vec[uint32](w, in.b)[lane]
	if id >= barriers || expect > maxThreads {
		return // a fault
	}
	s.Barrier, s.Expect = uint8(id), uint8(expect/lanes)
	s.Arrives = w.live&^(w.block.bars[id].arrived[w.index]|w.mask) == 0
}
