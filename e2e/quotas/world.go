package main

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"vgpud/accounting"
	"vgpud/fairshare"
	"vgpud/gpu"
	"vgpud/gpu/soft/machine"
	"vgpud/mediator/ipc"
	"vgpud/mediator/scheduler"
)

const (
	// react is how long a verdict about a launch takes to reach the GPU: a doorbell, a wakeup and a
	// call.
	react = 10 * time.Microsecond
	// leaves is how long a kernel that leaves when told takes to do so, and relaunch what it costs
	// to launch the rest of it again.
	leaves   = 50 * time.Microsecond
	relaunch = 20 * time.Microsecond
	sms      = 8
)

// world is a GPU in simulated time that the daemon's scheduler shares. It implements
// [accounting.Simulation] for the sampler that watches it.
type world struct {
	m         *machine.Machine
	shown     machine.Shown
	scheduler *scheduler.Scheduler
	sampler   *accounting.SimulatedSampler
	byKernel  bool // launches wait for verdicts
	rand      *rand.Rand

	coming actions
	seq    uint64
	guests []*guest
	now    time.Duration // since when sums are not updated
	// switching is the GPU's time between contexts up to now, and idle its time without work.
	switching, idle time.Duration
	// sent is how many launches have their turn and are on their way to the GPU.
	sent int
}

// worldClock is the machine's time. Nothing waits for it: the world calls the scheduler.
type worldClock struct{ *machine.Machine }

// WaitUntil implements clock.Clock.
func (worldClock) WaitUntil(ctx context.Context, _ time.Duration) error {
	<-ctx.Done()
	return ctx.Err()
}

// newWorld returns a GPU without guests. Closing its guests frees it.
func newWorld(policy string, seed uint64) (*world, error) {
	w := &world{byKernel: fairshare.ByKernel(policy), rand: rand.New(rand.NewPCG(seed, 1))}
	w.m = machine.New(machine.Config{SMs: sms}, 0, &w.shown)
	watch := accounting.Config{Seed: seed}.WithDefaults()
	var err error
	w.scheduler, err = scheduler.New(scheduler.Options{
		Name: "gpu0", Clock: worldClock{w.m}, Log: slog.New(slog.DiscardHandler), Policy: policy,
		PolicyOptions: fairshare.Options{HandOver: scheduler.HandOver},
		GPU:           scheduler.GPU{Properties: gpu.Properties{SMs: sms}, Watch: watch},
	})
	if err != nil {
		return nil, err
	}
	w.sampler, err = accounting.NewSimulatedSampler(w, handler{w.scheduler, w}, watch)
	return w, err
}

// handler has the guests do what the scheduler says at the ends of phases.
type handler struct {
	accounting.Handler
	w *world
}

// PollEnded implements [accounting.Handler].
func (h handler) PollEnded(p *accounting.Phase) accounting.Plan {
	defer h.w.obey()
	return h.Handler.PollEnded(p)
}

// QuietEnded implements [accounting.Handler].
func (h handler) QuietEnded(q *accounting.Quiet) {
	h.Handler.QuietEnded(q)
	h.w.obey()
}

// at schedules do for time t.
func (w *world) at(t time.Duration, do func()) {
	w.seq++
	heap.Push(&w.coming, action{at: max(t, w.m.Now()), seq: w.seq, do: do})
}

// Now implements [accounting.Simulation].
func (w *world) Now() time.Duration { return w.m.Now() }

// Sample implements [accounting.Simulation].
func (w *world) Sample() (accounting.Status, error) {
	st := accounting.StatusOf(w.shown.State)
	st.Clock, st.Entry = w.m.Now(), accounting.EntryIdle
	if c := w.shown.Channel; w.shown.OnChan && int(c) < len(w.shown.Entries) && w.shown.Entries[c].Working() {
		st.Entry = accounting.EntryPending
	}
	return st, nil
}

