package simt

// A warp's lanes run in lockstep as long as they agree on the next instruction. When they diverge
// at a branch, each side becomes a path, and the branch's immediate post-dominator becomes a join:
// lanes that arrive there wait for the others and continue with them.
//
// Joins make execution fast, but must not block it. A lane at a join may be the one that the rest
// of the warp spins for, since it holds a lock, or that a barrier needs. So if a path has iterated
// a loop often enough, or no other path of the warp can run, the lanes at a join are released as a
// path of their own. This gives the forward progress of independent thread scheduling (Volta).

// path is a set of lanes with one program counter.
type path struct {
	pc    int32
	mask  uint32
	spins int32
	frame *frame
	join  *join
	wait  waitKind
	bar   uint32 // the barrier, for waitBarrier and waitArrived
	arg   uint32 // the lanes to meet, for waitWarp
	wake  uint64 // %globaltimer, for waitTime
	res   *inst  // the instruction with the reduction, for waitBarrier
}

// waitKind is what a path waits for.
type waitKind uint8

const (
	ready waitKind = iota
	waitBarrier
	waitArrived // at a barrier, only for the other lanes of its warp
	waitWarp
	waitTime
)

// join is where diverged lanes reconverge.
type join struct {
	pc     int32
	frame  *frame
	want   uint32 // lanes that may still arrive, and those that have
	have   uint32 // lanes that have arrived
	parent *join  // the join after this one
}

// Iterations of a loop after which a path yields, if an iteration has weight 1. The weight is
// spinWeight if the loop may be waiting for another thread.
const (
	spinLimit  = 8192
	spinWeight = 32
)

func (w *warp) newJoin(pc int32) *join {
	j := w.freeJoin
	if j == nil {
		j = new(join)
	} else {
		w.freeJoin = j.parent
	}
	*j = join{pc: pc, frame: w.frame, want: w.mask, parent: w.join}
	return j
}

func (w *warp) dropJoin(j *join) {
	*j = join{parent: w.freeJoin}
	w.freeJoin = j
}

// part splits the running path: the lanes of taken go to target, the others to next, and all join
// at rpc unless it is negative.
func (w *warp) part(taken uint32, target, next, rpc int32) {
	if rpc >= 0 && (w.join == nil || w.join.pc != rpc || w.join.frame != w.frame) {
		w.join = w.newJoin(rpc)
	}
	rest := w.mask &^ taken
	switch rpc {
	case target:
		w.join.have |= taken
		w.mask, w.pc = rest, next
	case next:
		w.join.have |= rest
		w.mask, w.pc = taken, target
	default:
		w.paths = append(w.paths, path{pc: target, mask: taken, frame: w.frame, join: w.join, spins: w.spins})
		w.mask, w.pc = rest, next
	}
}

// arrive is executed before an instruction where lanes may reconverge.
func arrive(w *warp, in *inst) {
	w.tally(-1, 0) // not counted as an instruction
	for j := w.join; j != nil && j.pc == w.pc && j.frame == w.frame; j = w.join {
		j.have |= w.mask
		if j.have != j.want {
			w.next()
			return
		}
		w.mask, w.join = j.have, j.parent
		w.dropJoin(j)
	}
	w.pc++
}

// load makes path i the running one.
func (w *warp) load(i int) {
	p := w.paths[i]
	w.paths = append(w.paths[:i], w.paths[i+1:]...)
	for k := 0; k < len(w.paths); k++ {
		if q := &w.paths[k]; q.wait == ready && q.pc == p.pc && q.frame == p.frame && q.join == p.join {
			p.mask |= q.mask
			w.paths = append(w.paths[:k], w.paths[k+1:]...)
			k--
		}
	}
	w.pc, w.mask, w.spins, w.frame, w.join = p.pc, p.mask, p.spins, p.frame, p.join
	w.sp = p.frame.base()
	w.state = warpReady
}

// park appends the running path to the waiting ones.
func (w *warp) park(wait waitKind) *path {
	w.paths = append(w.paths, path{pc: w.pc, mask: w.mask, spins: w.spins, frame: w.frame, join: w.join, wait: wait})
	w.mask = 0
	return &w.paths[len(w.paths)-1]
}

