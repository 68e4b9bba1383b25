package fairshare

import (
	"math"
	"time"
)

const (
	// maxOverhead is max_overhead in FLEP's evaluation (§6.3.3): "max_overhead empirically selected
	// as 10%".
	maxOverhead = 0.1
	// maxDebt bounds how much a guest's excess over its epoch is held against it: the time of some
	// kernels that run as long as they may by default and can't be evicted. With less, such kernels
	// would pay off for their guest.
	maxDebt = time.Minute
)

// fairFirst is FLEP's fairness first scheduling under an overhead constraint, ffs (§5.2.2).
//
// "FFS implements weighted round-robin scheduling. In each round, a kernel i runs on the GPU for an
// epoch of length T × W_i, where W_i is the weight assigned to the kernel's priority and T is a
// parameter to control context switch frequency. […] FFS calculates the minimum value for T such
// that the following constraint holds": ΣO_i / (T·ΣW_i) ≤ max_overhead, so that T = ΣO_i /
// (max_overhead·ΣW_i), "where O_i represents the preemption overhead to preempt kernel i".
//
// Here guests take turns, by the weights that their operator gave them, so that none gets more of
// the GPU by launching more kernels at a time. O_i is the largest of a guest's launches'. In its
// epoch a guest's launches run one after the other: the more urgent first, then in order of
// arrival.
//
// Where the paper is silent:
//
//   - An epoch is time that the GPU was the guest's. The time that its launch takes to leave at the end is included, so the next epoch is shorter by that. The excess of a launch that can't be evicted is owed likewise.
//   - A guest that launches its next kernel only when the last is done would end its epoch with the first kernel. If it lately submitted again quickly, the GPU waits for it within its epoch: no longer than max_overhead of what the guest runs between two such gaps.
//   - The rest of an epoch that is not worth an eviction is kept for the next. Otherwise nothing is saved.
//   - A guest beside which none waits has one epoch after the other without leaving.
//   - The GPU also waits for the host between launches, and evictions may cost more than expected. If the length of launches is known, that loss is measured, and leaves less of max_overhead for evictions: see losses.
type fairFirst struct {
	launchPolicy
	overhead float64
	losses   losses
	accounts guestTable[epoch]
	turn     GuestID // the guest whose turn it is, or was last; 0: none
	payer    GuestID // the guest whose time it has been since the last call
	alone    bool    // whether no other guest waited
	last     time.Duration
	perUnit  float64 // T of this round, in nanoseconds for a weight of 1
	weights  float64 // ΣW that T is for
	open     Turn
	// ahead is [Options].HandOver, and tail the launch that ends while the next guest has its turn
	// already; 0: none.
	ahead time.Duration
	tail  LaunchID
}

// epoch is the record of a guest.
type epoch struct {
	guest  GuestID
	weight float64
	// credit is what is left of its epoch; below 0 it is what the guest owes.
	credit time.Duration
	// stretch is how long it has the GPU until it runs out of work, and gap how long it then takes
	// to submit again, both as recent means. stretched is the length of the present stretch.
	// emptied is since when it has had no work, if empty is set.
	stretch, gap, stretched, emptied time.Duration
	empty                            bool
	cost                             time.Duration // O_i: the largest of its launches', or of its last ones

	// By the newest state: the index of the next launch and of a running one, -1 for none; the
	// number of its launches, and of those of them that wait; and whether one of them is leaving.
	next, running, launches, waiting int
	leaving                          bool
}

func newFairFirst(o Options) *fairFirst {
	p := &fairFirst{launchPolicy: launchPolicy{evictions: newEvictions(o.Evictions)}, overhead: o.MaxOverhead, ahead: o.HandOver, losses: losses{had: lossPrior}}
	if p.overhead <= 0 {
		p.overhead = maxOverhead
	}
	return p
}

// Decide implements [Policy].
func (p *fairFirst) Decide(now time.Duration, ev Event, st State) ([]Verdict, time.Duration) {
	p.begin(now, &st)
	p.sync(&st)
	p.charge(now)
	p.losses.sync(ev, &st)
	p.survey(now, &st)
	next, holder := p.schedule(now, &st)
	p.findPayer(&st, holder)
	p.losses.served = p.serves(&st)
	p.openTurn(&st, holder)
	return p.verdicts, next
}

// sync follows the guests.
func (p *fairFirst) sync(st *State) {
	p.accounts.sync(st.Guests)
	for i := range st.Guests {
		e := &p.accounts.of[i]
		e.guest, e.weight = st.Guests[i].ID, max(st.Guests[i].Weight, 0)
	}
}