// SteadyUntil implements [accounting.Simulation].
func (w *world) SteadyUntil() time.Duration { return min(w.m.Next(), w.next()) }

// next returns when the next action or timer is due.
func (w *world) next() time.Duration {
	t := machine.Never
	if len(w.coming) > 0 {
		t = w.coming[0].at
	}
	if at := w.scheduler.NextTimer(); at != 0 {
		t = min(t, at)
	}
	return t
}

// AdvanceTo implements [accounting.Simulation].
func (w *world) AdvanceTo(t time.Duration) {
	for {
		due := w.next()
		events := w.m.Step(max(min(due, t), w.m.Now()))
		w.count()
		for _, e := range events {
			w.handle(e)
		}
		now := w.m.Now()
		switch timer := w.scheduler.NextTimer(); {
		case events != nil:
		case len(w.coming) > 0 && w.coming[0].at <= now:
			heap.Pop(&w.coming).(action).do()
		case timer != 0 && timer <= now:
			w.scheduler.RunTimers()
			w.obey()
		case now >= t:
			return
		}
	}
}

// count adds the time since the last call to the guests' sums. Nothing changed in it.
func (w *world) count() {
	now := w.m.Now()
	passed := now - w.now
	if passed == 0 {
		return
	}
	w.now = now
	totals := w.m.Totals()
	lost := totals.Switching - w.switching
	if w.sent > 0 {
		lost += totals.Idle - w.idle
	}
	w.switching, w.idle = totals.Switching, totals.Idle
	stuck := time.Duration(0) // how long kernels of suspended guests ran
	for _, g := range w.guests {
		used := g.group.Usage().Busy
		g.passed = used - g.counted
		g.counted = used
		g.used += g.passed
		if g.suspended {
			stuck += g.passed
		}
	}
	for _, g := range w.guests {
		if g.outstanding == 0 {
			continue
		}
		g.working += passed
		if g.suspended {
			g.held += passed
		}
		g.available += passed - lost
		if !g.suspended || g.passed == 0 {
			g.stuck += stuck
		}
	}
}

// handle handles an event of the machine.
func (w *world) handle(e machine.Event) {
	if e.Launch == nil {
		return
	}
	k := e.Launch.Tag.(*kernel)
	if k.life != k.guest.life {
		return
	}
	switch e.Kind {
	case machine.Started:
		k.begun = true
	case machine.Evicted:
		k.evicted()
	case machine.Finished:
		k.finished()
	}
}

// changed tells the scheduler that a launch slot has changed, and does what it says.
func (w *world) changed() {
	w.scheduler.LaunchesChanged()
	w.obey()
}

// obey does what the launch slots say, a moment later.
func (w *world) obey() {
	if !w.byKernel {
		return
	}
	for _, g := range w.guests {
		for _, k := range g.kernels {
			k.obey()
		}
	}
}

// guest is a guest with one context. It implements [scheduler.Executors].
type guest struct {
	*program
	w         *world
	scheduled *scheduler.Guest
	page      *ipc.ControlPage
	group     *machine.Group
	channel   *machine.Channel
	// life counts how often the guest was attached.
	life      int
	suspended bool
	since     time.Duration // of the suspension, or of its end
	before    time.Duration // when the one before ended

	kernels     []*kernel // submitted and not ended, in order
	fetched     int       // of them
	outstanding int
	ended       ipc.Counters

	// used is the GPU time of all lives, working how long there were kernels, available how much of
	// that the GPU did not switch contexts or wait for a launch on its way to it, and stuck how much
	// of that kernels of others ran that were suspended.
	used, working, available, stuck time.Duration
	// held is how much of working the guest was suspended.
	held time.Duration
	// counted is the group's use that used has, and passed what the newest time added to it.
	counted, passed time.Duration
	lifeWorked      time.Duration // working when the life began
}

