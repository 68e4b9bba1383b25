package daemon

import (
	"fmt"
	"time"

	"vgpud/accounting"
	"vgpud/fairshare"
	"vgpud/gpu"
	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
	"vgpud/mediator/vgpu/abi"
)

// launching is what a share does about single launches, beside the rounds that it
// does about guests.
type launching struct {
	board     board
	evictions evictions
	ledger    fairshare.EvictionCharges
	foresight foresight
	// byKernel is whether launches wait for a verdict. turned is closed when that
	// has changed.
	byKernel bool
	turned   chan struct{}
	alarm    alarm
	// deadline is for how long a kernel may take to leave, 0 for ever.
	deadline time.Duration
	spin     spinner
	parties  []party
	present  []*guest // while something is made of their launches
}

// soon is after how long to look again for a launch that is to leave the GPU and
// was only on its way there.
const soon = 50 * time.Microsecond

// attendLaunches takes in what came of launches, and tells the policy of it, which
// decides after each. The caller holds mu.
func (s *share) attendLaunches(guests []*guest) {
	s.look(guests)
	for {
		ev, ok := s.launching.board.next()
		if !ok {
			return
		}
		// Where launches don't wait, a policy is asked at the ends of phases. Only
		// what it has taken off the GPU itself is news to it.
		if !s.launching.byKernel && ev.Kind != fairshare.Evicted {
			continue
		}
		s.observe(guests, &accounting.Phase{})
		s.decide(guests, ev)
	}
}

// look reads all stubs. The caller holds mu.
func (s *share) look(guests []*guest) {
	l := &s.launching
	l.parties = l.parties[:0]
	spins := s.spins()
	for _, g := range guests {
		mode, does := g.treated()
		if does != spins {
			g.treat(mode, spins)
		}
		l.parties = append(l.parties, party{
			guest: g.id, name: g.spec.Name, page: g.page,
			mode: mode, ceiling: g.termsNow().PriorityCeiling, limit: min(g.spec.KernelTimeLimit, longest),
		})
	}
	l.present = guests
	l.board.leaving = l.deadline
	l.board.look(s.clock.Now(), l.parties, s.happened)
	s.insist()
	s.watchTurns()
	l.present = nil
}

// watchTurns sees to it that a launch that does not go on is looked at in time. The
// caller holds mu.
func (s *share) watchTurns() {
	if at, ok := s.launching.board.nextDue(); ok {
		s.launching.lookBy(max(at, s.clock.Now()+notSoSoon))
	}
}

// notSoSoon is after how long to look again for something that should have been done
// with by now.
const notSoSoon = time.Millisecond

// lookBy has the board looked at by an instant.
func (l *launching) lookBy(at time.Duration) {
	if a := &l.alarm; a.look == 0 || at < a.look {
		a.again(at)
	}
}

// insist has launches leave that were to, and were only on their way to the GPU
// then. The caller holds mu.
func (s *share) insist() {
	now := s.clock.Now()
	late := false
	for _, r := range s.launching.board.rows {
		late = r.insist(now) || late
	}
	if late {
		s.launching.lookBy(now + soon)
	}
}

// setSpin changes how launches are waited for; guests are told with the next look at
// launches, and with the next decision.
func (s *share) setSpin(how string, polls time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.launching.spin.how, s.launching.spin.polls = how, polls
}

// setEvictionDeadline changes for how long a kernel may take to leave; 0 is for
// ever.
func (s *share) setEvictionDeadline(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.launching.deadline = d
}

// deadline is by when a launch that is told now to leave must have left, an
// instant; 0 is never. While others are on the GPU too it may have to wait until it
// is on, and sees that it is to leave: for each of them as long as a kernel of
// theirs may run. The caller holds mu.
func (s *share) deadline(r *row, now time.Duration) time.Duration {
	l := &s.launching
	if l.deadline <= 0 {
		return 0
	}
	in := l.deadline
	for _, g := range l.present {
		for i := range ipc.MaxContexts {
			n := min(g.page.Context(i).Outstanding(), mostOutstanding)
			if g.id == r.guest && i == r.stub.Context && n > 0 {
				n-- // itself
			}
			if n == 0 {
				continue
			}
			if g.spec.KernelTimeLimit <= 0 {
				return 0
			}
			in = min(in+time.Duration(n)*min(g.spec.KernelTimeLimit, longest), longest)
		}
	}
	return now + in
}

