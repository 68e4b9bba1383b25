package daemon

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"vgpud/accounting"
	"vgpud/clock"
	"vgpud/fairshare"
	"vgpud/gpu"
	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
)

// share is one GPU's part of the service: it is told what was seen of the GPU,
// charges the guests, has the policy decide, and carries out the verdicts.
type share struct {
	config GPUConfig // but for what can be changed while the daemon runs
	clock  clock.Clock
	log    *slog.Logger
	// guests calls f with the GPU's guests, in order of id, while they can't go
	// away.
	guests func(f func([]*guest))

	mu         sync.Mutex
	opened     opened
	accounting AccountingConfig
	planner    *accounting.Planner
	// next, where it is set, is to watch the GPU when stopWatching has ended the
	// watcher that does.
	next         *watching
	stopWatching context.CancelFunc
	watchedCPU   time.Duration // by the watchers before
	policy       fairshare.Policy
	policyName   string
	maxOverhead  float64 // of ffs; 0: its default
	tally        tally
	// spread is whether polling phases are in pieces over the quiet time, so that
	// they show it as it was, held guests' last commands too.
	spread  bool
	load    accounting.Load
	recent  map[fairshare.GuestID]*recent
	problem string
	// hardware is what NVIDIA's driver says of the GPU, nil until it said anything.
	hardware *hardware
	control  control
	// over is whether nothing is decided any more, and nobody held.
	over      bool
	await     []accounting.GroupID
	state     []fairshare.Guest
	launching launching
	kin       kin // the watcher's
	// owners are whose the hardware's channel groups are.
	owners map[accounting.GroupID]fairshare.GuestID
	// launchesTold is how many launches one context told of since the last round at
	// most. It is the watcher's.
	launchesTold int
}

// recent is what a guest did lately.
type recent struct {
	kernels uint64        // when last looked
	late    time.Duration // the executors' count of what ran late
	active  time.Duration // when last seen to have work
	used    float64       // GPU nanoseconds, fading
	tail    tail
	slice   time.Duration // of its contexts, as decided; 0: the driver's own
	// worked is for how long its context had commands under way, as of looked, and dry
	// the part of the time before that in which it had none.
	worked, looked time.Duration
	dry            float64
	// asked is for how long its contexts had commands under way when the policy was last
	// asked.
	asked time.Duration
}

// requests is what the guest has asked of the GPU: its kernels. For how long it has had
// any on the GPU since the policy was last asked is known, and not when; they are taken to
// have been the last thing that happened.
func (r *recent) requests(now, worked time.Duration, w *work) fairshare.Requests {
	began := now - min(max(worked-r.asked, 0), now)
	r.asked = worked
	return fairshare.Requests{Completed: w.counters.Kernels, Calls: w.counters.Kernels, UnderWay: w.outstanding > 0, First: began}
}

// unknown is in place of times that are not known.
const unknown time.Duration = -1

// look finds out dry: the part of the time since the last look in which the guest's
// context had no commands under way. It is 0 where that is not known: with an executor of
// an older version, and with several contexts, of which one may have some just when
// another has none.
//
// A phase of some length that is told of right after the last look is in that already:
// where polling is in pieces over the quiet time, both are told of at once.
func (r *recent) look(now, worked, length time.Duration) {
	elapsed, did := now-r.looked, worked-r.worked
	if elapsed < length/2 && r.worked != unknown && worked != unknown {
		return
	}
	r.dry = 0
	if worked > 0 && r.worked != unknown && elapsed > 0 && did >= 0 {
		r.dry = max(float64(elapsed-did), 0) / float64(elapsed)
	}
	r.worked, r.looked = worked, now
}

// lingering is for how long a guest counts in the length of the phases after it
// had work: one that has some in every other round would otherwise set the
// length of just those phases that see it.
const lingering = time.Second

// tail is what of a guest's commands ran on while it was held.
type tail struct {
	held    bool
	counted time.Duration // the executors' count when last looked
	ran     time.Duration // since the guest was held, by the executors' count
	charged time.Duration // of it, as watched or as late
	room    time.Duration // unwatched since the guest was held, and not charged
}

