package mediator

import (
	"log/slog"
	"sync"
	"time"

	"vgpud/accounting"
	"vgpud/clock"
	"vgpud/fairshare"
	"vgpud/gpu"
	"vgpud/mediator/api"
	"vgpud/mediator/link"
)

// share is one GPU's part of the service: it is told what was seen of the GPU,
// charges the guests, has the policy decide, and carries out the verdicts.
type share struct {
	config  GPUConfig
	watch   accounting.Config
	planner *accounting.Planner
	props   gpu.Properties
	device  gpu.Device
	sampler *accounting.Sampler
	clock   clock.Clock
	log     *slog.Logger
	// guests calls f with the GPU's guests, in order of id, while they can't go
	// away.
	guests func(f func([]*guest))

	mu         sync.Mutex
	policy     fairshare.Policy
	policyName string
	tally      tally
	load       accounting.Load
	recent     map[fairshare.GuestID]*recent
	problem    string
	await      []accounting.GroupID
	state      []fairshare.Guest
}

// recent is what a guest did lately.
type recent struct {
	kernels uint64  // when last looked
	used    float64 // GPU nanoseconds, fading
	tail    tail
}

// tail is what of a guest's commands ran on while it was held.
type tail struct {
	held    bool
	counted time.Duration // the executors' count when last looked
	ran     time.Duration // since the guest was held, by the executors' count
	charged time.Duration // of it, as watched or as late
}

// observe takes in the executors' count of time that ran late, and what of the
// guest was watched since the last look, and returns what ran unwatched. The
// count comes when a command ends, which may be after it was watched.
func (t *tail) observe(held bool, count, watched time.Duration) (late time.Duration) {
	if held && !t.held {
		t.ran, t.charged = 0, 0
	}
	t.held = held
	t.ran += count - t.counted
	t.counted = count
	if held {
		t.charged += watched
	}
	late = max(t.ran-t.charged, 0)
	t.charged += late
	return late
}

// setPolicy changes the policy. Who is held stays so until the next round.
func (s *share) setPolicy(name string) error {
	if err := checkPolicy(name); err != nil {
		return err
	}
	p, err := fairshare.New(name, fairshare.Options{})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.policy, s.policyName = p, name
	s.log.Info("policy", "gpu", s.config.Name, "policy", name)
	return nil
}

// PollEnded implements [accounting.Handler].
func (s *share) PollEnded(p *accounting.Phase) accounting.Plan {
	var plan accounting.Plan
	s.guests(func(guests []*guest) {
		s.mu.Lock()
		defer s.mu.Unlock()
		late := s.observe(guests, p)
		s.charge(guests, p, s.tally.polled(p, late))
		ev := fairshare.Event{Kind: fairshare.Tick, Phase: fairshare.PollPhase, Length: p.Length(), Watched: p.Length()}
		held := s.decide(guests, ev)
		plan = accounting.Plan{Load: s.load, Await: s.awaited(held)}
	})
	return plan
}

// QuietEnded implements [accounting.Handler].
func (s *share) QuietEnded(q *accounting.Quiet) {
	s.guests(func(guests []*guest) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tally.quieted(q)
		s.tally.know(s.observe(guests, &q.Watched))
		s.charge(guests, &q.Watched, 1)
		s.decide(guests, fairshare.Event{
			Kind: fairshare.Tick, Phase: fairshare.QuietPhase, Length: q.Length(), Watched: q.Watched.Length(),
		})
	})
}

// Failed implements [accounting.Handler].
func (s *share) Failed(err error) {
	s.log.Error("GPU can't be watched any more", "gpu", s.config.Name, "err", err)
	s.guests(func(guests []*guest) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.problem = err.Error()
		for _, g := range guests {
			g.apply(link.Run, s.clock.Now())
		}
	})
}

// changed tells the policy of a guest that came, left, or has another weight.
func (s *share) changed(id fairshare.GuestID) {
	s.guests(func(guests []*guest) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tally.know(s.observe(guests, &accounting.Phase{}))
		s.charge(guests, &accounting.Phase{}, 1)
		s.decide(guests, fairshare.Event{Kind: fairshare.Changed, Guest: id})
	})
	if s.sampler != nil {
		s.sampler.Notify(0)
	}
}

// observe fills s.state with what was seen of the guests in a phase. late is how
// long held guests' commands ran on unwatched. The caller holds mu.
func (s *share) observe(guests []*guest, p *accounting.Phase) (late time.Duration) {
	s.state = s.state[:0]
	s.load = accounting.Load{}
	for _, g := range guests {
		w := g.work()
		r := s.recent[g.id]
		if r == nil {
			r = &recent{kernels: w.counters.Kernels, tail: tail{counted: w.counters.LateTime}}
			s.recent[g.id] = r
		}
		st := fairshare.Guest{ID: g.id, Suspended: g.heldNow(), Weight: g.weightNow()}
		g.groups(func(id accounting.GroupID) {
			t := p.Of(id)
			st.Used += t.Busy
			st.Spans += t.Spans
			st.Running = st.Running || p.Running && p.Last == id
			s.load.Allocated++
		})
		st.Late = r.tail.observe(st.Suspended, w.counters.LateTime, st.Used)
		late += st.Late
		st.Backlogged = w.backlog || w.outstanding > 0
		st.Active = st.Backlogged || st.Used > 0 || w.counters.Kernels != r.kernels
		if p.Length() > 0 {
			r.kernels = w.counters.Kernels
		}
		if st.Active {
			s.load.Active++
		}
		s.state = append(s.state, st)
	}
	return late
}

