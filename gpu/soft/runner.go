package soft

import (
	"vgpud/gpu"
	"vgpud/gpu/soft/simt"
)

// runner interprets a grid in modelled time. Its blocks are placed on SMs, and each SM has a clock
// that its blocks advance by their costs. The SM that is furthest behind goes next, so blocks that
// wait for one another see each other's effects at about the right time.
type runner struct {
	grid *simt.Grid
	sms  []smRun
	cap  int // the blocks that an SM holds
	live int // resident blocks
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
	wake uint64 // sleeps until this %globaltimer; 0 if awake
}

// reset prepares r for a grid on sms SMs that each hold up to cap blocks.
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

// drop releases the grid's memory.
func (r *runner) drop() { r.reset(nil, len(r.sms), 0) }

// start makes the first blocks resident, one on each SM in turn, as GPUs do.
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

// interpretedTo returns the modelled time up to which the whole grid has been interpreted, in
// cycles from its start.
func (r *runner) interpretedTo() uint64 {
	if r.live == 0 {
		return r.end
	}
	return r.sms[r.furthestBehind()].cycles
}

// furthestBehind returns the SM with blocks whose clock is lowest.
func (r *runner) furthestBehind() int {
	best := -1
	for i := range r.sms {
		if len(r.sms[i].blocks) > 0 && (best < 0 || r.sms[i].cycles < r.sms[best].cycles) {
			best = i
		}
	}
	return best
}

// step interprets about budget warp instructions of one block. base is the value of %globaltimer at
// cycle 0.
func (r *runner) step(base uint64, budget int) *gpu.Fault {
	i := r.furthestBehind()
	s := &r.sms[i]
	k := s.choose(base)
	if k < 0 {
		return nil // all blocks sleep; the clock was moved to the first that wakes
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

// choose returns the next of the SM's blocks that is awake, round-robin. If all sleep, it moves the
// clock to the time when the first wakes, and returns none.
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