// observe takes in the executors' count of time that ran late, what of the guest
// was watched since the last look, and how long nobody watched. It returns what
// ran unwatched. The count comes when a command ends, which may be after it was
// watched.
//
// The count goes from each command's start to its end. Where the GPU took turns
// in between, with others or with the guest's own contexts, that is more than
// the command's, so that no more is charged than passed unwatched.
func (t *tail) observe(held bool, count, watched, unwatched time.Duration) (late time.Duration) {
	if held && !t.held {
		t.ran, t.charged, t.room = 0, 0, 0
	}
	t.held = held
	t.ran = grown(t.ran, max(count-t.counted, 0))
	t.counted = count
	if held {
		t.charged += watched
		t.room += unwatched
	}
	late = min(max(t.ran-t.charged, 0), t.room)
	t.room -= late
	t.charged = max(t.charged, t.ran)
	return late
}

// setPolicy changes the policy. Who is held stays so until the next round. Where it is the
// present one nothing changes: what guests owe and are owed stays.
func (s *share) setPolicy(name string) error {
	if err := checkPolicy(name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.policy != nil && name == s.policyName {
		return nil
	}
	return s.startPolicy(name)
}

// startPolicy begins a policy. The caller holds mu.
func (s *share) startPolicy(name string) error {
	p, err := fairshare.New(name, fairshare.Options{MaxOverhead: s.maxOverhead})
	if err != nil {
		return err
	}
	s.policy, s.policyName = fairshare.Bound(p), name
	s.dropSlices()
	s.decideAbout(fairshare.ByKernel(name))
	s.launching.evictions.anew()
	s.log.Info("policy", "gpu", s.config.Name, "policy", name)
	return nil
}

// setMaxOverhead changes what ffs may lose of the GPU's time. If that is the policy it begins anew.
func (s *share) setMaxOverhead(v float64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.maxOverhead = v
	if s.policyName != "ffs" {
		return nil
	}
	return s.startPolicy(s.policyName)
}

// PollEnded implements [accounting.Handler].
func (s *share) PollEnded(p *accounting.Phase) accounting.Plan {
	var plan accounting.Plan
	s.guests(func(guests []*guest) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.attendLaunches(guests)
		s.observe(guests, p)
		s.chargeEvictions()
		waiting := s.tally.unwatched
		late := s.observeTails(guests, 0)
		scale := s.tally.polled(p, late, s.usedHeld())
		s.charge(guests, scale, p.Length()+waiting-s.tally.unwatched)
		ev := fairshare.Event{
			Kind: fairshare.Tick, Phase: fairshare.PollPhase, Length: p.Length(), Watched: p.Length(), Spread: s.spread,
		}
		changed, held := s.decide(guests, ev)
		plan = accounting.Plan{Load: s.load, Await: s.awaited(held), Pace: s.pace(guests, p.Length())}
		if changed && s.opened.watch.Piece < 0 {
			// For a while the mix is neither the one that was polled nor the one
			// that will be. Pieces that are spread over the round show it anyway.
			plan.WatchOn, _ = s.planner.Mean(s.load)
		}
	})
	return plan
}

// QuietEnded implements [accounting.Handler].
func (s *share) QuietEnded(q *accounting.Quiet) {
	s.guests(func(guests []*guest) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.spread = q.Spread
		s.tally.quieted(q)
		s.attendLaunches(guests)
		s.observeOf(guests, &q.Watched, q.Length(), !q.Spread)
		s.chargeEvictions()
		waiting := s.tally.unwatched
		s.tally.know(s.observeTails(guests, q.Unwatched))
		s.charge(guests, 1, q.Watched.Length()+waiting-s.tally.unwatched)
		s.decide(guests, fairshare.Event{
			Kind: fairshare.Tick, Phase: fairshare.QuietPhase, Length: q.Length(), Watched: q.Watched.Length(), Spread: s.spread,
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
		s.letRun(guests)
	})
}

// leave lets everybody run, for good: whatever is asked or seen after it,
// by a sampler that has yet to notice that the daemon ends, decides nothing.
func (s *share) leave() {
	s.guests(func(guests []*guest) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.letRun(guests)
	})
}

// letRun ends all deciding with nobody held. The caller holds mu.
func (s *share) letRun(guests []*guest) {
	s.over = true
	s.govern(guests)
	for _, g := range guests {
		g.apply(ipc.Run, s.clock.Now())
		s.grasp(g)
	}
}

