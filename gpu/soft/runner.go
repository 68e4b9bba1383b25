package soft

import (
	"vgpud/gpu"
	"vgpud/gpu/soft/simt"
)

// runner interprets a grid in modelled time. Its blocks are placed on SMs, and each SM has a clock
// that its blocks advance by their costs. The SM that is furthest behind goes next, so blocks that
// wait for one another see each other's effects at about the right time.
//
// Launches that execute side by side share the SMs' clocks, so each cycle of an SM is used once.
type runner struct {
	grid   *simt.Grid
	sms    []smRun
	clocks []uint64 // by SM; of the context, or of this launch alone
	live   int      // resident blocks
	end    uint64   // when the last block ended
}

// smRun is what the grid has on one SM.
type smRun struct {
	cycles uint64 // when its blocks go on at the earliest; later if others use the SM until then
	blocks []resident
	next   int
}

type resident struct {
	b    *simt.Block
	wake uint64 // sleeps until this %globaltimer; 0 if awake
}

// reset prepares r for a grid on SMs with the given clocks.
func (r *runner) reset(g *simt.Grid, clocks []uint64) {
	r.grid, r.clocks, r.live, r.end = g, clocks, 0, 0
	if len(r.sms) != len(clocks) {
		r.sms = make([]smRun, len(clocks))
	}
	for i := range r.sms {
		s := &r.sms[i]
		clear(s.blocks)
		s.blocks = s.blocks[:0]
		s.cycles, s.next = 0, 0
	}
}

// drop releases the grid's memory.
func (r *runner) drop() { r.reset(nil, r.clocks) }

// start makes the first blocks resident at a time: placed[i] on SM i, one on each SM in turn, as
// GPUs do.
func (r *runner) start(placed []int, at uint64) {
	r.delay(at)
	for more := true; more; {
		more = false
		for i := range r.sms {
			if len(r.sms[i].blocks) == placed[i] {
				continue
			}
			b := r.grid.StartBlock(i)
			if b == nil {
				return
			}
			r.sms[i].blocks = append(r.sms[i].blocks, resident{b: b})
			r.live++
			more = true
		}
	}
}

// delay has the blocks go on at a time at the earliest.
func (r *runner) delay(at uint64) {
	for i := range r.sms {
		r.sms[i].cycles = max(r.sms[i].cycles, at)
	}
}

// at returns when the grid's blocks on SM i go on.
func (r *runner) at(i int) uint64 { return max(r.sms[i].cycles, r.clocks[i]) }

// done reports whether the grid has run to its end.
func (r *runner) done() bool { return r.live == 0 }

// interpretedTo returns the modelled time up to which the whole grid has been interpreted.
func (r *runner) interpretedTo() uint64 {
	if r.live == 0 {
		return r.end
	}
	return r.at(r.furthestBehind())
}

// furthestBehind returns the SM whose blocks go on first.
func (r *runner) furthestBehind() int {
	best := -1
	for i := range r.sms {
		if len(r.sms[i].blocks) > 0 && (best < 0 || r.at(i) < r.at(best)) {
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
	s.cycles = r.at(i)
	k := s.choose(base)
	if k < 0 {
		return nil // all blocks sleep, until the first of them wakes
	}
	b := &s.blocks[k]
	res := b.b.Step(simt.Now{Cycle: s.cycles, Nanos: base + s.cycles}, budget)
	s.cycles += max(res.Cycles, 1)
	r.clocks[i] = s.cycles
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

// choose returns the next of the blocks that is awake, round-robin. If all sleep, they go on when
// the first of them wakes, and choose returns none.
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