// survey updates what each guest has.
func (p *fairFirst) survey(now time.Duration, st *State) {
	for i := range p.accounts.of {
		e := &p.accounts.of[i]
		e.next, e.running, e.launches, e.waiting, e.leaving = -1, -1, 0, 0, false
	}
	for i := range st.Launches {
		l := &st.Launches[i]
		e := p.accounts.get(l.Guest)
		if e == nil {
			continue
		}
		if e.launches++; e.launches == 1 {
			e.cost = 0 // otherwise as it was with the last ones
		}
		e.cost = max(e.cost, l.cost())
		if p.waits(st, l) {
			e.waiting++
		}
		switch {
		case l.Evicting:
			e.leaving = true
		case p.occupies(st, l) && e.running < 0:
			e.running = i
		case p.waits(st, l) && (e.next < 0 || l.Priority > st.Launches[e.next].Priority):
			e.next = i
		}
	}
	for i := range p.accounts.of {
		switch e := &p.accounts.of[i]; {
		case e.launches == 0 && !e.empty:
			if e.stretch == 0 {
				e.stretch = e.stretched
			}
			if e.stretched > 0 {
				e.stretch = (e.stretch + e.stretched) / 2
			}
			e.empty, e.emptied = true, now
		case e.launches > 0 && e.empty:
			if e.stretch > 0 {
				e.gap = (e.gap + now - e.emptied) / 2
			}
			if now-e.emptied > -e.credit {
				e.credit = max(e.credit, 0) // it has paid its debt by waiting
			}
			e.empty, e.stretched = false, 0
		}
	}
}

// length finds T for the guests that have work, "the minimum value for T such that the constraint
// holds"; and such that in the long run no guest's turns end with more evictions than it may cause.
// T is constant in a round, unless other guests come.
func (p *fairFirst) length(first bool) {
	var costs, weights float64
	for i := range p.accounts.of {
		e := &p.accounts.of[i]
		if e.launches == 0 && e.guest != p.turn {
			continue
		}
		costs += float64(e.cost)
		weights += e.weight
	}
	if weights <= 0 || !first && weights <= p.weights {
		return
	}
	p.weights, p.perUnit = weights, costs/(p.losses.allowed(p.overhead)*weights)
	if rate := p.rate.PerSecond; rate > 0 {
		p.perUnit = max(p.perUnit, float64(time.Second)/(rate*weights))
	}
}

// epoch returns the length of a guest's epoch, T·W_i.
func (p *fairFirst) epoch(e *epoch) time.Duration {
	return max(time.Duration(math.Round(p.perUnit*e.weight)), 1)
}

// charge charges the time since the last call to the guest whose it was.
func (p *fairFirst) charge(now time.Duration) {
	passed := now - p.last
	p.last = now
	e := p.accounts.get(p.payer)
	if e == nil || passed <= 0 {
		return
	}
	p.losses.pass(passed, p.alone)
	e.stretched += passed
	e.credit = max(e.credit-passed, -maxDebt)
	if p.alone && e.credit <= 0 {
		// Nobody waited: it has had one epoch after the other.
		length := p.epoch(e)
		e.credit = length - (-e.credit)%length
	}
}

// schedule lets the guest whose turn it is have its epoch, and then the next one. holder is the
// guest that has the GPU from now on, whether it runs or the GPU waits for it.
func (p *fairFirst) schedule(now time.Duration, st *State) (next time.Duration, holder GuestID) {
	t := p.accounts.get(p.turn)
	if t == nil || t.running < 0 && t.next < 0 {
		// Guests that run since another policy have their turns first.
		for i := range p.accounts.of {
			if e := &p.accounts.of[i]; e.running >= 0 && !p.ends(&st.Launches[e.running]) {
				p.length(true)
				t, p.turn, e.credit = e, e.guest, p.epoch(e)
				break
			}
		}
	}
	p.clear(now, st)
	switch {
	case t == nil:
	case t.running >= 0:
		return p.runs(now, st, t)
	case t.next >= 0 && t.credit > t.cost:
		return p.let(st, t)
	case t.launches == 0 && p.contended(t):
		patience := time.Duration(p.overhead * float64(t.stretch))
		wait := t.emptied + patience - now
		if wait <= 0 || t.gap > patience {
			// It counts as slow until it has submitted again quickly a few times.
			t.gap = max(t.gap, 2*patience)
			break
		}
		if t.credit > t.cost {
			return min(wait, t.credit), t.guest
		}
		chosen := p.choose(t)
		if chosen == t {
			return min(wait, t.credit), t.guest // the others are in debt
		}
		return p.let(st, chosen)
	}
	chosen := p.choose(nil)
	if chosen == nil {
		return 0, 0
	}
	return p.let(st, chosen)
}

// runs decides about the guest whose turn it is while a launch of it runs.
func (p *fairFirst) runs(now time.Duration, st *State, t *epoch) (next time.Duration, holder GuestID) {
	l := &st.Launches[t.running]
	switch {
	case !p.contended(t):
		return 0, t.guest
	}
	soon, chosen := p.handOver(st, t, l)
	if chosen != nil {
		return p.let(st, chosen)
	}
	switch {
	case t.credit > 0:
		next = p.until(t)
		if soon > 0 {
			next = min(next, soon)
		}
		return next, t.guest
	case !l.Evictable:
		return soon, t.guest
	}
	if wait, ok := p.ready(now, l.Guest, 1); !ok {
		return wait, t.guest
	}
	chosen = p.choose(t)
	if chosen == t {
		return p.until(t), t.guest // the others are in debt
	}
	p.take(now, l.Guest, 1)
	p.losses.evict(t.running, l)
	for i := range st.Launches {
		// Those behind it have not begun, and cost no eviction of their own.
		if o := &st.Launches[i]; o.Guest == l.Guest && o.Evictable && p.occupies(st, o) {
			p.evict(o, everywhere, l.Guest, SpatialNotConsidered)
		}
	}
	t.running, t.leaving = -1, true
	return p.let(st, chosen)
}

