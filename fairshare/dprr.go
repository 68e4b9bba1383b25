package fairshare

import "time"

const (
	// agePeriod is how long a launch waits in the active queue for its dynamic priority to rise by
	// one, and maxAge how far it rises (EffiSha §7): it "gets increased by one for every
	// millisecond the kernel waits in the active queue. The increase is capped at 20."
	agePeriod = time.Millisecond
	maxAge    = 20
)

// dynamicSlice returns how long a launch has the GPU at a time: "it is set to (p + 1)/2 ms, where p
// is the priority of the kernel", the dynamic one when it is scheduled. Priorities below 0, which
// the paper doesn't have, count as 0. The slice is at most a second.
func dynamicSlice(p int) time.Duration {
	return time.Duration(min(max(p, 0), 1999)+1) * time.Millisecond / 2
}

// aging is EffiSha's dynamic priority-based round-robin policy, dprr (§7).
//
// "It maintains two waiting queues, one active queue and one inactive queue. […] The dynamic
// priority of a kernel equals its initial (static) priority when that kernel just arrives, but gets
// increased by one for every millisecond the kernel waits in the active queue. The increase is
// capped at 20. In each of the two queues, kernels are ordered by their dynamic priorities. A new
// coming kernel is put into the active queue […]. Every time a kernel is scheduled to work, it gets
// a time slice […]. At the expiration of its time quota, the kernel goes into the inactive waiting
// queue and its dynamic priority is reset to its initial (static) priority. When a GPU becomes
// available, the scheduler chooses the head of the active waiting queue to run. When the active
// queue becomes empty, the two queues switch the role."
//
// So an arrival never preempts, and of the launches that are present each has its slice before any
// has its second. But while new ones keep the active queue from becoming empty, those whose slice
// is over wait: they may starve.
//
// Where the paper is silent: a slice begins when the GPU is the launch's, that is, when launches
// that were told to leave have left. Launches of one dynamic priority run in the order in which
// they came into their queue. If the launch whose slice is over would be chosen again, it stays and
// has another slice, since leaving the GPU only to return gains nothing. A launch that can't be
// evicted runs on.
type aging struct {
	launchPolicy
	book    launchTable[agingTurn]
	entries uint64 // number of entries into queues so far
	leaving bool   // whether an evicted launch had not left at the last call
	alone   bool   // whether no launch waited
}

// agingTurn is the record of a launch.
type agingTurn struct {
	known  bool
	active bool          // in which queue it is while it waits
	since  time.Duration // when it came into the active queue
	order  uint64        // of entry into its queue
	// scheduled reports whether it has the GPU by this policy's verdict. Then its slice began at
	// since.
	scheduled bool
	slice     time.Duration
}

func newAging(o Options) *aging {
	return &aging{launchPolicy: launchPolicy{evictions: newEvictions(o.Evictions)}}
}

// Decide implements [Policy].
func (p *aging) Decide(now time.Duration, _ Event, st State) ([]Verdict, time.Duration) {
	p.begin(now, &st)
	p.book.sync(st.Launches)
	p.admit(now, &st)
	p.renew(now, &st)
	next := p.schedule(now, &st)
	p.leaving, p.alone = false, true
	for i := range st.Launches {
		l := &st.Launches[i]
		p.leaving = p.leaving || l.Evicting
		p.alone = p.alone && !(p.waits(&st, l) && !p.book.of[i].scheduled)
	}
	for _, v := range p.verdicts {
		p.leaving = p.leaving || v.Action == Evict
	}
	return p.verdicts, next
}

// admit queues launches that are new, or have left the GPU.
func (p *aging) admit(now time.Duration, st *State) {
	leaving := p.leaving
	for i := range st.Launches {
		leaving = leaving || st.Launches[i].Evicting
	}
	for i := range st.Launches {
		l, t := &st.Launches[i], &p.book.of[i]
		switch {
		case !t.scheduled && l.Running && !l.Evicting:
			// It runs since another policy, or its eviction failed: it has a slice from now on.
			p.schedules(now, l, t)
		case !t.known:
			p.queue(now, t, true)
		case t.scheduled && !l.Running:
			// It left for another reason, or never ran: its slice is not over.
			p.queue(now, t, true)
		case t.scheduled && leaving:
			t.since = now
		}
		t.known = true
	}
}

// queue puts a launch into one of the queues.
func (p *aging) queue(now time.Duration, t *agingTurn, active bool) {
	p.entries++
	t.scheduled, t.active, t.since, t.order = false, active, now, p.entries
}

