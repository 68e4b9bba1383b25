package main

import (
	"cmp"
	"time"

	"vgpud/accounting"
	"vgpud/fairshare"
	"vgpud/gpu/soft/machine"
	"vgpud/gpu/soft/sim"
)

// tenant is a guest of a run.
type tenant struct {
	load   func() sim.Load // makes it anew, since it may have a state
	weight float64
	quota  fairshare.Quota
}

// experiment is guests on a GPU under one accounting and one policy.
type experiment struct {
	tenants []tenant
	policy  string
	// measured is whether the executors give the time used in quiet phases;
	// otherwise it is estimated from polling alone.
	measured bool
	watch    accounting.Config
	// ideal says that reading registers takes no time, and engines show a change at
	// the same time.
	ideal bool
	// read is what reading a register takes, channels how many each guest has; zero:
	// readTime and cudaChannels.
	read     time.Duration
	channels int
	seed     uint64
	length   time.Duration
}

// How the registers are read, but where that is ideal.
const (
	// cudaChannels is how many channels each guest has, as CUDA's applications do (LoGA
	// §5.1).
	cudaChannels = 12
	// readTime is what reading a register takes. A poll reads two: the engine's status
	// and the channel's entry; LoGA's loop took about 1 µs (§3.3).
	readTime = 500 * time.Nanosecond
	// skew is how much later channels' entries follow the truth than the engine's
	// status (§5.4). The gap between two kernels is then seen inside the second where
	// idle is told by the entry, which loses as much: 6 % of figure 9's shortest.
	skew = 6 * time.Microsecond
)

// eachHas is how many channels each guest has.
func (e *experiment) eachHas() int { return cmp.Or(e.channels, cudaChannels) }

