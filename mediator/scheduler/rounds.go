package scheduler

import (
	"time"

	"vgpud/accounting"
	"vgpud/fairshare"
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
		changed, suspended := s.decide(guests, fairshare.Event{
			Kind: fairshare.Tick, Phase: fairshare.PollPhase, Length: p.Length(), Watched: p.Length(), Spread: s.spread,
		})
		plan = accounting.Plan{Load: s.load, Await: s.awaited(guests, suspended), Pace: s.pace(guests, p.Length())}
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
	s.claimGroups(guests)
	for _, g := range guests {
		a, r, terms := g.o.Executors.Activity(now), &g.recent, g.Terms()
		r.late = a.Counters.LateTime
		st := fairshare.Guest{
			ID: g.id, Suspended: g.Suspended(), Weight: terms.Weight, Idle: p.Idle,
			Quota: fairshare.Quota{Cap: terms.Cap, Guarantee: terms.Guarantee}, Groups: a.Working, Urgency: terms.PriorityCeiling,
		}
		s.chargedGroups(g, func(id accounting.GroupID) {
			t := p.Of(id)
			st.Used += t.Busy
			st.Runs += t.Runs
			st.Running = st.Running || p.Running && p.Last == id
		})
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
		s.state = append(s.state, st)
	}
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
	for i, g := range guests {
		st := &s.state[i]
		bill := float64(st.Used)
		if !st.Suspended || s.spread {
			bill *= scale
		}
		bill += float64(st.Late)
		g.charge(time.Duration(bill))
		g.recent.used = keep*g.recent.used + bill
	}
	s.updateShares(guests)
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
	weights, demands, quotas := make([]float64, len(guests)), make([]float64, len(guests)), make([]fairshare.Quota, len(guests))
	for i := range s.state {
		weights[i], quotas[i] = s.state[i].Weight, s.state[i].Quota
		if s.state[i].Active {
			demands[i] = 1
		}
	}
	entitled := fairshare.Entitlement(weights, demands, quotas)
	for i, g := range guests {
		part := 0.0
		if total > 0 {
			part = g.recent.used / total
		}
		g.setShare(s.state[i].Active, part, entitled[i])
	}
}

// decide asks the policy about an event and carries out its verdicts. It reports whether they
// changed who is suspended, and for each guest whether it was suspended just now.
//
// Preconditions: s.roster and s.mu are held, and observe was called.
func (s *Scheduler) decide(guests []*Guest, ev fairshare.Event) (changed bool, suspended []bool) {
	defer s.forgetRemoved()
	suspended = make([]bool, len(guests))
	if s.over() {
		return false, suspended
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
	verdicts, next := s.policy.Decide(now, ev, fairshare.State{
		Guests: s.state, Round: poll + quiet, Launches: s.launches.shown(now, uint32(props.SMs)),
		SMs: uint32(props.SMs), CoRuns: props.CoRuns, Slices: s.control().Slices,
	})
	s.launches.timers.setPolicy(now, next)
	// A verdict that stands is given again, which also shows that the daemon is alive.
	for i := range s.state {
		suspended[i] = s.state[i].Suspended
	}
	for _, v := range verdicts {
		i, ok := indexOf(guests, v.Guest)
		switch {
		case !ok:
		case v.Action == fairshare.Suspend:
			suspended[i] = true
		case v.Action == fairshare.Resume:
			suspended[i] = false
		case v.Action == fairshare.Slice:
			guests[i].recent.slice = v.Slice
		}
	}
	for i, g := range guests {
		fresh := g.SetSuspended(suspended[i], now)
		s.controlContexts(g)
		changed = changed || fresh
		suspended[i] = fresh && suspended[i]
	}
	s.carryOut(guests, verdicts, now)
	return changed, suspended
}

// awaited returns the channel groups whose commands have to leave the GPU before the guests that
// were suspended just now are really off it. Their time is charged exactly.
//
// Preconditions: s.roster and s.mu are held.
func (s *Scheduler) awaited(guests []*Guest, suspended []bool) []accounting.GroupID {
	s.await = s.await[:0]
	for i, g := range guests {
		if suspended[i] && g.o.Executors.Activity(s.o.Clock.Now()).Outstanding > 0 {
			s.chargedGroups(g, func(id accounting.GroupID) { s.await = append(s.await, id) })
		}
	}
	return s.await
}

// pace returns how soon the next round is wanted, after one of a length in which observe has seen
// the guests and decide decided about them.
//
// Preconditions: s.roster and s.mu are held, and the caller is the watcher's goroutine.
func (s *Scheduler) pace(guests []*Guest, length time.Duration) accounting.Pace {
	recorded := s.mostRecorded
	s.mostRecorded = 0
	easy := accounting.Easy.Phase(s.gpu.Watch.Round)
	suspended, quota := false, false
	for i, g := range guests {
		suspended = suspended || g.Suspended()
		quota = quota || s.state[i].Quota != (fairshare.Quota{})
	}
	switch {
	case time.Duration(recorded)*easy > ipc.WorkLogIntervals/2*length:
		return accounting.Brisk // executors may run out of room for their records
	case suspended:
		return accounting.Brisk // rounds end suspensions, also of guests that have nothing to do yet
	case s.load.Active == 0:
		return accounting.Easy
	case s.launches.byKernel, quota:
		return accounting.Brisk
	case s.policyName == noPolicy, s.load.Active == 1:
		return accounting.Easy
	}
	return accounting.Brisk
}

// noPolicy is the name of the policy that decides nothing.
const noPolicy = "none"