// schedules gives a launch the GPU for a slice.
func (p *aging) schedules(now time.Duration, l *Launch, t *agingTurn) {
	t.slice = dynamicSlice(t.priority(now, l))
	t.scheduled, t.active, t.since = true, false, now
}

// priority returns the dynamic priority of a launch that waits.
func (t *agingTurn) priority(now time.Duration, l *Launch) int {
	if !t.active {
		return l.Priority
	}
	return l.Priority + int(min((now-t.since)/agePeriod, maxAge))
}

// renew gives launches that had the GPU while no other waited the slices that they have had since.
func (p *aging) renew(now time.Duration, st *State) {
	if !p.alone {
		return
	}
	for i := range st.Launches {
		l, t := &st.Launches[i], &p.book.of[i]
		if over := now - t.since - t.slice; t.scheduled && over >= 0 {
			t.slice = dynamicSlice(l.Priority)
			t.since = now - over%t.slice
		}
	}
}

// schedule evicts launches whose slice is over, and lets the next one run.
func (p *aging) schedule(now time.Duration, st *State) (next time.Duration) {
	occupied := false
	for i := range st.Launches {
		l, t := &st.Launches[i], &p.book.of[i]
		if !t.scheduled || !p.occupies(st, l) {
			continue
		}
		left := t.slice - (now - t.since)
		if left <= 0 {
			var stays bool
			if left, stays = p.expire(now, st, i); !stays {
				continue
			}
		}
		occupied = true
		if left > 0 && (next == 0 || left < next) {
			next = left
		}
	}
	if occupied {
		return p.wake(st, next)
	}
	head := p.head(now, st, -1)
	if head < 0 {
		return 0
	}
	l, t := &st.Launches[head], &p.book.of[head]
	if !t.active {
		p.swap(now)
	}
	p.schedules(now, l, t)
	p.run(l)
	return p.wake(st, t.slice)
}

// wake returns when to call again: not for a slice's end if no launch waits for it.
func (p *aging) wake(st *State, next time.Duration) time.Duration {
	for i := range st.Launches {
		if p.waits(st, &st.Launches[i]) && !p.book.of[i].scheduled {
			return next
		}
	}
	return 0
}

// expire ends the slice of the launch at an index. stays reports whether it keeps the GPU, for
// left, or until another event if that is 0.
func (p *aging) expire(now time.Duration, st *State, i int) (left time.Duration, stays bool) {
	l, t := &st.Launches[i], &p.book.of[i]
	if !p.waiting(st, i) {
		return 0, true // renewed when a launch has come
	}
	if p.head(now, st, i) != i {
		if !l.Evictable {
			return 0, true
		}
		if wait, ok := p.take(now, l.Guest, 1); !ok {
			return wait, true
		}
		p.queue(now, t, false)
		p.evict(l, everywhere, l.Guest, SpatialNotConsidered)
		return 0, false
	}
	p.queue(now, t, false)
	p.swap(now)
	p.schedules(now, l, t)
	return t.slice, true
}

// waiting reports whether any launch but the one at an index could be let run.
func (p *aging) waiting(st *State, but int) bool {
	for i := range st.Launches {
		if i != but && p.waits(st, &st.Launches[i]) {
			return true
		}
	}
	return false
}

// head returns the index of the next launch, or -1: the first of the active queue, or of the
// inactive one if that is empty. The launch at over, whose slice is over, counts as the last of its
// priority in the inactive queue.
func (p *aging) head(now time.Duration, st *State, over int) int {
	head, active := -1, false
	var most int
	var order uint64
	for i := range st.Launches {
		l, t := &st.Launches[i], p.book.of[i]
		switch {
		case i == over:
			t.active, t.order = false, p.entries+1
		case !p.waits(st, l) || t.scheduled:
			continue
		}
		priority := t.priority(now, l)
		switch {
		case head < 0, t.active && !active:
		case active && !t.active:
			continue
		case priority < most, priority == most && t.order > order:
			continue
		}
		head, active, most, order = i, t.active, priority, t.order
	}
	return head
}

// swap makes the inactive queue the active one. Launches of suspended guests may still be in the
// active queue, and stay there.
func (p *aging) swap(now time.Duration) {
	for i := range p.book.of {
		if t := &p.book.of[i]; !t.scheduled && !t.active {
			t.active, t.since = true, now
		}
	}
}
