package scheduler

import (
	"time"

	"vgpud/accounting"
	"vgpud/fairshare"
	"vgpud/fairshare/quota"
	"vgpud/mediator/ipc"
)

// PollEnded implements [accounting.Handler]: it charges the guests for a polling phase and for the
// quiet time before it, and asks the policy.
func (s *Scheduler) PollEnded(p *accounting.Phase) (plan accounting.Plan) {
	s.locked(func(guests []*Guest) {
		s.readLaunches(guests)
		s.observe(guests, p)
		s.settleEvictions()
		waiting := s.tally.unwatched
		late := s.observeTails(guests, 0)
		scale := s.tally.polled(p, late, s.suspendedUse())
		s.charge(guests, scale, p.Length()+waiting-s.tally.unwatched)
		s.updateShares(guests) // with what the quiet phase before added
		changed := s.decide(guests, fairshare.Event{
			Kind: fairshare.Tick, Phase: fairshare.PollPhase, Length: p.Length(), Watched: p.Length(), Spread: s.spread,
		})
		plan = accounting.Plan{Load: s.load, Await: s.awaited(guests), Pace: s.pace(p.Length())}
		if changed && s.gpu.Watch.Piece < 0 {
			// For a while the mix is neither the one that was polled nor the one that will be.
			// Pieces that are spread over the round show it anyway.
			plan.WatchOn, _ = s.planner.Mean(s.load)
		}
	})
	return plan
}

// QuietEnded implements [accounting.Handler]: it charges the guests for what was seen of a quiet
// phase, and asks the policy.
func (s *Scheduler) QuietEnded(q *accounting.Quiet) {
	s.locked(func(guests []*Guest) {
		s.spread = q.Spread
		s.tally.quieted(q)
		s.readLaunches(guests)
		s.observeOf(guests, &q.Watched, q.Length(), !q.Spread)
		s.settleEvictions()
		waiting := s.tally.unwatched
		s.tally.know(s.observeTails(guests, q.Unwatched))
		s.charge(guests, 1, q.Watched.Length()+waiting-s.tally.unwatched)
		s.decide(guests, fairshare.Event{
			Kind: fairshare.Tick, Phase: fairshare.QuietPhase, Length: q.Length(), Watched: q.Watched.Length(), Spread: s.spread,
		})
	})
}

// observe fills s.state with what was seen of the guests in a phase.
//
// Preconditions: s.roster and s.mu are held.
func (s *Scheduler) observe(guests []*Guest, p *accounting.Phase) {
	s.observeOf(guests, p, p.Length(), true)
}

// observeOf is observe for a phase of some length of which p was watched. last says whether kernels
// that ended since are no news to another phase that covers the same time.
//
// Preconditions: s.roster and s.mu are held.
func (s *Scheduler) observeOf(guests []*Guest, p *accounting.Phase, length time.Duration, last bool) {
	now := s.o.Clock.Now()
	s.state = s.state[:0]
	s.load = accounting.Load{}
	s.look.begin(len(guests))
	for i, g := range guests {
		if g.page != nil && s.look.includes(i) {
			g.page.lookAgain()
		}
	}
	s.claimGroups(guests)
	for _, g := range guests {
		a, r, orders := g.o.Executors.Activity(now), &g.recent, g.current()
		terms := g.limit(orders.Terms)
		r.late, r.executed, r.outstanding = a.Counters.LateTime, a.Counters.GPUTime, a.Outstanding
		s.state = append(s.state, fairshare.Guest{
			ID: g.id, Key: g.o.Key, Suspended: orders.Suspend, Held: g.sanction == quota.Held, Weight: terms.Weight, Idle: p.Idle,
			Quota: fairshare.Quota{Cap: terms.Cap, Guarantee: terms.Guarantee}, Groups: a.Working, Urgency: terms.PriorityCeiling,
		})
		st := &s.state[len(s.state)-1]
		s.usedIn(p, g, st)
		s.load.Allocated += a.Grouped
		if length > 0 {
			worked := unknown
			if a.Contexts == 1 {
				worked = a.Worked
			}
			r.observe(now, worked, length)
			if !st.Suspended { // else commands wait that don't count as work
				st.NoWork = time.Duration(r.idle * float64(length))
			}
		}
		st.Requests = r.requests(now, &a)
		st.Backlogged = a.Backlog || a.Outstanding > 0
		st.Active = st.Backlogged || st.Used > 0 || a.Counters.Kernels != r.kernels
		if p.Length() > 0 && last {
			r.kernels = a.Counters.Kernels
		}
		if st.Active {
			r.active = now
		}
		if now-r.active < stayActive {
			s.load.Active++
		}
	}
	s.leftIn(p)
}

