package main

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"vgpud/accounting"
	"vgpud/fairshare"
	"vgpud/gpu"
	"vgpud/gpu/soft/machine"
	"vgpud/gpu/soft/machine/blocks"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
	"vgpud/mediator/scheduler"
)

// react is the time that a verdict takes to reach the GPU: the daemon's doorbell, the executor's
// wakeup and its call. It is an assumption; on an H100 a launch call takes 2.7 µs, and an answer
// through memory 2 µs.
const react = 10 * time.Microsecond

// contextSwitch is the time that the GPU takes to switch from one program's context to another's
// that had been idle, as measured on an H100 (machine.Config).
const contextSwitch = 135 * time.Microsecond

// options configures a world.
type options struct {
	policy string
	// switching is the cost of a context switch, or 0 if all programs share one context (MPS).
	switching time.Duration
	weights   []float64 // of guests; nil: 1 each
	overhead  float64   // ffs' bound; 0 means its default
	seed      uint64
}

// job is one launch of a program.
type job struct {
	guest    int
	program  *program
	priority int
	done     func(*job) // called when it has ended; may be nil

	began, ended, arrived time.Duration
	left                  float64 // fraction of the kernel
	used                  time.Duration
	evictions             int
	asked                 time.Duration // when it was last told to leave
	latencies             []time.Duration

	claim            ipc.Claim // its launch slot
	running, leaving bool      // the executor has seen that it has its turn, or is to leave
	begun            bool      // its blocks execute
	launch           machine.Launch
}

// turnaround returns the time from arrival to end.
func (j *job) turnaround() time.Duration { return j.ended - j.arrived }

// world simulates programs on a GPU that the scheduler shares. It plays the executors' part: it
// claims a launch slot for each launch, and does on the machine what the slot says.
type world struct {
	options
	m         *machine.Machine
	scheduler *scheduler.Scheduler
	guests    []*guest
	kernels   map[*program]uint64
	rng       *rand.Rand

	coming actions
	seq    uint64
	jobs   []*job // present
	total  int    // evictions
}

// guest is one guest, which has one context. It implements [scheduler.Executors].
type guest struct {
	w       *world
	number  int
	page    *ipc.ControlPage
	group   *machine.Group
	channel *machine.Channel
	ended   ipc.Counters
}

// Activity implements [scheduler.Executors].
func (g *guest) Activity(time.Duration) scheduler.Activity {
	a := scheduler.Activity{Contexts: 1, Grouped: 1, Outstanding: g.Outstanding(0), Counters: g.ended, Worked: g.group.Usage().Busy}
	for _, j := range g.w.jobs {
		if j.guest == g.number {
			a.Working, a.Backlog = 1, a.Backlog || !j.launch.Queued()
		}
	}
	return a
}

// Outstanding implements [scheduler.Executors].
func (g *guest) Outstanding(context int) (n uint64) {
	for _, j := range g.w.jobs {
		if context == 0 && j.guest == g.number && j.launch.Queued() {
			n++
		}
	}
	return n
}

// Groups implements [scheduler.Executors].
func (g *guest) Groups(f func(accounting.GroupID)) { f(accounting.GroupID(g.group.ID())) }

// Generation implements [scheduler.Executors]. No context ever comes or goes.
func (g *guest) Generation() uint64 { return 0 }

// Publish implements [scheduler.Executors]. Policies about launches suspend nobody.
func (g *guest) Publish(o scheduler.Orders) {
	g.page.SetMode(o.Mode)
	g.page.SetTerms(o.Terms)
}

// worldClock is the machine's time. Nothing waits for it: the world calls the scheduler.
type worldClock struct{ *machine.Machine }

// WaitUntil implements clock.Clock.
func (worldClock) WaitUntil(ctx context.Context, _ time.Duration) error {
	<-ctx.Done()
	return ctx.Err()
}

// mostUrgent is above every priority of the papers.
const mostUrgent = 64

