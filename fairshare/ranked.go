package fairshare

import (
	"math"
	"slices"
	"time"
)

// ranked are the policies by which one launch has the GPU at a time, chosen by rank: fifo, reorder,
// piv and hpf. They differ in how launches rank, and in which running launches a waiting one
// displaces.
//
// The queues of the papers are the state's waiting launches: a launch is in them from the state
// that first has it until it runs, and again when it has left the GPU. So none is lost, whatever
// becomes of a verdict.
//
// All of them do the following, on which the papers are silent:
//
//   - The GPU is free for the next launch as soon as the running ones were told to leave it. Both verdicts are given together, and the hardware starts the one as the other's blocks drain.
//   - A launch that can't be evicted runs on, and a more urgent one gets the GPU beside it, where the hardware has them take turns ([Options].Alone: it waits). One that is no more urgent waits.
//   - If a guest has caused so many evictions that it may not cause another yet, its launch waits until it may.
//   - If launches run side by side without a verdict, those that the best of them displaces are evicted for it. Each executor lets its own guest's launches run while the daemon is silent.
//   - If launches are evicted for more urgent ones (piv and hpf), and a more urgent one is likely to come in a moment, the GPU is kept free for it; see anticipation.
//
// Kernel slicing needs no policy of its own: it is these policies with [Options].Alone, and the
// slices as launches that can't be evicted.
type ranked struct {
	launchPolicy
	book      launchTable[rankedLaunch]
	options   Options
	before    func(a, b entry) bool
	displaces func(waiting, running entry) bool
	// expects keeps the GPU free for a guest before a less urgent one gets it; nil: never.
	expects *anticipation
	broke   []GuestID // guests that may not cause the eviction they want now
	holder  GuestID   // the guest that has the GPU, or had it last; 0: none
	open    Turn
	// handsOver reports whether the next launch is let run shortly before the running one ends.
	handsOver bool
}

// entry is a launch with its times.
type entry struct {
	*Launch
	*triplet
}

// rankedLaunch is what the policy knows of a launch.
type rankedLaunch struct {
	triplet
	early bool // it was let run while another one was about to end
	// before is its Used when it was let run, and queued how much of what was added since is the time
	// that it then waited for the other one.
	before, queued time.Duration
}

// newFIFO returns the policy of the hardware alone: a launch runs to completion, and the next is
// the one that arrived first.
func newFIFO(o Options) *ranked {
	return &ranked{launchPolicy: launchPolicy{evictions: newEvictions(o.Evictions)}, options: o, before: never, displaces: never}
}

// newReorder returns the baseline of FLEP §6.3.2: "When multiple kernels are in the wait queue,
// existing frameworks, despite providing no preemption support, can schedule shorter kernels to
// improve turnaround time." Priorities come first.
func newReorder(o Options) *ranked {
	p := newFIFO(o)
	p.before = urgentThenShort
	return p
}

func never(_, _ entry) bool { return false }

// anticipates makes the policy keep the GPU free for launches that are likely to come.
func (p *ranked) anticipates() {
	if !p.options.AtOnce {
		p.expects = new(anticipation)
	}
}

// Decide implements [Policy].
func (p *ranked) Decide(now time.Duration, ev Event, st State) ([]Verdict, time.Duration) {
	p.begin(now, &st)
	p.book.sync(st.Launches)
	p.times(now, &ev, &st)
	if p.expects != nil {
		p.expects.observe(now, &st)
	}
	next := p.schedule(now, &st)
	p.openTurn(&st)
	return p.verdicts, next
}

// keepsIdle implements idleKeeper.
func (p *ranked) keepsIdle() bool { return p.expects != nil && p.expects.waits() }

// takeKeptIdle implements idleKeeper.
func (p *ranked) takeKeptIdle(id GuestID) time.Duration {
	if p.expects == nil {
		return 0
	}
	return p.expects.charge(id)
}

// times updates the launches' times, in the cases of FLEP §5.1, and for new launches at any event.
func (p *ranked) times(now time.Duration, ev *Event, st *State) {
	all := ev.Kind == Arrived || ev.Kind == Evicted || ev.Kind == Finished
	for i := range st.Launches {
		if t := &p.book.of[i]; all || !t.known {
			t.update(now, &st.Launches[i])
		}
	}
}

func (p *ranked) entry(st *State, i int) entry { return entry{&st.Launches[i], &p.book.of[i].triplet} }

// schedule lets the first waiting launch in rank run if the GPU is free or the launch displaces
// those that run.
func (p *ranked) schedule(now time.Duration, st *State) (next time.Duration) {
	p.broke = p.broke[:0]
	running := p.running(st)
	if running.n == 0 {
		head := p.head(st)
		if head < 0 {
			return 0
		}
		if p.expects != nil {
			if wait := p.expects.wait(now, st, &st.Launches[head]); wait > 0 {
				return wait
			}
		}
		p.let(st, head)
		return 0
	}
	for {
		head := p.head(st)
		if head < 0 {
			break
		}
		if !p.displaces(p.entry(st, head), p.entry(st, running.best)) {
			break
		}
		wait, ok := p.preempt(now, st, head)
		if ok {
			return 0
		}
		// Other guests' launches don't wait because of what this one's guest may not do.
		p.broke = append(p.broke, st.Launches[head].Guest)
		if wait > 0 && (next == 0 || wait < next) {
			next = wait
		}
	}
	if l := &st.Launches[running.best]; running.n == 1 && l.BelowSM > 0 {
		p.run(l) // the launch that it left SMs to is gone
	}
	if running.n == 1 {
		if wait := p.handOver(st, running.best); wait > 0 && (next == 0 || wait < next) {
			next = wait
		}
	}
	if wait := p.clear(now, st, running.best); wait > 0 && (next == 0 || wait < next) {
		next = wait
	}
	return next
}