// clear evicts launches that run out of turn: those that run since another policy, and those whose
// eviction failed.
func (p *fairFirst) clear(now time.Duration, st *State) {
	for i := range st.Launches {
		l := &st.Launches[i]
		if l.Guest == p.turn || p.ends(l) || !l.Evictable || !p.occupies(st, l) {
			continue
		}
		if _, ok := p.take(now, l.Guest, 1); ok {
			p.losses.evict(i, l)
			p.evict(l, everywhere, l.Guest, SpatialNotConsidered)
			if e := p.accounts.get(l.Guest); e != nil {
				e.running, e.leaving = -1, true
			}
		}
	}
}

// let lets the next launch of a guest run: it is its turn.
func (p *fairFirst) let(st *State, e *epoch) (next time.Duration, holder GuestID) {
	p.turn = e.guest
	p.run(&st.Launches[e.next])
	e.running, e.next = e.next, -1
	e.waiting--
	if !p.contended(e) {
		return 0, e.guest
	}
	return p.until(e), e.guest
}

// until returns the time until a guest's epoch is over, if that is known. It is not while the guest
// waits for launches to leave.
func (p *fairFirst) until(e *epoch) time.Duration {
	for i := range p.accounts.of {
		if p.accounts.of[i].leaving {
			return 0
		}
	}
	return max(e.credit, 1)
}

// contended reports whether a guest other than e has launches that wait.
func (p *fairFirst) contended(e *epoch) bool {
	for i := range p.accounts.of {
		if o := &p.accounts.of[i]; o != e && o.next >= 0 {
			return true
		}
	}
	return false
}

// choose gives the guest that is next in turn its epoch, or returns nil if there is none. Guests
// whose epoch is less than they owe, or not worth an eviction, are skipped, and have it the next
// time as well. present may be chosen without a waiting launch, as the last of all: a launch of it
// runs, or is expected.
func (p *fairFirst) choose(present *epoch) *epoch {
	n, start := len(p.accounts.of), len(p.accounts.of)
	for i := range p.accounts.of {
		if p.accounts.of[i].guest == p.turn {
			start = i + 1
		}
	}
	left := 0 // left in this round
	for i := start; i < n; i++ {
		if p.accounts.of[i].next >= 0 {
			left++
		}
	}
	p.length(left == 0)
	candidates := 0
	var last *epoch
	rounds := time.Duration(1) // until some guest has an epoch
	for i := range p.accounts.of {
		e := &p.accounts.of[i]
		if e.next < 0 && e != present {
			continue
		}
		e.credit = min(e.credit, e.cost)
		need := (e.cost-e.credit)/p.epoch(e) + 1
		if candidates == 0 || need < rounds {
			rounds = need
		}
		candidates++
		last = e
	}
	if candidates == 1 {
		// The guests that it owes have no work.
		last.credit = max(last.credit, 0) + p.epoch(last)
		return last
	}
	var chosen *epoch
	for k := range n {
		e := &p.accounts.of[(start+k)%n]
		if e.next < 0 && e != present {
			continue
		}
		passed := rounds - 1 // whole rounds in which all were skipped
		if chosen == nil {
			passed = rounds
		}
		e.credit += passed * p.epoch(e)
		if chosen == nil && e.credit > e.cost {
			chosen = e
		}
	}
	return chosen
}

// serves returns the launch whose time it is until the next call: the payer's leaving launch,
// otherwise its running one. It is 0 while the GPU waits for one.
func (p *fairFirst) serves(st *State) LaunchID {
	e := p.accounts.get(p.payer)
	switch {
	case e == nil:
		return 0
	case e.leaving:
		for i := range st.Launches {
			if l := &st.Launches[i]; l.Guest == e.guest && (l.Evicting || p.losses.leaving(i)) {
				return l.ID
			}
		}
	case e.running >= 0:
		return st.Launches[e.running].ID
	}
	return 0
}

// findPayer finds the guest whose time it is until the next call: the one with a leaving launch,
// otherwise the one whose epoch's last launch ends, or else the one that has the GPU.
func (p *fairFirst) findPayer(st *State, holder GuestID) {
	p.payer, p.alone = holder, true
	tail := p.tail
	p.tail = 0
	for i := range st.Launches {
		if l := &st.Launches[i]; l.ID == tail && p.occupies(st, l) {
			p.payer, p.alone, p.tail = l.Guest, false, tail
		}
	}
	for i := range p.accounts.of {
		e := &p.accounts.of[i]
		if e.leaving {
			p.payer = e.guest
		}
		if e.next >= 0 && e.guest != holder || e.leaving {
			p.alone = false
		}
	}
}