// newWorld returns a world of guests without launches. The caller closes it.
func newWorld(guests int, o options) (*world, error) {
	cfg := machine.Config{SMs: blocks.H100.SMs, Overhead: -1, ExclusiveSwitch: o.switching}
	if o.switching == 0 {
		cfg.ExclusiveSwitch = -1
	}
	w := &world{options: o, m: machine.New(cfg, 0, nil), kernels: make(map[*program]uint64), rng: rand.New(rand.NewPCG(o.seed, 3))}
	var err error
	w.scheduler, err = scheduler.New(scheduler.Options{
		Name: "gpu0", Clock: worldClock{w.m}, Log: slog.New(slog.DiscardHandler), Policy: o.policy,
		// The papers do not limit a guest's evictions.
		PolicyOptions: fairshare.Options{Evictions: fairshare.Rate{PerSecond: -1}, MaxOverhead: o.overhead, AtOnce: true},
		GPU:           scheduler.GPU{Properties: gpu.Properties{SMs: blocks.H100.SMs}, Watch: accounting.Config{}.WithDefaults()},
	})
	if err != nil {
		return nil, err
	}
	for i := range guests {
		if err := w.add(i); err != nil {
			return nil, errors.Join(fmt.Errorf("guest %d: %w", i, err), w.close())
		}
	}
	w.scheduler.Changed(0)
	return w, nil
}

// add adds a guest.
func (w *world) add(i int) error {
	g := &guest{w: w, number: i}
	var err error
	if g.page, err = ipc.NewControlPage(); err != nil {
		return err
	}
	w.guests = append(w.guests, g)
	if g.group, err = w.m.NewGroup(); err != nil {
		return err
	}
	if g.channel, err = g.group.NewChannel(); err != nil {
		return err
	}
	g.page.Context(0).SetLeavesUnstarted()
	terms := ipc.Terms{Weight: 1, PriorityCeiling: mostUrgent}
	if w.weights != nil {
		terms.Weight = w.weights[i]
	}
	w.scheduler.Add(scheduler.NewGuest(scheduler.GuestOptions{Name: fmt.Sprint("guest ", i), Terms: terms, Page: g.page, Executors: g}))
	return nil
}

// close frees the guests' pages.
func (w *world) close() (err error) {
	for _, g := range w.guests {
		err = errors.Join(err, g.page.Close())
	}
	return err
}

// at schedules do for time t.
func (w *world) at(t time.Duration, do func()) {
	w.seq++
	heap.Push(&w.coming, action{at: max(t, w.m.Now()), seq: w.seq, do: do})
}

// arrive schedules a job's arrival for time t.
func (w *world) arrive(t time.Duration, j *job) {
	j.left = 1
	j.launch.Tag = j
	w.at(t, func() {
		j.arrived = w.m.Now()
		w.jobs = append(w.jobs, j)
		page := w.guests[j.guest].page
		var ok bool
		if j.claim, ok = page.Claim(0, w.describe(j)); !ok {
			panic("preempt: a guest has more launches at a time than a page has slots")
		}
		if page.Mode() == ipc.ModeAhead {
			j.claim.Grant()
		}
		w.changed()
	})
}

// describe returns what the executor of a job knows of it. The run time that it has measured is the
// program's own, as if the kernel had run before.
func (w *world) describe(j *job) *ipc.Launch {
	p := j.program
	id, ok := w.kernels[p]
	if !ok {
		id = uint64(len(w.kernels)) + 1
		w.kernels[p] = id
	}
	l := &ipc.Launch{
		Kernel: id, Arrived: j.arrived, Predicted: p.length, Priority: j.priority, Evictable: p.evictable(),
		Blocks: uint32(p.kernel.Tasks), Tasks: uint32(p.kernel.Tasks), PerSM: uint32(p.kernel.PerSM),
	}
	if l.Evictable {
		l.Form = 1
	}
	return l
}

// changed tells the scheduler that a launch slot has changed, and does what it says.
func (w *world) changed() {
	w.scheduler.LaunchesChanged()
	w.obey()
}

