package simt

import "vgpud/gpu"

// barriers is the number of barriers of a block.
const barriers = 16

// barrier is one of a block's barriers. Threads arrive at it as warps: each waits for the other
// threads of its warp that have not exited, and the warp arrives with the last of them. It counts
// as a whole warp (PTX ISA, bar).
type barrier struct {
	arrived [maxWarps]uint32 // lanes, by warp
	votes   [maxWarps]uint32 // the lanes of arrived with a true predicate
	lanes   int              // the number of arrived lanes
	expect  int              // the number of threads that complete it; 0 means all live threads
	waiting bool
}

const (
	maxWarps   = 32
	maxThreads = maxWarps * lanes
)

// reduction is the function of the threads' predicates that a barrier computes.
type reduction uint8

const (
	noReduction reduction = iota
	reducePopc
	reduceAnd
	reduceOr
)

// arrive adds the running path of w to barrier id. The caller parks a path that must wait.
func (b *Block) arrive(w *warp, id, expect int, votes uint32) {
	bar := &b.bars[id]
	if !bar.waiting {
		bar.expect = expect
		bar.waiting = true
	}
	bar.lanes += popcount(w.mask &^ bar.arrived[w.index])
	bar.arrived[w.index] |= w.mask
	bar.votes[w.index] |= votes
}

// here reports whether w has arrived: all of its lanes that live have.
func (bar *barrier) here(w *warp) bool {
	m := bar.arrived[w.index]
	return m != 0 && w.live&^m == 0
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
	n := 0
	for i := range b.warps {
		if bar.here(&b.warps[i]) {
			n += lanes // counts whole warps, however many of their lanes are live
		}
	}
	return n >= bar.expect
}

// open releases the warps that have arrived at barrier id. Partly arrived warps stay.
func (b *Block) open(id int) {
	bar := &b.bars[id]
	count, total := 0, 0
	for i := range b.warps {
		if bar.here(&b.warps[i]) {
			count += popcount(bar.votes[i])
			total += popcount(bar.arrived[i])
		}
	}
	for i := range b.warps {
		if w := &b.warps[i]; bar.here(w) {
			bar.arrived[i], bar.votes[i] = 0, 0
			w.pass(id, count, total, true)
		}
	}
	bar.lanes -= total
	bar.waiting = bar.lanes > 0
}

// pass releases the paths of w that wait at barrier id: all of them, with the barrier's result, or
// only those that don't wait for other warps.
func (w *warp) pass(id, count, total int, all bool) {
	var set uint32
	for k := range w.paths {
		p := &w.paths[k]
		if p.wait != waitArrived && !(all && p.wait == waitBarrier) || int(p.bar) != id {
			continue
		}
		p.wait = ready
		set |= p.mask
		if p.res != nil {
			w.giveRegisters() // an event may have them
			w.deliver(p, count, total)
			w.giveRegisters()
			p.res = nil
		}
	}
	if set == 0 {
		return
	}
	if len(w.paths) > 1 {
		w.gather(set)
	}
	if w.state == warpWaiting {
		w.next()
	}
}

// deliver gives the barrier's result to a path that leaves it.
func (w *warp) deliver(p *path, count, total int) {
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

// exited records that n threads of w have exited. Barriers may have waited only for these.
func (b *Block) exited(w *warp, n int) {
	b.live -= n
	for id := range b.bars {
		bar := &b.bars[id]
		if bar.waiting && bar.here(w) {
			w.pass(id, 0, 0, false)
		}
		if b.complete(id) {
			b.open(id)
		}
	}
}

// barSync executes bar and barrier in all forms. a is the barrier, b the number of threads (0 means
// all), imm the reduction of a predicate.
func barSync(w *warp, in *inst) { barOp(w, in, waitBarrier) }

// barArrive executes bar.arrive, which waits only for the lanes of its warp.
func barArrive(w *warp, in *inst) { barOp(w, in, waitArrived) }

func barOp(w *warp, in *inst, wait waitKind) {
	lane := first(w.mask)
	id, expect := vec[uint32](w, in.a)[lane], vec[uint32](w, in.b)[lane]
	if id >= barriers || expect%lanes != 0 || expect > maxThreads || expect == 0 && wait == waitArrived {
		w.raise(gpu.FaultInstruction, in, lane)
		return
	}
	b := w.block
	var votes uint32
	if in.imm != 0 {
		votes = w.mask & (w.pred[in.x.votes] ^ in.x.votesNot)
	}
	b.arrive(w, int(id), int(expect), votes)
	here, parted := b.bars[id].here(w), len(w.paths) > 0
	w.pc++
	if wait == waitBarrier || !here {
		p := w.park(wait)
		p.bar = id
		if in.imm != 0 {
			p.res = in
		}
	}
	if here && parted {
		w.pass(int(id), 0, 0, false)
	}
	if b.complete(int(id)) {
		b.open(int(id))
	}
	if w.mask == 0 {
		w.next()
	}
}