// charge bills the guests for what observe saw: the watched time of one that was
// not held stands for scale times as much. The caller holds mu.
func (s *share) charge(guests []*guest, p *accounting.Phase, scale float64) {
	var total float64
	for i, g := range guests {
		st := &s.state[i]
		bill := float64(st.Used)
		if !st.Suspended {
			bill *= scale
		}
		bill += float64(st.Late)
		g.charge(time.Duration(bill))
		r := s.recent[g.id]
		r.used = r.used*fade(p.Length()) + bill
		total += r.used
	}
	s.show(guests, total)
}

// show works out what each guest is entitled to: by weight among the active.
// The caller holds mu.
func (s *share) show(guests []*guest, total float64) {
	weights, demands := make([]float64, len(guests)), make([]float64, len(guests))
	for i := range s.state {
		weights[i] = s.state[i].Weight
		if s.state[i].Active {
			demands[i] = 1
		}
	}
	entitled := fairshare.Entitlement(weights, demands)
	for i, g := range guests {
		part := 0.0
		if total > 0 {
			part = s.recent[g.id].used / total
		}
		g.seen(s.state[i].Active, part, entitled[i])
	}
}

// decide asks the policy and carries out its verdicts. It returns the guests
// that were not held before. The caller holds mu.
func (s *share) decide(guests []*guest, ev fairshare.Event) (held []*guest) {
	now := s.clock.Now()
	poll, quiet := s.planner.Mean(s.load)
	st := fairshare.State{Guests: s.state, Round: poll + quiet, SMs: uint32(s.props.SMs)}
	verdicts, _ := s.policy.Decide(now, ev, st)
	want := make(map[fairshare.GuestID]link.Verdict, len(verdicts))
	for _, v := range verdicts {
		switch v.Action {
		case fairshare.Suspend:
			want[v.Guest] = link.Suspend
		case fairshare.Resume:
			want[v.Guest] = link.Run
		}
	}
	for _, g := range guests {
		v, ok := want[g.id]
		if !ok {
			v = g.page.Decided() // which also shows that the daemon is alive
		}
		if g.apply(v, now) && v == link.Suspend {
			held = append(held, g)
		}
	}
	s.forget(guests)
	return held
}

// forget drops what is kept of guests that are gone.
func (s *share) forget(guests []*guest) {
	if len(s.recent) == len(guests) {
		return
	}
	here := make(map[fairshare.GuestID]bool, len(guests))
	for _, g := range guests {
		here[g.id] = true
	}
	for id := range s.recent {
		if !here[id] {
			delete(s.recent, id)
		}
	}
}

// awaited are the channel groups whose commands have to leave before those that
// were just held are really off the GPU. Their time is charged exactly.
func (s *share) awaited(held []*guest) []accounting.GroupID {
	s.await = s.await[:0]
	for _, g := range held {
		if g.work().outstanding > 0 {
			g.groups(func(id accounting.GroupID) { s.await = append(s.await, id) })
		}
	}
	return s.await
}

// counts is the GPU's own account, empty where it keeps none.
func (s *share) counts() gpu.Counts {
	counted, ok := s.device.(gpu.Counted)
	if !ok {
		return gpu.Counts{}
	}
	c, err := counted.Counts()
	if err != nil {
		s.log.Warn("ask a GPU for its own account", "gpu", s.config.Name, "err", err)
	}
	return c
}

// gpu is the GPU as the API shows it.
func (s *share) gpu(vms int) api.GPU {
	counts := s.counts()
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &s.tally
	g := api.GPU{
		Name: s.config.Name, Kind: s.config.Kind, Model: s.props.Name, SMs: s.props.SMs, MemoryBytes: s.props.MemoryBytes,
		Policy: s.policyName, VMs: vms, Healthy: s.problem == "", Problem: s.problem,
		BusyRatio: t.lately, BusySeconds: t.busy.Seconds(), IdleSeconds: t.idle.Seconds(), SwitchingSeconds: t.switching.Seconds(),
		Switches: t.switches, Rounds: t.rounds,
		Overruns: counts.Overruns, OverrunSeconds: counts.Overrun.Seconds(),
		WatchedSeconds: t.watched.Seconds(), Polls: t.polls, Gaps: t.gaps, GapSeconds: t.gapTime.Seconds(),
	}
	if s.sampler != nil {
		g.AccountingCPUSeconds = s.sampler.CPU().Seconds()
		p := s.sampler.Priority()
		g.RealTime, g.RealTimeProblem = p.Realtime, p.Reason
	}
	return g
}