// mostOutstanding is how many commands of a context can be under way.
const mostOutstanding = abi.MaxChannels * gpu.OutcomesKept

// happened keeps account of what came of a launch. The caller holds mu.
func (s *share) happened(h happening) {
	l, r := &s.launching, h.row
	switch h.kind {
	case hasAppeared:
		r.predicted = l.foresight.predict(r.guest, &r.stub)
	case hasLeft:
		if h.took > 0 {
			l.evictions.add(h.took)
			l.foresight.evicted(r.guest, &r.stub, h.took)
		}
		l.left(r, min(h.took, mostCharged))
	case hasLied:
		// What it costs from here on is its own guest's, not of who asked.
		l.left(r, 0)
		l.ledger.Requested(fairshare.Verdict{Action: fairshare.Evict, Guest: r.guest, Launch: r.id, For: r.guest})
		s.log.Warn("kernel does not leave the GPU when told", "gpu", s.config.Name, "guest", r.name, "kernel", fmt.Sprintf("%016x", r.stub.Kernel))
	case hasIdled:
		l.left(r, 0)
		if g := l.guest(r.guest); g != nil && h.took > 0 {
			l.ledger.Idled(r.guest, h.took)
			g.charge(h.took)
		}
		s.log.Debug("launch does not use its turn", "gpu", s.config.Name, "guest", r.name, "kernel", fmt.Sprintf("%016x", r.stub.Kernel))
	case isForsaken:
		if !r.lied { // else its guest is charged when it ends
			l.left(r, 0)
		}
		s.log.Debug("launch is not waited for any more", "gpu", s.config.Name, "guest", r.name, "kernel", fmt.Sprintf("%016x", r.stub.Kernel))
	case hasEnded, isGone:
		if h.kind == hasEnded {
			l.foresight.ended(r.guest, &r.stub, r.predicted)
		}
		cost := time.Duration(0) // in time for it not to be evicted
		if r.lied {
			cost = max(s.clock.Now()-r.stub.Asked, 0)
		}
		l.left(r, cost)
	}
}

// mostCharged is what an eviction costs whoever it is for at most. For how long the
// launch takes to leave is up to its guest, for which it computes all the while.
const mostCharged = 10 * time.Millisecond

// left charges whoever an eviction was for, now that it is over.
func (l *launching) left(r *row, cost time.Duration) {
	if g := l.guest(l.ledger.Ended(r.id, cost)); g != nil {
		g.chargeEviction(cost)
	}
}

// guest finds one of those who are present; nil is none.
func (l *launching) guest(id fairshare.GuestID) *guest {
	for _, g := range l.present {
		if g.id == id {
			return g
		}
	}
	return nil
}

// carryOut does what the policy says of launches. The caller holds mu.
func (s *share) carryOut(guests []*guest, verdicts []fairshare.Verdict, now time.Duration) {
	s.launching.present = guests
	defer func() { s.launching.present = nil }()
	for i := range verdicts {
		v := &verdicts[i]
		switch v.Action {
		case fairshare.Run:
			r := s.launching.board.row(v.Launch)
			if r == nil || r.run(now) || r.stub.State != slotstate.Ready || r.aside != notAside {
				continue
			}
			// It is not what it was: the policy is told so, and whose turn it is then.
			s.launching.board.lose(r, s.happened)
			s.launching.lookBy(now + soon)
		case fairshare.Evict:
			if r := s.launching.board.row(v.Launch); r != nil && r.evict(v.BelowSM, now, s.deadline(r, now)) {
				s.launching.ledger.Requested(*v)
				s.launching.spin.leaves(now)
				s.launching.evictions.ask(v.Spatial)
				if r.asked {
					s.launching.lookBy(now + soon)
				}
			}
		}
	}
	s.watchTurns()
}

