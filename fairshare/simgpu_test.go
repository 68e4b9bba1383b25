package fairshare_test

import (
	"math/rand/v2"
	"time"

	"vgpud/fairshare"
)

// simGuest is a guest of simGPU. It keeps launching kernels of about one length.
type simGuest struct {
	id          fairshare.GuestID
	weight      float64
	quota       fairshare.Quota
	length      time.Duration // of its kernels
	think       time.Duration // between a completion and the next launch; 0: always backlogged
	ready       time.Duration // when its next kernel arrives, if it thinks
	pretend     bool          // whether it shows work while it thinks
	stalls      float64       // part of its kernels after which the next, which waits, is late by stall
	stall, late time.Duration // until when it is late
	idled       time.Duration // time in which the GPU was idle and it was late
	suspended   bool
	suspensions int  // times that it was suspended
	attached    bool // whether it is attached and wants the GPU
	used        time.Duration
	noWork      time.Duration
	toldUsed    time.Duration // used, up to the newest event
	toldNoWork  time.Duration // time without work, up to the newest event
	spans       uint64
	requests    fairshare.Requests
	asked       bool // since the policy was last asked, of the GPU
}

// simGPU runs guests' kernels round-robin without preemption, and reports rounds to a policy as the
// mediator would: with exact times in polling phases, and in quiet phases if measured is set.
type simGPU struct {
	now      time.Duration
	guests   []*simGuest
	turn     int
	left     time.Duration // of the kernel that executes
	running  *simGuest
	idle     time.Duration
	idled    time.Duration // idle, up to the newest event
	policy   fairshare.Policy
	measured bool
	rand     *rand.Rand
	ask      time.Duration // when the policy wants to be called again; 0: at the next event

	suspensions int
	state       fairshare.State
}

const (
	simPoll  = 4 * time.Millisecond
	simQuiet = 20 * time.Millisecond
)

func newSim(policy string, measured bool, seed uint64, guests ...*simGuest) *simGPU {
	p, err := fairshare.New(policy, fairshare.Options{})
	if err != nil {
		panic(err)
	}
	s := &simGPU{policy: fairshare.Bound(p), measured: measured, rand: rand.New(rand.NewPCG(seed, 2))}
	for i, g := range guests {
		g.id, g.attached = fairshare.GuestID(i+1), true
		s.guests = append(s.guests, g)
	}
	return s
}

// wants reports whether g has work at the present instant.
func (s *simGPU) wants(g *simGuest) bool { return g == s.running || g.attached && g.ready <= s.now }

// run executes until t, and calls the policy whenever it wants to be called.
func (s *simGPU) run(t time.Duration) {
	for s.ask > 0 && s.ask <= t {
		s.execute(s.ask)
		s.ask = 0
		s.state.Guests = s.state.Guests[:0]
		for _, g := range s.guests {
			s.state.Guests = append(s.state.Guests, fairshare.Guest{ID: g.id, Weight: g.weight, Quota: g.quota, Backlogged: s.wants(g), Active: s.wants(g), Running: g == s.running, Suspended: g.suspended})
		}
		s.tell(fairshare.Event{Kind: fairshare.Tick})
	}
	s.execute(t)
}

// tell calls the policy with s.state and applies its verdicts.
func (s *simGPU) tell(ev fairshare.Event) {
	for i, g := range s.guests {
		g.requests.UnderWay, g.requests.Calls = g == s.running, g.requests.Completed
		s.state.Guests[i].Requests = g.requests
		g.asked = false
	}
	verdicts, next := s.policy.Decide(s.now, ev, s.state)
	if s.ask = 0; next > 0 {
		s.ask = s.now + next
	}
	s.carryOut(verdicts)
}

// execute executes until t.
func (s *simGPU) execute(t time.Duration) {
	for s.now < t {
		if s.running == nil {
			s.dispatch()
		}
		step := t - s.now
		if s.running != nil {
			step = min(step, s.left)
		}
		for _, g := range s.guests {
			for _, at := range [...]time.Duration{g.ready, g.late} {
				if g != s.running && g.attached && at > s.now {
					step = min(step, at-s.now)
				}
			}
		}
		for _, g := range s.guests {
			if !s.wants(g) {
				g.noWork += step
			} else if s.running == nil && g.late > s.now {
				g.idled += step
			}
		}
		s.now += step
		if s.running == nil {
			s.idle += step
			continue
		}
		s.running.used += step
		if s.left -= step; s.left == 0 {
			s.running.ready = s.now + s.running.think
			if s.running.stalls > 0 && s.rand.Float64() < s.running.stalls {
				s.running.late = s.running.ready + s.running.stall
			}
			s.running.requests.Completed++
			s.running = nil
		}
	}
}