// observeTails computes how long suspended guests' commands ran on while nobody watched, which is
// known when they end, and returns the sum. unwatched is how long nobody watched since the last
// call.
//
// Preconditions: s.roster and s.mu are held.
func (s *Scheduler) observeTails(guests []*Guest, unwatched time.Duration) (late time.Duration) {
	for i, g := range guests {
		st := &s.state[i]
		ran := g.recent.tail.observe(st.Suspended, g.recent.late, st.Used, unwatched)
		if s.spread {
			continue // the pieces of the polling phase show it
		}
		st.Late = ran
		late += ran
	}
	return late
}

// suspendedUse returns how long suspended guests executed in a phase, which says nothing about the
// quiet time.
//
// Preconditions: s.mu is held.
func (s *Scheduler) suspendedUse() (sum time.Duration) {
	if s.spread {
		return 0
	}
	for i := range s.state {
		if s.state[i].Suspended {
			sum += s.state[i].Used
		}
	}
	return sum
}

// charge bills the guests for what observe and observeTails saw: the watched time of a guest that
// was not suspended stands for scale times as much, and all of it for elapsed.
//
// Preconditions: s.roster and s.mu are held.
func (s *Scheduler) charge(guests []*Guest, scale float64, elapsed time.Duration) {
	keep := decay(elapsed)
	interval := time.Duration(0)
	if !s.gpu.ByExecutors {
		interval = s.planner.Interval(s.load)
	}
	for i, g := range guests {
		st := &s.state[i]
		bill := float64(st.Used)
		if !st.Suspended || s.spread {
			bill *= scale
		}
		part := bill / float64(max(elapsed, 1))
		bill += float64(st.Late)
		used := g.charge(time.Duration(bill), g.recent.executed)
		g.variance += quota.Sampled(time.Duration(bill), interval, part).Variance
		s.chargeBudget(g, st, used, keep)
		g.recent.used = keep*g.recent.used + bill
		g.recent.elapsed = keep*g.recent.elapsed + float64(elapsed)
	}
}

// chargeBudget charges a guest's budgets up to what it was charged in all, and applies what they
// mean to the decision that follows. keep is how much of what came before the phase still counts.
//
// Preconditions: s.mu is held.
func (s *Scheduler) chargeBudget(g *Guest, st *fairshare.Guest, used time.Duration, keep float64) {
	if g.o.Budget == nil {
		return
	}
	was := g.sanction
	if g.setSanction(g.o.Budget.Charge(g.measured(used), s.coming(g, keep))); g.sanction == was {
		return
	}
	t := g.bounded()
	st.Held, st.Weight, st.Urgency, st.Quota.Guarantee = g.sanction == quota.Held, t.Weight, t.PriorityCeiling, t.Guarantee
}

// measured returns all GPU time that a guest ever used, of which it was charged used.
//
// Preconditions: the scheduler's mu is held.
func (g *Guest) measured(used time.Duration) quota.Measured {
	return quota.Measured{Charged: used, Executed: g.recent.executed, Variance: g.variance}
}

// coming returns how much GPU time a guest will use if it is suspended now: that of the commands
// that it has on the GPU, if they are like its earlier ones. By the next decision a guest that has
// few just now may have as many as lately, of which keep still counts. Where commands can leave the
// GPU, or contexts be taken off it, they use no more than a round of it.
//
// Preconditions: s.mu is held.
func (s *Scheduler) coming(g *Guest, keep float64) time.Duration {
	r := &g.recent
	if r.kernels == 0 {
		return 0
	}
	mean := float64(r.executed) / float64(r.kernels)
	r.coming = max(mean*float64(r.outstanding), keep*r.coming)
	d := time.Duration(min(r.coming, float64(maxComing)))
	if s.launches.byKernel || s.gpu.Controllable {
		poll, quiet := s.planner.Mean(s.load)
		d = min(d, poll+quiet)
	}
	return d
}

// maxComing bounds what commands on the GPU are taken to use yet.
const maxComing = time.Hour

// shares are what updateShares divides by. They are reused.
type shares struct {
	fairshare.Divider
	weights, demands []float64
	quotas           []fairshare.Quota
}

