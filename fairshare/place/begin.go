package place

import (
	"cmp"
	"slices"
	"time"

	"vgpud/fairshare"
)

// lookahead is the time in seconds that a guest's memory is charged ahead when guests are ordered.
// So one that has just begun a task comes behind one that has used as much and holds nothing.
const lookahead = 1.0

// Begin appends to as what is to be done at now, in order: tasks that grow, move, leave and begin.
// Callers call it after other calls, and when [Queue.Next] says so.
func (q *Queue) Begin(now time.Duration, as []Action) []Action {
	as = q.refuse(now, as)
	as = q.grow(now, as)
	return q.begin(now, as)
}

// begin starts waiting tasks.
func (q *Queue) begin(now time.Duration, as []Action) []Action {
	q.sort(now)
	most := q.measure()
	q.unfit = q.unfit[:0]
	rest := q.order
	for len(rest) > 0 {
		g := rest[0]
		if g.cursor == len(g.waiting) {
			rest = rest[1:]
			continue
		}
		t := g.waiting[g.cursor]
		if t.kept >= 0 && !q.could(t.kept, g, t.req.Memory) {
			q.unkeep(t) // guests outside of the queue have that GPU by now
			most = q.measure()
		}
		gpu, ok := -1, false
		if t.req.Memory <= most || t.kept >= 0 {
			gpu, ok = q.place(t)
		}
		if ok && len(q.unfit) > 0 && q.ahead(g, q.unfit[0]) {
			q.keepSomewhere(q.unfit[0])
			most = q.measure()
			gpu, ok = q.place(t)
		}
		if !ok {
			if first := len(q.unfit) == 0; first || g.Urgent {
				as = q.makeRoom(now, t, as)
				if first && t.kept < 0 && t.passed && now-t.passedAt >= q.cfg.Patience {
					q.keepSomewhere(t)
				}
				most = q.measure()
			}
			q.unfit = append(q.unfit, t)
			g.cursor++
			continue
		}
		if len(q.unfit) > 0 {
			q.pass(now, q.unfit[0])
		}
		q.unwait(now, t)
		q.put(now, t, gpu)
		as = append(as, Action{Kind: Begin, Task: t.id, GPU: gpu, Memory: t.grant})
		most = q.measure()
		// The guest may come behind others now.
		g.key = g.order()
		for i := 1; i < len(rest) && before(rest[i], rest[i-1]); i++ {
			rest[i], rest[i-1] = rest[i-1], rest[i]
		}
	}
	q.order = slices.DeleteFunc(q.order, func(g *guest) bool { return len(g.waiting) == 0 })
	return as
}

// pass notes that a task began which is behind t, the first that does not fit.
func (q *Queue) pass(now time.Duration, t *task) {
	t.passedBy++
	if t.kept >= 0 {
		return // with what is not kept for it
	}
	if !t.passed {
		t.passed, t.passedAt = true, now
	}
	q.passed = max(q.passed, now-t.passedAt)
}

// Passed returns for how long a task was passed at most, until memory was kept for it.
func (q *Queue) Passed() time.Duration { return q.passed }

// ahead reports whether a guest has used so much more than that of t, for which no memory is kept,
// that it must not pass t: as much as t would have used in the time that others may pass it.
func (q *Queue) ahead(g *guest, t *task) bool {
	return t.kept < 0 && g != t.guest && g.Urgent == t.guest.Urgent &&
		g.used-t.guest.used > float64(t.req.Memory)*q.cfg.Patience.Seconds()/t.guest.Weight
}

// keepSomewhere keeps memory for a task on the GPU where least is kept for others, then where most
// is free.
func (q *Queue) keepSomewhere(t *task) {
	best := -1
	var kept, free uint64
	for i := range q.gpus {
		if !q.could(i, t.guest, t.req.Memory) {
			continue
		}
		k, f := q.keptFor(i, nil), q.gpus[i].Free()
		if best < 0 || k < kept || k == kept && f > free {
			best, kept, free = i, k, f
		}
	}
	if best >= 0 {
		q.keep(t, best)
	}
}

// keptFor returns the bytes that are kept on a GPU for tasks before t, or for all if t has none
// there.
func (q *Queue) keptFor(gpu int, t *task) (sum uint64) {
	for _, o := range q.kept[gpu] {
		if o == t {
			break
		}
		sum += o.req.Memory
	}
	return sum
}

// measure updates what tasks may begin with on each GPU, and returns the most.
func (q *Queue) measure() (most uint64) {
	for i := range q.gpus {
		free, kept := q.gpus[i].Free(), q.keptFor(i, nil)
		q.avail[i] = free - min(free, kept)
		most = max(most, q.avail[i])
	}
	return most
}