// clear evicts the running launches that the one at best, which runs too, displaces. A verdict lets
// none run beside them, but without the daemon executors do. The best may have come to the GPU behind
// the others, and would wait until they end. A launch that has left SMs runs beside it by a verdict.
// wait is the time until the best one's guest may cause that, 0 if that is not known or has been done.
func (p *ranked) clear(now time.Duration, st *State, best int) (wait time.Duration) {
	b := p.entry(st, best)
	for i := range st.Launches {
		l := &st.Launches[i]
		if i == best || !p.occupies(st, l) || !l.Evictable || l.BelowSM > 0 || !p.displaces(b, p.entry(st, i)) {
			continue
		}
		if p.book.of[i].early && l.Priority >= b.Priority {
			continue // the best one was about to end
		}
		if left, ok := p.take(now, b.Guest, 1); !ok {
			return left
		}
		p.evict(l, everywhere, b.Guest, SpatialNotConsidered)
	}
	return 0
}

// head returns the index of the first waiting launch in rank, or -1.
func (p *ranked) head(st *State) int {
	head := -1
	for i := range st.Launches {
		l := &st.Launches[i]
		if !p.waits(st, l) || slices.Contains(p.broke, l.Guest) {
			continue
		}
		if head < 0 || p.ranks(st, i, head) {
			head = i
		}
	}
	return head
}

// occupants are the launches that have the GPU and are to keep it: their number, and the index of
// the first in rank.
type occupants struct{ n, best int }

func (p *ranked) running(st *State) (o occupants) {
	for i := range st.Launches {
		if !p.occupies(st, &st.Launches[i]) {
			continue
		}
		if o.n == 0 || p.ranks(st, i, o.best) {
			o.best = i
		}
		o.n++
	}
	return o
}

// ranks reports whether the launch at one index ranks before the one at another.
func (p *ranked) ranks(st *State, i, than int) bool {
	return p.before(p.entry(st, i), p.entry(st, than))
}

// let lets the launch at an index run.
func (p *ranked) let(st *State, i int) {
	p.run(&st.Launches[i])
	if p.expects != nil {
		p.expects.let(st.Launches[i].Guest)
	}
	r := &p.book.of[i]
	r.running, r.early, r.before, r.queued = true, false, st.Launches[i].Used, 0
}

// preempt takes from the running launches what the launch at head needs, and lets it run. If its
// guest may not cause that, or a running launch can't be evicted, it does nothing; wait is then the
// time until it may, if that is known.
func (p *ranked) preempt(now time.Duration, st *State, head int) (wait time.Duration, ok bool) {
	h := &st.Launches[head]
	victim, below, use := p.enough(st, h)
	if use == SpatialUseful {
		if v := &st.Launches[victim]; below > v.BelowSM {
			if wait, ok = p.take(now, h.Guest, 1); !ok {
				return wait, false
			}
			p.evict(v, below, h.Guest, use)
		}
		p.let(st, head)
		return 0, true
	}
	leave := 0
	for i := range st.Launches {
		l := &st.Launches[i]
		switch {
		case !p.occupies(st, l):
		case l.Evictable:
			leave++
		case p.options.Alone || l.Priority >= h.Priority:
			return 0, false
		}
	}
	if leave > 0 {
		if wait, ok = p.take(now, h.Guest, leave); !ok {
			return wait, false
		}
	}
	for i := range st.Launches {
		if l := &st.Launches[i]; p.occupies(st, l) && l.Evictable {
			p.evict(l, everywhere, h.Guest, use)
		}
	}
	p.let(st, head)
	return 0, true
}

// enough returns the launch to be evicted from some SMs, and the bound that leaves h what it needs:
// "FLEP preempts just enough SMs to host all CTAs launched by the high-priority kernel" (FLEP
// §6.4), and the launches that run beside them. It is the launch that has the most SMs.
func (p *ranked) enough(st *State, h *Launch) (victim int, below uint32, use SpatialUse) {
	victim = -1
	var most uint64
	for i := range st.Launches {
		l := &st.Launches[i]
		if !p.occupies(st, l) {
			continue
		}
		n := uint64(st.sms(l))
		if n == 0 {
			n = math.MaxUint64
		}
		if l.Evictable && n >= most {
			victim, most = i, n
		}
	}
	if victim < 0 || p.options.Temporal {
		return victim, 0, SpatialNotConsidered
	}
	need := uint64(st.sms(h))
	known := need > 0
	for i := range st.Launches {
		l := &st.Launches[i]
		if !p.occupies(st, l) {
			continue
		}
		if !st.sideBySide(h, l) {
			return victim, 0, SpatialTakesTurns
		}
		if i != victim {
			n := st.sms(l)
			known = known && n > 0
			need += uint64(n)
		}
	}
	switch {
	case !known:
		return victim, 0, SpatialUnknown
	case need >= uint64(st.SMs):
		return victim, 0, SpatialNeedsAll
	}
	return victim, uint32(need), SpatialUseful
}