// attach begins a life of the guest.
func (w *world) attach(p *program) (g *guest, err error) {
	g = p.guest
	if g == nil {
		g = &guest{program: p, w: w}
		p.guest = g
		w.guests = append(w.guests, g)
	}
	g.life++
	g.kernels, g.fetched, g.outstanding, g.suspended = nil, 0, 0, false
	g.ended, g.counted, g.passed = ipc.Counters{}, 0, 0
	g.since, g.lifeWorked = w.m.Now(), g.working
	if g.group, err = w.m.NewGroup(); err != nil {
		return nil, err
	}
	if g.channel, err = g.group.NewChannel(); err != nil {
		return nil, err
	}
	o := scheduler.GuestOptions{Name: p.name, Terms: p.terms, Executors: g}
	if p.joins != nil {
		o.Budget = p.joins()
	}
	if w.byKernel {
		if g.page, err = ipc.NewControlPage(); err != nil {
			return nil, err
		}
		g.page.Context(0).SetLeavesUnstarted()
		o.Page = g.page
	}
	g.scheduled = scheduler.NewGuest(o)
	w.scheduler.Add(g.scheduled)
	w.announce(g)
	return g, nil
}

// detach ends a life of the guest, and with it the guest's kernels.
func (g *guest) detach() error {
	w := g.w
	w.scheduler.Remove(g.scheduled)
	g.life++
	g.kernels, g.fetched, g.outstanding = nil, 0, 0
	g.group.Close()
	w.announce(g)
	if g.page == nil {
		return nil
	}
	page := g.page
	g.page = nil
	return page.Close()
}

// announce tells the scheduler that a guest came or went.
func (w *world) announce(g *guest) {
	w.scheduler.Changed(g.scheduled.ID())
	w.sampler.Notify(0)
	w.obey()
}

// Activity implements [scheduler.Executors].
func (g *guest) Activity(time.Duration) scheduler.Activity {
	a := scheduler.Activity{
		Contexts: 1, Grouped: 1, Outstanding: uint64(g.fetched), Backlog: g.outstanding > g.fetched, Counters: g.ended,
		Worked: g.working - g.lifeWorked,
	}
	a.Working = min(g.outstanding, 1)
	return a
}

// Outstanding implements [scheduler.Executors].
func (g *guest) Outstanding(context int) uint64 {
	if context != 0 {
		return 0
	}
	return uint64(g.fetched)
}

// Groups implements [scheduler.Executors].
func (g *guest) Groups(f func(accounting.GroupID)) { f(accounting.GroupID(g.group.ID())) }

// Generation implements [scheduler.Executors]. The context comes and goes with the guest.
func (g *guest) Generation() uint64 { return 0 }

// Publish implements [scheduler.Executors].
func (g *guest) Publish(o scheduler.Orders) {
	if g.page != nil {
		g.page.SetMode(o.Mode)
		g.page.SetTerms(o.Terms)
	}
	if o.Suspend == g.suspended {
		return
	}
	g.w.count()
	g.suspended, g.before, g.since = o.Suspend, g.since, g.w.m.Now()
	g.fetch()
}

// action is a function to run at a given time.
type action struct {
	at  time.Duration
	seq uint64
	do  func()
}

// actions is a heap ordered by time, and by insertion for equal times.
type actions []action

func (h actions) Len() int { return len(h) }

func (h actions) Less(i, k int) bool {
	return cmp.Or(cmp.Compare(h[i].at, h[k].at), cmp.Compare(h[i].seq, h[k].seq)) < 0
}

func (h actions) Swap(i, k int) { h[i], h[k] = h[k], h[i] }

func (h *actions) Push(x any) { *h = append(*h, x.(action)) }

func (h *actions) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = action{}
	*h = old[:len(old)-1]
	return x
}

// check panics with an error that can't be: the world keeps its own promises to the machine.
func check(what string, err error) {
	if err != nil {
		panic(fmt.Sprintf("quotas: %s: %v", what, err))
	}
}
