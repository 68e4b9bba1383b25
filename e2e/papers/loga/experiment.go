package main

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"time"

	"vgpud/accounting"
	"vgpud/accounting/accountingtest"
	"vgpud/e2e/papers/neon"
	"vgpud/fairshare"
	"vgpud/gpu/soft/machine"
	"vgpud/gpu/soft/sim"
	"vgpud/mediator/ipc"
	"vgpud/mediator/scheduler"
)

// tenant is a guest of a run.
type tenant struct {
	load   func() sim.Load // a new one for each run, since it may have a state
	weight float64
	quota  fairshare.Quota
}

// experiment is guests on a GPU under one accounting and one policy.
type experiment struct {
	tenants []tenant
	policy  string
	watch   accounting.Config
	// ideal means that reading registers takes no time, and engines show a change at the same time.
	ideal bool
	// read is how long it takes to read a register, and channels how many each guest has. Zero
	// stands for readTime and cudaChannels.
	read     time.Duration
	channels int
	seed     uint64
	length   time.Duration
}

// How the registers are read, unless that is ideal.
const (
	// cudaChannels is how many channels each guest has, as CUDA's applications do (LoGA §5.1).
	cudaChannels = 12
	// readTime is how long it takes to read a register. A poll reads two: the engine's status and
	// the channel's entry. LoGA's loop took about 1 µs (§3.3).
	readTime = 500 * time.Nanosecond
	// skew is how much later channels' entries follow the truth than the engine's status (§5.4).
	// The gap between two kernels is then seen inside the second one if idle is told by the entry,
	// which loses as much: 6 % of figure 9's shortest kernel.
	skew = 6 * time.Microsecond
)

// channelsEach returns how many channels each guest has.
func (e *experiment) channelsEach() int { return cmp.Or(e.channels, cudaChannels) }

// machine returns the experiment's GPU with its guests.
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

// run is an experiment in progress: the daemon's scheduler shares the simulated GPU.
type run struct {
	experiment
	sim       *sim.Sim
	scheduler *scheduler.Scheduler
	guests    []*scheduler.Guest
	phases    accounting.Phase // sums of what was polled; Groups is not used
	marks     []mark
	// accounted, if set, is used in place of what the scheduler has billed.
	accounted []time.Duration
	warmingUp bool
	start     *outcome // sums when the run began to count
	result    *outcome // once the run has ended
}

// executors is a guest of the simulated GPU as the scheduler sees it.
type executors struct {
	*sim.Guest
	channels int
}

// Activity implements [scheduler.Executors].
func (x executors) Activity(time.Duration) scheduler.Activity {
	a := scheduler.Activity{Contexts: 1, Grouped: x.channels, Backlog: x.Backlogged(), Worked: x.Worked()}
	if x.Backlogged() {
		a.Working = 1
	}
	a.Outstanding = x.Outstanding(0)
	a.Counters = ipc.Counters{Kernels: x.Progress().Completed, GPUTime: x.Usage().Busy, LateTime: x.LateTime()}
	return a
}

// Outstanding implements [scheduler.Executors].
func (x executors) Outstanding(context int) uint64 {
	if context == 0 && x.InFlight() {
		return 1
	}
	return 0
}

// Groups implements [scheduler.Executors].
func (x executors) Groups(f func(accounting.GroupID)) { f(x.Group()) }

// Generation implements [scheduler.Executors]. No context ever comes or goes.
func (x executors) Generation() uint64 { return 0 }

// Publish implements [scheduler.Executors].
func (x executors) Publish(o scheduler.Orders) { x.SetSuspended(o.Suspend) }

// simClock is the GPU's time. Nothing waits for it: the simulation calls the scheduler.
type simClock struct{ *sim.Sim }

// WaitUntil implements clock.Clock.
func (simClock) WaitUntil(ctx context.Context, _ time.Duration) error {
	<-ctx.Done()
	return ctx.Err()
}