// next finds a path to run when the running one has ended or waits. If there is none, the warp
// waits or is done.
func (w *warp) next() {
	w.mask = 0
	for i := len(w.paths) - 1; i >= 0; i-- {
		if w.paths[i].wait == ready {
			w.load(i)
			return
		}
	}
	if w.live == 0 {
		w.state = warpDone
		w.budget = 0
		return
	}
	if w.release() {
		w.load(len(w.paths) - 1)
		return
	}
	w.state = warpWaiting
	w.budget = 0
}

// release releases the lanes at a join of any path as a path of their own, and reports whether
// there were any.
func (w *warp) release() bool {
	for i := range w.paths {
		if w.releaseFrom(w.paths[i].join) {
			return true
		}
	}
	return false
}

func (w *warp) releaseFrom(j *join) bool {
	for ; j != nil; j = j.parent {
		if j.have == 0 {
			continue
		}
		w.paths = append(w.paths, path{pc: j.pc, mask: j.have, frame: j.frame, join: j.parent})
		j.want &^= j.have
		j.have = 0
		return true
	}
	return false
}

// back counts an iteration of a loop. Regularly the path yields to the warp's other lanes, or the
// warp to the block's other warps.
func (w *warp) back(weight int32) {
	if w.spins += weight; w.spins < w.prog.yieldAfter {
		return
	}
	w.spins = 0
	w.giveWay()
}

func (w *warp) giveWay() {
	if len(w.paths) > 0 || w.join != nil {
		w.releaseFrom(w.join)
		for i := range w.paths {
			if w.paths[i].wait == ready { // the one that waits longest, since park appends
				w.park(ready)
				w.load(i)
				return
			}
		}
	}
	w.budget = 0
}

// leave removes lanes of the running path from the warp. If none remain, the caller finds the next
// path.
func (w *warp) leave(exiting uint32) {
	w.live &^= exiting
	for f := w.frame; f != nil; {
		up := f.parent
		w.quit(f, exiting)
		f = up
	}
	w.mask &^= exiting
	w.forget(w.join, nil, exiting)
	if w.mask == 0 {
		w.frame, w.join = nil, nil
	}
	w.meet()
	w.block.exited(w, popcount(exiting))
}

// forget removes lanes from the joins between j and end, excluding end. If that completes a join,
// the lanes that have arrived go on.
//
// A lane that a join wants and does not have is in a path that leads to the join, or waits at one
// of the join's children. So nothing points to a join that has all lanes it wants, and it can be
// reused.
func (w *warp) forget(j, end *join, gone uint32) {
	for j != end {
		up := j.parent
		j.want &^= gone
		if j.want == j.have {
			if j.have != 0 {
				w.paths = append(w.paths, path{pc: j.pc, mask: j.have, frame: j.frame, join: up})
			}
			w.dropJoin(j)
		}
		j = up
	}
}

// merge adds path q to path p, which is at the same place of the same frame. They join others at
// the first join that both lead to.
func (w *warp) merge(p, q *path) {
	if p.join != q.join {
		common := p.join
		for common != nil && !leadsTo(q.join, common) {
			common = common.parent
		}
		w.forget(p.join, common, p.mask)
		w.forget(q.join, common, q.mask)
		p.join = common
	}
	p.mask |= q.mask
	q.mask = 0
}

func leadsTo(j, to *join) bool {
	for j != nil && j != to {
		j = j.parent
	}
	return j == to
}

// gather merges the ready paths among the lanes of set that are at the same place.
func (w *warp) gather(set uint32) {
	for i := 0; i < len(w.paths); i++ {
		if p := w.paths[i]; p.wait != ready || p.mask&set == 0 {
			continue
		}
		for k := i + 1; k < len(w.paths); {
			q := &w.paths[k]
			if q.wait != ready || q.pc != w.paths[i].pc || q.frame != w.paths[i].frame {
				k++
				continue
			}
			p, o := w.paths[i], *q
			w.paths = append(w.paths[:k], w.paths[k+1:]...)
			w.merge(&p, &o) // may append paths
			w.paths[i] = p
		}
	}
}