func (s *simGPU) dispatch() {
	for range s.guests {
		s.turn = (s.turn + 1) % len(s.guests)
		if g := s.guests[s.turn]; g.attached && !g.suspended && max(g.ready, g.late) <= s.now {
			s.running = g
			s.left = time.Duration(float64(g.length) * (0.95 + 0.1*s.rand.Float64()))
			g.spans++
			if !g.asked {
				g.asked, g.requests.First = true, s.now
			}
			return
		}
	}
}

// phase reports to the policy a phase that has just ended.
func (s *simGPU) phase(kind fairshare.PhaseKind, length, watched time.Duration, seen bool) {
	s.state.Guests = s.state.Guests[:0]
	s.state.Round = simPoll + simQuiet
	idle := s.idle - s.idled
	s.idled = s.idle
	for _, g := range s.guests {
		used, noWork := g.used-g.toldUsed, g.noWork-g.toldNoWork
		g.toldUsed, g.toldNoWork = g.used, g.noWork
		st := fairshare.Guest{ID: g.id, Weight: g.weight, Quota: g.quota, Runs: g.spans, NoWork: noWork, Active: noWork < length, Backlogged: s.wants(g),
			Running: g == s.running, Suspended: g.suspended}
		g.spans = 0
		switch {
		case seen:
			st.Used, st.Idle = used, idle
		case g.suspended:
			st.Late = used
		}
		if g.pretend {
			st.NoWork, st.Active, st.Backlogged = 0, true, true
		}
		s.state.Guests = append(s.state.Guests, st)
	}
	s.tell(fairshare.Event{Kind: fairshare.Tick, Phase: kind, Length: length, Watched: watched})
}

func (s *simGPU) carryOut(verdicts []fairshare.Verdict) {
	for _, v := range verdicts {
		for _, g := range s.guests {
			if g.id != v.Guest {
				continue
			}
			suspended := v.Action == fairshare.Suspend
			if suspended && !g.suspended {
				s.suspensions++
				g.suspensions++
			}
			g.suspended = suspended
		}
	}
}

// changed reports to the policy that the set of guests has changed.
func (s *simGPU) changed(g *simGuest) {
	s.state.Guests = s.state.Guests[:0]
	for _, g := range s.guests {
		s.state.Guests = append(s.state.Guests, fairshare.Guest{ID: g.id, Weight: g.weight, Quota: g.quota, Backlogged: s.wants(g), Active: s.wants(g), Suspended: g.suspended})
	}
	s.tell(fairshare.Event{Kind: fairshare.Changed, Guest: g.id})
}

// round runs one polling and one quiet phase.
func (s *simGPU) round() {
	around := func(d time.Duration) time.Duration {
		return time.Duration(float64(d) * (0.75 + 0.5*s.rand.Float64()))
	}
	poll, quiet := around(simPoll), around(simQuiet)
	s.run(s.now + poll)
	s.phase(fairshare.PollPhase, poll, poll, true)
	s.run(s.now + quiet)
	if s.measured {
		s.phase(fairshare.QuietPhase, quiet, quiet, true)
	} else {
		s.phase(fairshare.QuietPhase, quiet, 0, false)
	}
}

// use runs f and returns the fractions of its time that each guest used and in which each had no
// work.
func (s *simGPU) use(f func()) (used, noWork []float64) {
	start := s.now
	before := make([][2]time.Duration, len(s.guests))
	for i, g := range s.guests {
		before[i] = [2]time.Duration{g.used, g.noWork}
	}
	f()
	length := float64(s.now - start)
	for i, g := range s.guests {
		used = append(used, float64(g.used-before[i][0])/length)
		noWork = append(noWork, float64(g.noWork-before[i][1])/length)
	}
	return used, noWork
}

// rounds runs for about the given time.
func (s *simGPU) rounds(d time.Duration) func() {
	return func() {
		for end := s.now + d; s.now < end; {
			s.round()
		}
	}
}

func (s *simGPU) weights() (w []float64) {
	for _, g := range s.guests {
		w = append(w, g.weight)
	}
	return w
}