// begin begins a run.
func (e experiment) begin(o fairshare.Options) (*run, error) {
	s, err := e.machine()
	if err != nil {
		return nil, err
	}
	e.watch.Seed = e.seed
	r := &run{experiment: e, sim: s}
	r.scheduler, err = scheduler.New(scheduler.Options{
		Name: "gpu0", Clock: simClock{s}, Log: slog.New(slog.DiscardHandler),
		Policy: e.policy, PolicyOptions: o, GPU: scheduler.GPU{Watch: e.watch.WithDefaults()},
	})
	if err != nil {
		return nil, err
	}
	for i, t := range e.tenants {
		g := scheduler.NewGuest(scheduler.GuestOptions{
			Name:      s.Guests()[i].Name(),
			Terms:     ipc.Terms{Weight: t.weight, Cap: t.quota.Cap, Guarantee: t.quota.Guarantee},
			Executors: executors{s.Guests()[i], e.channelsEach()},
		})
		r.scheduler.Add(g)
		r.guests = append(r.guests, g)
	}
	r.scheduler.Changed(0)
	r.start = r.sums()
	r.mark()
	return r, nil
}

// run carries the experiment out.
func (e experiment) run() (*outcome, error) {
	r, err := e.begin(fairshare.Options{})
	if err != nil {
		return nil, err
	}
	sampler, err := accounting.NewSimulatedSampler(r.sim, r, r.watch)
	if err != nil {
		return nil, err
	}
	r.warmingUp = true
	sampler.Notify(0) // the guests have just come
	for r.result == nil {
		if err := sampler.RunUntil(r.sim.Now() + time.Millisecond); err != nil {
			return nil, err
		}
	}
	return r.result, nil
}

// warmUp is how long a run goes on before it counts. At first the scheduler knows nothing of the
// guests, and its first round is that of a GPU that nobody uses, which is long and hardly polled.
const warmUp = time.Second

// PollEnded implements [accounting.Handler]. A run's results are from one polling phase's end to
// another's, since only then all time is billed.
func (r *run) PollEnded(p *accounting.Phase) accounting.Plan {
	plan := r.scheduler.PollEnded(p)
	switch {
	case r.warmingUp:
		if r.sim.Now() >= warmUp {
			r.warmingUp = false
			r.start, r.marks = r.sums(), r.marks[:0]
			r.mark()
		}
		return plan
	case r.result == nil && r.sim.Now()-r.start.length >= r.length:
		accountingtest.AddTotals(&r.phases, p)
		r.result = r.outcome()
		return plan
	}
	accountingtest.AddTotals(&r.phases, p)
	r.markInTime()
	return plan
}

// QuietEnded implements [accounting.Handler].
func (r *run) QuietEnded(q *accounting.Quiet) {
	if !r.warmingUp {
		accountingtest.AddTotals(&r.phases, &q.Watched)
	}
	r.scheduler.QuietEnded(q)
}

// Failed implements [accounting.Handler].
func (r *run) Failed(err error) { r.scheduler.Failed(err) }

// runNEON carries the experiment out under NEON's accounting as the papers describe it instead of
// LoGA's, and with its scheduler if schedule is set.
func (e experiment) runNEON(schedule bool) (*outcome, error) {
	e.policy = "none"
	r, err := e.begin(fairshare.Options{})
	if err != nil {
		return nil, err
	}
	r.accounted = make([]time.Duration, len(e.tenants))
	config := neon.PerChannels(e.channelsEach())
	var allow func([]neon.Sample) []neon.Owner
	if schedule {
		allow = neon.NewQueue(config, len(e.tenants)).Allow
	}
	sampling := neon.NewSampling(config, neon.SimGate(r.sim), allow)
	for r.sim.Now() < e.length {
		next, round := sampling.Step(r.sim.Now())
		if round != nil {
			for _, o := range round.Samples {
				r.accounted[o.Owner] += o.Charged
			}
		}
		r.advance(min(next, e.length))
	}
	return r.outcome(), nil
}

// runPublishedNEON carries the experiment out under NEON as it is published, which asks for its own
// time. No guest is suspended for long unless schedule is set. Its charges are not reported, so
// nothing is accounted.
func (e experiment) runPublishedNEON(schedule bool) (*outcome, error) {
	o := fairshare.Options{Sample: neon.PerChannels(e.channelsEach()).Alone}
	if !schedule {
		o.Threshold = math.MaxInt64
	}
	e.policy = "neon"
	r, err := e.begin(o)
	if err != nil {
		return nil, err
	}
	for r.sim.Now() < e.length {
		next := r.scheduler.NextTimer()
		if next == 0 {
			next = e.length
		}
		r.advance(min(next, e.length))
		r.scheduler.RunTimers()
	}
	return r.outcome(), nil
}

// advance carries the clock on to t, and marks on the way.
func (r *run) advance(t time.Duration) {
	for r.sim.Now() < t {
		r.sim.AdvanceTo(min(t, r.sim.Now()+time.Second/marksPerSecond))
		r.markInTime()
	}
}
