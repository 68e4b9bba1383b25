package soft

import (
	"vgpud/gpu"
	"vgpud/gpu/soft/simt"
)

// runner interprets a grid in modelled time: its blocks placed on SMs, each SM with a clock of its own that its blocks
// advance by what they cost. The SM that is furthest behind goes next, so blocks that wait for one another see each
// other at about the right time.
type runner struct {
	grid *simt.Grid
	sms  []smRun
	cap  int // blocks that an SM holds
	live int // blocks resident
	end  uint64
}

// smRun is one SM. Its clock counts cycles from the launch's start.
type smRun struct {
	cycles uint64
	blocks []resident
	next   int
}

type resident struct {
	b    *simt.Block
	wake uint64 // %globaltimer to sleep until; 0: awake
}

// reset prepares r for a grid on sms SMs that hold up to cap of its blocks each.
func (r *runner) reset(g *simt.Grid, sms, cap int) {
	r.grid, r.cap, r.live, r.end = g, cap, 0, 0
	if r.sms == nil {
		r.sms = make([]smRun, sms)
	}
	for i := range r.sms {
		s := &r.sms[i]
		clear(s.blocks)
		s.blocks = s.blocks[:0]
		s.cycles, s.next = 0, 0
	}
}

// drop forgets the grid, so that its memory can go.
func (r *runner) drop() { r.reset(nil, len(r.sms), 0) }

// start makes the first blocks resident, one on each SM in turn, as GPUs place them.
func (r *runner) start() {
	for range r.cap {
		for i := range r.sms {
			b := r.grid.StartBlock(i)
			if b == nil {
				return
			}
			r.sms[i].blocks = append(r.sms[i].blocks, resident{b: b})
			r.live++
		}
	}
}

// done reports whether the grid has run to its end.
func (r *runner) done() bool { return r.live == 0 }

// known is the modelled time up to which all of the grid has been interpreted, in cycles from its start.
func (r *runner) known() uint64 {
	if r.live == 0 {
		return r.end
	}
	return r.sms[r.behind()].cycles
}

// behind is the SM with blocks that is furthest behind.
func (r *runner) behind() int {
	best := -1
	for i := range r.sms {
		if len(r.sms[i].blocks) > 0 && (best < 0 || r.sms[i].cycles < r.sms[best].cycles) {
			best = i
		}
	}
	return best
}

// step interprets up to about budget warp instructions of one block. base is what %globaltimer shows at cycle 0.
func (r *runner) step(base uint64, budget int) *gpu.Fault {
	i := r.behind()
	s := &r.sms[i]
	k := s.choose(base)
	if k < 0 {
		return nil // all sleep; the clock was moved to the first that wakes
	}
	b := &s.blocks[k]
	res := b.b.Step(simt.Now{Cycle: s.cycles, Nanos: base + s.cycles}, budget)
	s.cycles += max(res.Cycles, 1)
	switch res.State {
	case simt.Sleeping:
		b.wake = max(res.Wake, 1)
	case simt.Finished:
		r.end = max(r.end, s.cycles)
		if next := r.grid.StartBlock(i); next != nil {
			*b = resident{b: next}
		} else {
			s.blocks = append(s.blocks[:k], s.blocks[k+1:]...)
			r.live--
		}
	case simt.Faulted:
		return res.Fault
	}
	return nil
}

// choose is the next of the SM's blocks that is awake, in turn. If all sleep it moves the clock to when the first
// wakes, and says none.
func (s *smRun) choose(base uint64) int {
	first := ^uint64(0)
	for range s.blocks {
		if s.next++; s.next >= len(s.blocks) {
			s.next = 0
		}
		b := &s.blocks[s.next]
		if b.wake <= base+s.cycles {
			b.wake = 0
			return s.next
		}
		first = min(first, b.wake)
	}
	s.cycles = first - base
	return -1
}