// obey does what the launch slots say, a moment later.
func (w *world) obey() {
	now := w.m.Now()
	for _, j := range w.jobs {
		state := j.claim.State()
		if state.OnGPU() && !j.running {
			j.running = true
			w.at(now+react, func() { w.submit(j) })
		}
		switch {
		case state == slotstate.ToEvict && !j.leaving:
			j.leaving, j.asked = true, now
			w.at(now+react, func() { w.evict(j) })
		case state != slotstate.ToEvict:
			j.leaving = false // it may stay
		}
	}
}

// run advances the simulation to the given time, or until no launches remain.
func (w *world) run(until time.Duration) {
	for len(w.coming) > 0 || len(w.jobs) > 0 {
		next := until
		if at := w.scheduler.NextTimer(); at != 0 {
			next = min(next, at)
		}
		if len(w.coming) > 0 {
			next = min(next, w.coming[0].at)
		}
		if next == machine.Never && w.m.Next() == machine.Never {
			panic(fmt.Sprintf("preempt: %d launches wait under %s and nothing will happen", len(w.jobs), w.policy))
		}
		if events := w.m.Step(min(max(next, w.m.Now()), max(w.m.Next(), w.m.Now()))); events != nil {
			for _, e := range events {
				w.handle(e)
			}
			continue
		}
		now, timer := w.m.Now(), w.scheduler.NextTimer()
		switch {
		case len(w.coming) > 0 && w.coming[0].at <= now:
			heap.Pop(&w.coming).(action).do()
		case timer != 0 && timer <= now:
			w.scheduler.RunTimers()
			w.obey()
		case now >= until:
			return
		}
	}
}

// handle handles an event of the machine.
func (w *world) handle(e machine.Event) {
	if e.Launch == nil {
		return
	}
	j := e.Launch.Tag.(*job)
	switch e.Kind {
	case machine.Started:
		if j.begun = true; j.used == 0 {
			j.began = w.m.Now()
		}
	case machine.Evicted:
		w.evicted(j)
	case machine.Finished:
		j.used += e.Launch.Elapsed()
		j.begun, j.ended, j.left = false, w.m.Now(), 0
		w.forget(j)
		g := w.guests[j.guest]
		g.ended.Kernels++
		g.ended.GPUTime += j.used
		j.claim.Finish(j.used)
		w.changed()
		if j.done != nil {
			j.done(j)
		}
	}
}

func (w *world) forget(j *job) {
	for i := range w.jobs {
		if w.jobs[i] == j {
			w.jobs = append(w.jobs[:i], w.jobs[i+1:]...)
			return
		}
	}
}

// evicted handles a job that has left the GPU.
func (w *world) evicted(j *job) {
	j.used += j.launch.Elapsed()
	j.running, j.leaving, j.begun = false, false, false
	j.evictions++
	j.latencies = append(j.latencies, w.m.Now()-j.asked)
	w.total++
	j.claim.Leave(w.m.Now(), j.used)
	w.changed()
}

// submit launches the rest of a job on the GPU.
func (w *world) submit(j *job) {
	j.launch.Work = machine.Work{Duration: j.program.rest(j.left)}
	if err := w.guests[j.guest].channel.Submit(&j.launch); err != nil {
		panic("preempt: " + err.Error()) // cannot fail: the channel is open and the job is not in it
	}
	j.claim.Start(w.m.Now())
}

// remaining returns the fraction of the kernel still to do, taking the present run's progress into
// account.
func (j *job) remaining() float64 {
	if !j.begun {
		return j.left
	}
	return (1 - min(float64(j.launch.Elapsed())/float64(max(j.launch.Duration, 1)), 1)) * j.left
}

// evict applies an eviction.
func (w *world) evict(j *job) {
	switch {
	case !j.leaving: // it has ended meanwhile
	case !j.begun:
		// The job waits in its channel, so the executor takes it back.
		w.m.Kill(&j.launch)
		w.evicted(j)
	default:
		done := j.left - j.remaining()
		l := j.program.sampleEviction(1-j.left+done, w.rng)
		w.m.Evict(&j.launch, l.latency)
		j.left = max(j.left-done-l.gain, 0)
	}
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
	return h[i].at < h[k].at || h[i].at == h[k].at && h[i].seq < h[k].seq
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