// mode is how the executors of one of the guests are to treat launches. The caller
// holds mu.
//
// A launch that would be told to run whatever else there is need not wait for that,
// which is a way to the daemon and back: where the guest is alone, and where the
// policy goes by priority, no other guest may be as urgent, and the hardware takes
// turns by itself, so that the launch has its turn while others are still told to
// leave.
func (s *share) mode(g *guest, guests []*guest) ipc.Mode {
	if !s.launching.byKernel || s.over {
		return ipc.ModeFree
	}
	if len(guests) > 1 && !(fairshare.ByPriority(s.policyName) && s.opened.props.Preempts) {
		return ipc.ModeByKernel
	}
	for _, other := range guests {
		if other != g && other.termsNow().PriorityCeiling >= g.termsNow().PriorityCeiling {
			return ipc.ModeByKernel
		}
	}
	return ipc.ModeAhead
}

// spins is whether who waits for launches to come or to leave does so with open eyes:
// to be woken takes some 60 to 90 µs on a host that has nothing else to do, twice on
// the way of an eviction. The caller holds mu.
func (s *share) spins() bool {
	return s.launching.byKernel && !s.over && s.launching.spin.spins(s.clock.Now())
}

// decideAbout has the new policy decide about launches, or about guests alone. The
// caller holds mu.
func (s *share) decideAbout(launches bool) {
	l := &s.launching
	l.board.anew()
	if l.byKernel == launches && l.turned != nil {
		return
	}
	if l.turned != nil {
		close(l.turned)
	}
	l.byKernel, l.turned = launches, make(chan struct{})
}

// greet tells a new guest's executors whether launches are to wait, and whether to
// keep account of their work. It may be one of an earlier daemon with another policy.
func (s *share) greet(g *guest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.treat(min(s.mode(g, nil), ipc.ModeByKernel), false) // who else there is, govern knows
	g.page.SetWorkLogWanted(s.opened.sight.told())
}

// govern tells the guests' executors whether launches are to wait. The caller
// holds mu.
func (s *share) govern(guests []*guest) {
	for _, g := range guests {
		g.treat(s.mode(g, guests), s.spins())
		g.letPoll(s.polls(g, guests))
	}
}

// polls returns for how long in a wait the executors of one of the guests may poll for its
// next launch, or for the end of one, where that saves them from sleeping: a guest whose
// launches go before another guest's has its priority for the sake of their latency. The
// caller holds mu.
func (s *share) polls(g *guest, guests []*guest) time.Duration {
	if !s.launching.byKernel || s.over || !fairshare.ByPriority(s.policyName) {
		return 0
	}
	for _, other := range guests {
		if other.termsNow().PriorityCeiling < g.termsNow().PriorityCeiling {
			return s.launching.spin.pollLimit()
		}
	}
	return 0
}

// launches are those that the policy knows of. The caller holds mu.
func (s *share) launches(now time.Duration) []fairshare.Launch {
	l := &s.launching
	return l.board.launches(now, uint32(s.opened.props.SMs), l.cost)
}

// cost is what taking a launch off the GPU is expected to cost.
func (l *launching) cost(r *row) time.Duration { return l.foresight.evictionCost(r.guest, &r.stub) }

// chargeEvictions tells, at the end of a phase, what evictions cost since the
// last. The caller holds mu.
func (s *share) chargeEvictions() {
	for i := range s.state {
		s.state[i].Charged = s.launching.ledger.Settle(s.state[i].ID)
	}
}

// showLaunches fills in what is known of a guest's launches.
func (s *share) showLaunches(id fairshare.GuestID, p *api.Preemption) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.launching
	p.Launches, p.Prediction = l.board.countOf(id), l.foresight.of(id).show()
}