// changed tells the policy of a guest that came, left, or has another weight.
func (s *share) changed(id fairshare.GuestID) {
	s.guests(func(guests []*guest) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.govern(guests)
		s.attendLaunches(guests)
		s.observe(guests, &accounting.Phase{})
		s.show(guests)
		s.decide(guests, fairshare.Event{Kind: fairshare.Changed, Guest: id})
	})
	s.wake()
}

// wake ends the present round early: a guest, or one of its channels, came or went, which
// may call for a decision (LoGA §4.2).
func (s *share) wake() {
	if w := s.open().watcher; w != nil {
		w.Notify(0)
	}
}

// observe fills s.state with what was seen of the guests in a phase. The caller
// holds mu.
func (s *share) observe(guests []*guest, p *accounting.Phase) {
	s.observeOf(guests, p, p.Length(), true)
}

// observeOf is observe of a phase of some length, of which p was watched. last is whether
// kernels that ended since are no news to another phase, being of the same time.
func (s *share) observeOf(guests []*guest, p *accounting.Phase, length time.Duration, last bool) {
	now := s.clock.Now()
	s.state = s.state[:0]
	s.load = accounting.Load{}
	s.claim(guests)
	for _, g := range guests {
		w := g.work()
		r := s.recent[g.id]
		if r == nil {
			r = &recent{kernels: w.counters.Kernels, active: now - lingering, tail: tail{counted: w.counters.LateTime}, worked: unknown}
			s.recent[g.id] = r
		}
		r.late = w.counters.LateTime
		terms := g.termsNow()
		st := fairshare.Guest{
			ID: g.id, Suspended: g.heldNow(), Weight: terms.Weight, Idle: p.Idle,
			Quota: fairshare.Quota{Cap: terms.Cap, Guarantee: terms.Guarantee}, Groups: w.working, Urgency: terms.PriorityCeiling,
		}
		s.groups(g, func(id accounting.GroupID) {
			t := p.Of(id)
			st.Used += t.Busy
			st.Runs += t.Runs
			st.Running = st.Running || p.Running && p.Last == id
		})
		s.load.Allocated += w.groups
		if length > 0 {
			worked := unknown
			if w.contexts == 1 {
				worked = g.worked(now)
			}
			r.look(now, worked, length)
			if !st.Suspended { // else what of its work waits is not under way
				st.NoWork = time.Duration(r.dry * float64(length))
			}
		}
		st.Requests = r.requests(now, g.worked(now), &w)
		st.Backlogged = w.backlog || w.outstanding > 0
		st.Active = st.Backlogged || st.Used > 0 || w.counters.Kernels != r.kernels
		if p.Length() > 0 && last {
			r.kernels = w.counters.Kernels
		}
		if st.Active {
			r.active = now
		}
		if now-r.active < lingering {
			s.load.Active++
		}
		s.state = append(s.state, st)
	}
}

// observeTails finds out how long held guests' commands ran on while nobody watched,
// which is known when they end, and returns the sum. unwatched is how long that
// was since the last look. The caller holds mu.
func (s *share) observeTails(guests []*guest, unwatched time.Duration) (late time.Duration) {
	for i, g := range guests {
		st := &s.state[i]
		r := s.recent[g.id]
		ran := r.tail.observe(st.Suspended, r.late, st.Used, unwatched)
		if s.spread {
			continue // the pieces of the polling phase show it
		}
		st.Late = ran
		late += ran
	}
	return late
}

// usedHeld is how much of a phase held guests used that says nothing about the
// quiet time. The caller holds mu.
func (s *share) usedHeld() (sum time.Duration) {
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

// charge bills the guests for what observe and observeTails saw: the watched time of
// one that was not held stands for scale times as much, and all of it for
// elapsed. The caller holds mu.
func (s *share) charge(guests []*guest, scale float64, elapsed time.Duration) {
	keep := fade(elapsed)
	for i, g := range guests {
		st := &s.state[i]
		bill := float64(st.Used)
		if !st.Suspended || s.spread {
			bill *= scale
		}
		bill += float64(st.Late)
		g.charge(time.Duration(bill))
		r := s.recent[g.id]
		r.used = keep*r.used + bill
	}
	s.show(guests)
}

// show works out each guest's part of what all used lately, and what it is
// entitled to: by weight and quota among the active. The caller holds mu.
func (s *share) show(guests []*guest) {
	var total float64
	for _, g := range guests {
		total += s.recent[g.id].used
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
			part = s.recent[g.id].used / total
		}
		g.seen(s.state[i].Active, part, entitled[i])
	}
}