// updateShares computes each guest's part of what all used lately, and what it is entitled to: by
// weight and quota among the active guests.
//
// Preconditions: s.roster and s.mu are held.
func (s *Scheduler) updateShares(guests []*Guest) {
	var total float64
	for _, g := range guests {
		total += g.recent.used
	}
	sh := &s.shares
	sh.weights, sh.demands, sh.quotas = sh.weights[:0], sh.demands[:0], sh.quotas[:0]
	for i := range s.state {
		st, demand := &s.state[i], 0.0
		if st.Active && !st.Held {
			demand = 1
		}
		sh.weights, sh.demands, sh.quotas = append(sh.weights, st.Weight), append(sh.demands, demand), append(sh.quotas, st.Quota)
	}
	entitled := sh.Entitlement(sh.weights, sh.demands, sh.quotas)
	for i, g := range guests {
		part := 0.0
		if total > 0 {
			part = g.recent.used / total
		}
		busy := 0.0
		if g.recent.elapsed > 0 {
			busy = min(g.recent.used/g.recent.elapsed, 1)
		}
		g.setShare(s.state[i].Active, part, entitled[i], busy)
	}
}

// decide asks the policy about an event and carries out its verdicts. It reports whether they
// changed who is suspended.
//
// Preconditions: s.roster and s.mu are held, and observe was called.
func (s *Scheduler) decide(guests []*Guest, ev fairshare.Event) (changed bool) {
	defer s.forgetRemoved()
	s.suspends, s.fresh = s.suspends[:0], s.fresh[:0]
	for i := range s.state {
		s.suspends, s.fresh = append(s.suspends, s.state[i].Suspended), append(s.fresh, false)
	}
	if s.over() {
		return false
	}
	if s.dropSlices {
		s.dropSlices = false
		for _, g := range guests {
			g.recent.slice = 0
		}
	}
	now := s.o.Clock.Now()
	poll, quiet := s.planner.Mean(s.load)
	props := &s.gpu.Properties
	var left []fairshare.Left
	if ev.Kind == fairshare.Tick {
		left, s.left = s.leftUse, s.left[:0]
	}
	verdicts, next := s.policy.Decide(now, ev, fairshare.State{
		Guests: s.state, Round: poll + quiet, Launches: s.launches.shown(now, uint32(props.SMs)),
		SMs: uint32(props.SMs), CoRuns: props.CoRuns, Slices: s.control().Slices, Left: left,
	})
	s.launches.timers.setPolicy(now, next)
	// A verdict that stands is given again, which also shows that the daemon is alive.
	for _, v := range verdicts {
		i, ok := indexOf(guests, v.Guest)
		switch {
		case !ok:
		case v.Action == fairshare.Suspend:
			s.suspends[i] = true
		case v.Action == fairshare.Resume:
			s.suspends[i] = false
		case v.Action == fairshare.Slice:
			guests[i].recent.slice = v.Slice
		}
	}
	s.noteReasons(guests, verdicts, now)
	for i, g := range guests {
		fresh := g.SetSuspended(s.suspends[i], now)
		s.controlContexts(g)
		s.announce(g, now)
		changed = changed || fresh
		s.fresh[i] = fresh && s.suspends[i]
	}
	s.openTurn(guests, now)
	s.carryOut(guests, verdicts, now)
	return changed
}

// awaited returns the channel groups whose commands have to leave the GPU before the guests that
// were suspended just now are really off it. Their time is charged exactly.
//
// Preconditions: s.roster and s.mu are held.
func (s *Scheduler) awaited(guests []*Guest) []accounting.GroupID {
	s.await = s.await[:0]
	for i, g := range guests {
		if s.fresh[i] && g.o.Executors.Activity(s.o.Clock.Now()).Outstanding > 0 {
			s.chargedGroups(g, func(id accounting.GroupID) { s.await = append(s.await, id) })
		}
	}
	return s.await
}

// pace returns how soon the next round is wanted, after one of a length in which observe has seen
// the guests and decide decided about them.
//
// Preconditions: s.roster and s.mu are held, and the caller is the watcher's goroutine.
func (s *Scheduler) pace(length time.Duration) accounting.Pace {
	recorded := s.mostRecorded
	s.mostRecorded = 0
	easy := accounting.Easy.Phase(s.gpu.Watch.Round)
	suspended, bounds := false, false
	for i := range s.state {
		// A budget that is spent may be so for weeks.
		suspended = suspended || s.suspends[i] && !s.state[i].Held
		bounds = bounds || s.state[i].Quota != (fairshare.Quota{})
	}
	switch {
	case time.Duration(recorded)*easy > ipc.WorkLogIntervals/2*length:
		return accounting.Brisk // executors may run out of room for their records
	case suspended:
		return accounting.Brisk // rounds end suspensions, also of guests that have nothing to do yet
	case s.load.Active == 0:
		return accounting.Easy
	case s.launches.byKernel, bounds:
		return accounting.Brisk
	case s.policyName == noPolicy, s.load.Active == 1:
		return accounting.Easy
	}
	return accounting.Brisk
}

// noPolicy is the name of the policy that decides nothing.
const noPolicy = "none"