// place returns the GPU on which a task can begin now.
func (q *Queue) place(t *task) (int, bool) {
	var may Set
	g := t.guest
	for i := range q.gpus {
		avail := q.avail[i]
		if t.kept == i {
			free, kept := q.gpus[i].Free(), q.keptFor(i, t)
			avail = free - min(free, kept)
		} else if q.tracked && len(q.kept[i]) > 0 {
			continue // what is kept are SMs as well
		}
		if t.req.Memory <= avail && g.GPUs.Has(i) && q.guaranteed(i, t) {
			may = may.With(i)
		}
	}
	if may == 0 {
		return -1, false
	}
	return q.cfg.Placer.Place(q.gpus, may, &t.req)
}

// guaranteed reports whether a GPU has room for the guarantee of a task's guest.
func (q *Queue) guaranteed(i int, t *task) bool {
	g, d := t.guest, &q.gpus[i]
	if g.Guarantee == 0 || g.on[i] > 0 {
		return true
	}
	sum := d.PinnedGuarantee + d.guarantee + g.Guarantee
	for _, o := range q.kept[i] {
		if o == t {
			break
		}
		if o.guest != g && o.guest.on[i] == 0 {
			sum += o.guest.Guarantee
		}
	}
	return sum <= 1+slack
}

// order returns the guest's place in the order of guests.
func (g *guest) order() float64 { return g.used + float64(g.held)*lookahead/g.Weight }

// before reports whether guest a comes before b: the one that used less. Of several that used as
// much, the larger task comes first, which is harder to place, and then the older.
func before(a, b *guest) bool {
	if a.Urgent != b.Urgent {
		return a.Urgent
	}
	if a.key != b.key {
		return a.key < b.key
	}
	x, y := a.next(), b.next()
	if x == nil || y == nil {
		return x != nil
	}
	return cmp.Or(cmp.Compare(y.req.Memory, x.req.Memory), cmp.Compare(x.seq, y.seq)) < 0
}

// next returns the guest's next waiting task, or nil.
func (g *guest) next() *task {
	if g.cursor < len(g.waiting) {
		return g.waiting[g.cursor]
	}
	return nil
}

// sort sorts the guests that have waiting tasks. They are nearly sorted: only those that hold
// memory have moved.
func (q *Queue) sort(now time.Duration) {
	least := -1.0
	for _, g := range q.order {
		g.charge(now)
		g.key, g.cursor = g.order(), 0
		if least < 0 || g.used < least {
			least = g.used
		}
	}
	q.reached = max(q.reached, least)
	for i := 1; i < len(q.order); i++ {
		for j := i; j > 0 && before(q.order[j], q.order[j-1]); j-- {
			q.order[j], q.order[j-1] = q.order[j-1], q.order[j]
		}
	}
}

// join brings a guest that waits again up to the others. If it wanted no more for long, it saves
// nothing from that time, and otherwise as much as its limit in that time.
func (q *Queue) join(now time.Duration, g *guest) {
	g.charge(now)
	switch pause := now - g.waited; {
	case pause > q.cfg.Patience:
		g.used = max(g.used, q.reached)
	case pause > shortPause:
		g.used = max(g.used, q.reached-float64(g.Memory)*q.cfg.Patience.Seconds()/g.Weight)
	}
}

// shortPause is how long a guest may take to submit its next task and still keep all that it lacks.
const shortPause = time.Second

// Next returns when Begin is to be called at the latest, if nothing else happens. ok reports
// whether it has to be called at all.
func (q *Queue) Next(now time.Duration) (at time.Duration, ok bool) {
	soonest := func(t time.Duration) {
		if t = max(t, now); !ok || t < at {
			at, ok = t, true
		}
	}
	for _, t := range q.growing {
		soonest(q.leavesAt(t, t.since+q.cfg.Patience))
	}
	if len(q.unfit) > 0 {
		if t := q.unfit[0]; t.state == Waiting && t.passed && t.kept < 0 {
			soonest(t.passedAt + q.cfg.Patience)
		}
		for i := range q.gpus {
			for _, t := range q.gpus[i].tasks {
				if at := q.leavesAt(t, t.quietSince+q.cfg.Idle); t.quiet && t.state == Placed && at > now {
					soonest(at)
				}
			}
		}
	}
	return at, ok
}

// Used returns what a guest used so far: bytes times seconds divided by its weight.
func (q *Queue) Used(now time.Duration, id fairshare.GuestID) float64 {
	g := q.guests[id]
	if g == nil {
		return 0
	}
	g.charge(now)
	return g.used
}