// decide asks the policy and carries out its verdicts. It returns whether they
// changed anything, and the guests that were not held before. The caller holds
// mu.
func (s *share) decide(guests []*guest, ev fairshare.Event) (changed bool, held []*guest) {
	defer s.forget(guests)
	if s.over {
		return false, nil
	}
	now := s.clock.Now()
	poll, quiet := s.planner.Mean(s.load)
	st := fairshare.State{Guests: s.state, Round: poll + quiet, Launches: s.launches(now), SMs: uint32(s.opened.props.SMs), CoRuns: s.opened.props.CoRuns, Slices: s.controls().slices}
	verdicts, next := s.policy.Decide(now, ev, st)
	s.launching.alarm.wanted(now, next)
	want := make(map[fairshare.GuestID]ipc.SuspendWord, len(verdicts))
	for _, v := range verdicts {
		switch v.Action {
		case fairshare.Suspend:
			want[v.Guest] = ipc.Suspend
		case fairshare.Resume:
			want[v.Guest] = ipc.Run
		case fairshare.Slice:
			s.recent[v.Guest].slice = v.Slice
		}
	}
	for _, g := range guests {
		v, ok := want[g.id]
		if !ok {
			v = g.decided() // to be said again, which also shows that the daemon is alive
		}
		fresh := g.apply(v, now)
		s.grasp(g)
		if !fresh {
			continue
		}
		changed = true
		if v == ipc.Suspend {
			held = append(held, g)
		}
	}
	s.carryOut(guests, verdicts, now)
	return changed, held
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
			s.launching.ledger.Forget(id)
			s.launching.foresight.forget(id)
		}
	}
	maps.DeleteFunc(s.owners, func(_ accounting.GroupID, id fairshare.GuestID) bool { return !here[id] })
}

// awaited are the channel groups whose commands have to leave before those that
// were just held are really off the GPU. Their time is charged exactly.
func (s *share) awaited(held []*guest) []accounting.GroupID {
	s.await = s.await[:0]
	for _, g := range held {
		if g.work().outstanding > 0 {
			s.groups(g, func(id accounting.GroupID) { s.await = append(s.await, id) })
		}
	}
	return s.await
}

// counts is the GPU's own account, empty where it keeps none.
func (s *share) counts() gpu.Counts {
	device := s.open().device
	counted, ok := device.(gpu.Counted)
	if !ok {
		return gpu.Counts{}
	}
	c, err := counted.Counts()
	if err != nil {
		s.trouble(device, err)
	}
	return c
}

// trouble says, once, that the GPU does not answer, as it was opened.
func (s *share) trouble(device gpu.Monitor, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.problem != "" || s.opened.device != device {
		return
	}
	s.problem = err.Error()
	s.log.Error("GPU does not answer", "gpu", s.config.Name, "err", err)
}

// gpu is the GPU as the API shows it.
func (s *share) gpu(vms int) api.GPU {
	counts := s.counts()
	s.mu.Lock()
	defer s.mu.Unlock()
	t, props := &s.tally, &s.opened.props
	g := api.GPU{
		Name: s.config.Name, Kind: s.config.Kind, Model: props.Name, SMs: props.SMs, MemoryBytes: props.MemoryBytes,
		Policy: s.policyName, VMs: vms, Healthy: s.wrong() == "", Problem: s.wrong(),
		BusyRatio: t.lately, BusySeconds: t.busy.Seconds(), IdleSeconds: t.idle.Seconds(), SwitchingSeconds: t.switching.Seconds(),
		Switches: t.switches, Rounds: t.rounds,
		Overruns: counts.Overruns, OverrunSeconds: counts.Overrun.Seconds(),
		ByKernel: s.launching.byKernel, Launches: s.launching.board.count(), Evictions: s.launching.evictions.show(),
		Prediction:     s.launching.foresight.all.show(),
		WatchedSeconds: t.watched.Seconds(), Polls: t.polls, Gaps: t.gaps, GapSeconds: t.gapTime.Seconds(),
	}
	if s.hardware != nil {
		g.Hardware = s.hardware.show()
	}
	s.opened.show(&g, s.watchedCPU)
	return g
}