// machine is the experiment's GPU with its guests.
func (e experiment) machine() (*sim.Sim, error) {
	var gpu machine.Config
	if !e.ideal {
		gpu.HostLag = skew
	}
	s, err := sim.New(gpu, e.seed)
	if err != nil {
		return nil, err
	}
	if !e.ideal {
		s.ReadCost(cmp.Or(e.read, readTime))
	}
	for _, t := range e.tenants {
		if _, err := s.Add(t.load()); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// outcome is what a run came to. Times of a tenant are in the tenants' order.
type outcome struct {
	length time.Duration
	// accounted is what accounting makes of it, and truth the GPU's own count.
	accounted, truth []time.Duration
	kernels          []uint64
	seconds          []use // of every second, a new one beginning each tenth
	whole            use
	idle             time.Duration
	phases           accounting.Phase // sums; Groups is not used
	suspensions      int
}

// use is what tenants used in some time, as parts of it, and the part that they
// had no work at all.
type use struct{ used, dry []float64 }

// loop is one run in progress: what the mediator does, in simulated time.
type loop struct {
	experiment
	sim     *sim.Sim
	poller  *Poller
	planner *accounting.Planner
	policyp fairshare.Policy

	state     fairshare.State
	held      []bool
	changed   bool                 // the newest verdict suspended or resumed somebody
	await     []accounting.GroupID // those that it suspended as they executed
	lastWork  []time.Duration      // when each last had work
	dry       []time.Duration      // that the policy knows of
	start     []time.Duration      // busy when the round began
	unwatched time.Duration        // quiet time that is to be estimated
	phase     accounting.Phase
	out       outcome
	marks     []mark
}

// steps is how many seconds that are looked at begin in a second.
const steps = 10

// mark is where the tenants stood at an instant.
type mark struct {
	at        time.Duration
	busy, dry []time.Duration
}

// run carries the experiment out.
func (e experiment) run() (*outcome, error) {
	l, err := e.loop(fairshare.Options{})
	if err != nil {
		return nil, err
	}
	for l.sim.Now() < e.length {
		if err := l.round(); err != nil {
			return nil, err
		}
	}
	return l.result(), nil
}

// loop begins the run.
func (e experiment) loop(o fairshare.Options) (*loop, error) {
	s, err := e.machine()
	if err != nil {
		return nil, err
	}
	e.watch.Seed = e.seed
	policy, err := fairshare.New(e.policy, o)
	if err != nil {
		return nil, err
	}
	n := len(e.tenants)
	l := &loop{
		experiment: e, sim: s, policyp: fairshare.Bound(policy),
		poller: NewPoller(e.watch, s), planner: accounting.NewPlanner(e.watch),
		state: fairshare.State{Guests: make([]fairshare.Guest, n)},
		held:  make([]bool, n), lastWork: make([]time.Duration, n), dry: make([]time.Duration, n), start: make([]time.Duration, n),
	}
	l.out.accounted = make([]time.Duration, n)
	l.mark()
	return l, nil
}

// activeFor is for how long a guest counts as active after it last had work.
const activeFor = time.Second

// round runs one round: what is still watched after the newest verdict, quiet
// time, polling, and the next verdict.
func (l *loop) round() error {
	load := accounting.Load{Allocated: l.eachHas() * len(l.tenants)}
	for i := range l.tenants {
		if l.sim.Now()-l.lastWork[i] < activeFor {
			load.Active++
		}
	}
	poll, quiet := l.planner.Mean(load)
	l.state.Round = poll + quiet
	copy(l.start, l.busyNow())

	coda, err := l.watchOn(poll, quiet)
	if err != nil {
		return err
	}
	if l.spread() || quiet == 0 {
		unwatched, err := l.poller.Round(l.planner, load, &l.phase)
		if err != nil {
			return err
		}
		l.note(&l.phase)
		l.quietEnded(&coda, unwatched)
		l.pollEnded()
		return nil
	}
	piece := l.planner.Next(load)
	unwatched := max(piece.Pause-coda.Length(), 0)
	l.sim.AdvanceTo(l.sim.Now() + unwatched)
	l.phase = accounting.Phase{}
	l.quietEnded(&coda, unwatched)
	if err := l.poller.Poll(piece.Poll, &l.phase); err != nil {
		return err
	}
	l.note(&l.phase)
	l.pollEnded()
	return nil
}

// spread is whether polling is spread over the round.
func (l *loop) spread() bool { return l.watch.Piece >= 0 && !l.watch.Full }

// watchOn polls on after a verdict: until a guest that was suspended as it
// executed has left; and, where polling phases are in one and nobody measures
// the time between them, for a polling phase's length in any case.
func (l *loop) watchOn(poll, quiet time.Duration) (coda accounting.Phase, err error) {
	changed, await := l.changed, l.await
	l.changed, l.await = false, nil
	if l.measured || !changed || quiet == 0 || l.policy != "dfq" && l.policy != "none" {
		return coda, nil
	}
	if l.watch.Piece < 0 {
		err = l.poller.Poll(min(poll, quiet), &coda)
	} else if len(await) > 0 {
		err = l.poller.PollUntilGone(await, quiet, &coda)
	}
	l.note(&coda)
	return coda, err
}

// quietEnded tells the policy of the quiet time before, and between the pieces
// of, the polling phase in l.phase.
func (l *loop) quietEnded(coda *accounting.Phase, unwatched time.Duration) {
	length := coda.Length() + unwatched
	watched := coda.Length()
	l.unwatched = unwatched
	if l.measured {
		watched, l.unwatched = length, 0
	}
	l.observe(length, length+l.phase.Length())
	for i, g := range l.sim.Guests() {
		st := &l.state.Guests[i]
		st.Used, st.Idle = coda.Of(g.Group()).Busy, coda.Idle
		rest := g.Usage().Busy - l.start[i] - st.Used - l.phase.Of(g.Group()).Busy
		switch {
		case l.measured:
			st.Used += rest
		case l.held[i] && !l.spread():
			st.Late = rest // known to its executor once it is over
			l.unwatched = max(l.unwatched-rest, 0)
		}
		l.out.accounted[i] += st.Used + st.Late
	}
	if length > 0 {
		l.decide(fairshare.Event{Phase: fairshare.QuietPhase, Length: length, Watched: watched, Spread: l.spread()})
	}
}

// pollEnded tells the policy of the polling phase in l.phase.
func (l *loop) pollEnded() {
	length := l.phase.Length()
	l.observe(length, length+l.phase.Pauses)
	for i, g := range l.sim.Guests() {
		st, t := &l.state.Guests[i], l.phase.Of(g.Group())
		st.Used, st.Runs, st.Idle = t.Busy, t.Runs, l.phase.Idle
		st.Running = l.phase.Running && l.phase.Last == g.Group()
		used := float64(t.Busy)
		if !l.held[i] || l.spread() {
			used *= float64(length+l.unwatched) / float64(length)
		}
		l.out.accounted[i] += time.Duration(used)
	}
	l.decide(fairshare.Event{Phase: fairshare.PollPhase, Length: length, Watched: length, Spread: l.spread()})
	l.markInTime()
}

// markInTime marks where the tenants stand, a few times a second.
func (l *loop) markInTime() {
	if now := l.sim.Now(); now-l.marks[len(l.marks)-1].at >= time.Second/steps {
		l.mark()
	}
}

// note adds up what was watched.
func (l *loop) note(p *accounting.Phase) {
	total := &l.out.phases
	total.End += p.Length()
	total.Idle += p.Idle
	total.Switching += p.Switching
	total.Switches += p.Switches
	total.Polls += p.Polls
	total.EntryOnly += p.EntryOnly
	total.BusyOnly += p.BusyOnly
}

func (l *loop) mark() {
	m := mark{at: l.sim.Now(), busy: l.busyNow()}
	for _, g := range l.sim.Guests() {
		m.dry = append(m.dry, g.Idle())
	}
	l.marks = append(l.marks, m)
}

func (l *loop) busyNow() (busy []time.Duration) {
	for _, g := range l.sim.Guests() {
		busy = append(busy, g.Usage().Busy)
	}
	return busy
}

// observe fills the state that the policy decides by, after a phase of the given
// length. Its part of the time since it was last asked is what the guest was
// without work for in it.
func (l *loop) observe(length, since time.Duration) {
	for i, g := range l.sim.Guests() {
		dry := g.Idle()
		st := fairshare.Guest{
			ID: fairshare.GuestID(i), Weight: l.tenants[i].weight, Quota: l.tenants[i].quota,
			Active: dry-l.dry[i] < since, Backlogged: g.Backlogged(), Suspended: l.held[i],
		}
		if since > 0 {
			st.NoWork = time.Duration(float64(dry-l.dry[i]) * float64(length) / float64(since))
		}
		if st.Active {
			l.lastWork[i] = l.sim.Now()
		}
		l.dry[i] += st.NoWork
		l.state.Guests[i] = st
	}
}

// decide asks the policy and carries out what it says. It returns in how long the policy
// wants to be asked again.
func (l *loop) decide(ev fairshare.Event) (next time.Duration) {
	verdicts, next := l.policyp.Decide(l.sim.Now(), ev, l.state)
	for _, v := range verdicts {
		i, held := int(v.Guest), v.Action == fairshare.Suspend
		if l.held[i] == held {
			continue
		}
		l.changed = true
		g := l.sim.Guests()[i]
		l.held[i] = held
		g.SetSuspended(held)
		if !held {
			continue
		}
		l.out.suspensions++
		if l.phase.Running && l.phase.Last == g.Group() {
			l.await = append(l.await, g.Group())
		}
	}
	return next
}

func (l *loop) result() *outcome {
	l.mark()
	out := &l.out
	out.length = l.sim.Now()
	out.truth = l.busyNow()
	out.idle = l.sim.Totals().Idle
	for _, g := range l.sim.Guests() {
		out.kernels = append(out.kernels, g.Progress().Completed)
	}
	for first := range l.marks {
		for _, m := range l.marks[first:] {
			if m.at-l.marks[first].at >= time.Second {
				out.seconds = append(out.seconds, between(l.marks[first], m))
				break
			}
		}
	}
	out.whole = between(l.marks[0], l.marks[len(l.marks)-1])
	return out
}

func between(a, b mark) (u use) {
	for i := range a.busy {
		length := float64(b.at - a.at)
		u.used = append(u.used, float64(b.busy[i]-a.busy[i])/length)
		u.dry = append(u.dry, float64(b.dry[i]-a.dry[i])/length)
	}
	return u
}
