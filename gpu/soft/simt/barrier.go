package simt

import "vgpud/gpu"

// barriers is the number of barriers a block has.
const barriers = 16

// barrier is one of a block's barriers.
type barrier struct {
	arrived [maxWarps]uint32 // lanes, by warp
	lanes   int              // how many
	expect  int              // how many complete it; 0: all threads that live
	count   int              // lanes that arrived with a true predicate
	waiting bool
}

const (
	maxWarps   = 32
	maxThreads = maxWarps * lanes
)

// reduction is what a barrier computes of its threads' predicates.
type reduction uint8

const (
	noReduction reduction = iota
	reducePopc
	reduceAnd
	reduceOr
)

// arrive adds the running path of w to barrier id. A path that waits is parked
// by the caller afterwards.
func (b *Block) arrive(w *warp, id, expect int, votes uint32) {
	bar := &b.bars[id]
	if !bar.waiting {
		bar.expect = expect
		bar.waiting = true
	}
	if bar.arrived[w.index]&w.mask == 0 {
		bar.lanes += popcount(w.mask)
	}
	bar.arrived[w.index] |= w.mask
	bar.count += popcount(votes)
}

// complete reports whether barrier id has all it waits for.
func (b *Block) complete(id int) bool {
	bar := &b.bars[id]
	if !bar.waiting {
		return false
	}
	if bar.expect == 0 {
		return bar.lanes >= b.live
	}
	if bar.lanes >= bar.expect {
		return true
	}
	// A count is of whole warps: a warp all of whose live lanes are here counts
	// for 32, however many it has.
	n := 0
	for i, m := range bar.arrived[:len(b.warps)] {
		if w := &b.warps[i]; m != 0 && w.live&^m == 0 {
			n += lanes
		} else {
			n += popcount(m)
		}
	}
	return n >= bar.expect
}

// open lets go all that wait at barrier id.
func (b *Block) open(id int) {
	bar := &b.bars[id]
	count, total := bar.count, bar.lanes
	*bar = barrier{}
	for i := range b.warps {
		w := &b.warps[i]
		var set uint32
		for k := range w.paths {
			p := &w.paths[k]
			if p.wait != waitBarrier || int(p.bar) != id {
				continue
			}
			p.wait = ready
			set |= p.mask
			if p.res != nil {
				w.answer(p, count, total)
				p.res = nil
			}
		}
		if set == 0 {
			continue
		}
		if len(w.paths) > 1 {
			w.gather(set)
		}
		if w.state == warpWaiting {
			w.next()
		}
	}
}

// answer gives a path that leaves a barrier what the barrier computed.
func (w *warp) answer(p *path, count, total int) {
	in := p.res
	switch reduction(in.imm) {
	case reducePopc:
		fill(vec[uint32](w, in.d), p.mask, uint32(count))
	case reduceAnd:
		w.setPred(in.d, p.mask, -bit(count == total))
	case reduceOr:
		w.setPred(in.d, p.mask, -bit(count > 0))
	}
}

// left notes that n threads of w have exited: the others may have been waiting
// for just them.
func (b *Block) left(w *warp, n int) {
	b.live -= n
	for id := range b.bars {
		if b.complete(id) {
			b.open(id)
		}
	}
}

// barSync is bar and barrier in all forms: a is the barrier, b the number of
// threads (0: all), imm what to compute of a predicate.
func barSync(w *warp, in *inst) { barOp(w, in, true) }

// barArrive is bar.arrive, which does not wait.
func barArrive(w *warp, in *inst) { barOp(w, in, false) }

func barOp(w *warp, in *inst, wait bool) {
	lane := first(w.mask)
	id, expect := vec[uint32](w, in.a)[lane], vec[uint32](w, in.b)[lane]
	if id >= barriers || expect%lanes != 0 || expect > maxThreads {
		w.raise(gpu.FaultInstruction, in, lane)
		return
	}
	b := w.block
	var votes uint32
	if in.imm != 0 {
		votes = w.mask & (w.pred[in.x.votes] ^ in.x.votesNot)
	}
	b.arrive(w, int(id), int(expect), votes)
	w.pc++
	if wait {
		p := w.park(waitBarrier)
		p.bar = id
		if in.imm != 0 {
			p.res = in
		}
	}
	if b.complete(int(id)) {
		b.open(int(id))
	}
	if wait && w.mask == 0 {
		w.next()
	}
}
