package simt

// A warp's lanes run in lockstep as long as they agree on where to go. When
// they part at a branch, each way becomes a path, and the branch's immediate
// post-dominator a join: lanes that arrive there wait for the others, and go on
// together.
//
// Joins make things fast; they must not make them wait. A lane at a join may be
// the one that the rest of the warp is spinning for (it holds the lock), or that
// a barrier needs. So when a path has gone round a loop often enough, or nothing
// else of the warp can run, the lanes at a join are let go as a path of their
// own: the forward progress that Volta's independent thread scheduling promises.

// path is a set of lanes with one program counter.
type path struct {
	pc    int32
	mask  uint32
	spins int32
	frame *frame
	join  *join
	wait  waitKind
	bar   uint32 // waitBarrier, waitArrived: which
	arg   uint32 // waitWarp: the lanes to meet
	wake  uint64 // waitTime: %globaltimer
	res   *inst  // waitBarrier: the reduction to answer
}

// waitKind says what a path waits for.
type waitKind uint8

const (
	ready waitKind = iota
	waitBarrier
	waitArrived // at a barrier, for the warp's other lanes only
	waitWarp
	waitTime
)

// join is where lanes that parted meet again.
type join struct {
	pc     int32
	frame  *frame
	want   uint32 // lanes that may still come, those that are here included
	have   uint32 // lanes that are here
	parent *join  // where they meet others after that
}

// Rounds of a loop after which a path gives way, when a round weighs 1: one
// whose code could be waiting for another thread weighs spinWeight.
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

// part splits the running path: the lanes of taken go to target, the others on
// to next, and all meet at rpc, unless it is negative.
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

// arrive is what a path does where lanes may meet: the place before the
// instruction in question.
func arrive(w *warp, in *inst) {
	w.tally(-1, 0) // it is no instruction
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

// park makes the running path the last of the others.
func (w *warp) park(wait waitKind) *path {
	w.paths = append(w.paths, path{pc: w.pc, mask: w.mask, spins: w.spins, frame: w.frame, join: w.join, wait: wait})
	w.mask = 0
	return &w.paths[len(w.paths)-1]
}

// next finds a path to run when the running one has ended or waits. Without one
// the warp waits, or is done.
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

// release lets the lanes go that are at a join of any path, as a path of their
// own, and reports whether there were any.
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

// back notes a round of a loop. Every so often the path gives way to the warp's
// other lanes, and when there are none, the warp to the block's others.
func (w *warp) back(weight int32) {
	if w.spins += weight; w.spins < w.prog.patience {
		return
	}
	w.spins = 0
	w.giveWay()
}

func (w *warp) giveWay() {
	if len(w.paths) > 0 || w.join != nil {
		w.releaseFrom(w.join)
		for i := range w.paths {
			if w.paths[i].wait == ready { // the longest waiting: park appends
				w.park(ready)
				w.load(i)
				return
			}
		}
	}
	w.budget = 0
}

// leave takes lanes of the running path out of the warp for good. The caller
// looks for the next path if none of them stay.
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
	w.block.left(w, popcount(exiting))
}

// forget makes the joins from j up to end, which it leaves alone, expect lanes no
// more. Where that completes one, those that are there go on.
//
// A lane that a join wants and has not is in a path that leads to the join, or
// waits at one of its children. So one that has all it wants is pointed to by
// none, and free to be used again.
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

// merge adds path q to path p, which is at the same place of the same frame.
// They expect to meet others at the first join that both lead to.
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

// gather merges the ready paths of set, a mask of lanes, that are at the same
// place.
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
