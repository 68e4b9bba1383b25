package accounting

import (
	"math"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/internal/futex"
)

// thread is the polling thread of a [Sampler].
type thread struct {
	*Sampler
	turns turns
	yield yielder
	epoch time.Time     // with Go's monotonic reading, which needs no system call
	base  time.Duration // CLOCK_MONOTONIC at epoch
	cpuAt time.Duration // the thread's CPU time at the newest phase's end
	alarm *time.Timer   // of park
}

// busyHandler is how much later a GPU is polled whose handler still works.
const busyHandler = time.Millisecond

func newThread(s *Sampler) *thread {
	alarm := time.NewTimer(time.Hour)
	alarm.Stop()
	return &thread{Sampler: s, alarm: alarm}
}

// run watches until the sampler is stopped.
func (t *thread) run() error {
	if err := t.start(); err != nil {
		return err
	}
	defer func() {
		for _, g := range t.gpus {
			close(g.messages)
		}
	}()
	var last error
	for !t.stop.Load() {
		i, ok := t.turns.next()
		if !ok {
			return last
		}
		g := t.gpus[i]
		if !t.sleepUntilDue(i) {
			continue
		}
		if !g.idle() {
			t.turns[i].due = t.now() + busyHandler
			continue
		}
		if err := t.visit(i); err != nil {
			last = err
			t.turns[i].gone = true
			g.tell(message{kind: failed, err: err})
		}
	}
	return nil
}

// start takes the thread's priority and sets its clocks.
func (t *thread) start() error {
	priority := Priority{Reason: "not asked for"}
	if t.options.Priority > 0 {
		priority = raisePriority(t.options.Priority)
	}
	t.priority.Store(&priority)
	if t.options.Pinned {
		if err := pin(t.options.CPU); err != nil {
			return err
		}
	}
	share, err := realtimeShare(t.options.ProcRoot)
	if err != nil {
		return err
	}
	if priority.Realtime {
		t.yield = newYielder(share)
	}
	var ts unix.Timespec
	t.epoch = time.Now()
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return err
	}
	t.base = time.Duration(ts.Nano())
	t.cpuAt = threadCPU()
	for _, g := range t.gpus {
		if e, ok := g.Source.(EntryReader); ok {
			e.ReadEntries(g.Config.Idle != IdleByBusy)
		}
	}
	poll, quiet := t.gpus[0].planner.Mean(Load{})
	t.turns = stagger(len(t.gpus), t.now(), poll+quiet)
	t.yield.slept(t.now(), 0)
	return nil
}

// now is the host's time since the thread's start.
func (t *thread) now() time.Duration { return time.Since(t.epoch) }

// spent is the processor time used since it was last asked.
func (t *thread) spent() time.Duration {
	now := threadCPU()
	d := now - t.cpuAt
	t.cpuAt = now
	t.cpu.Add(int64(d))
	return d
}

// sleepUntilDue sleeps until GPU i is due, and reports false when it was woken
// before, and turns may be in another order.
func (t *thread) sleepUntilDue(i int) bool {
	seen := t.wake.Load()
	t.bringForward()
	if first, _ := t.turns.next(); first != i {
		return false // another's round ends early
	}
	now := t.now()
	due := t.turns[i].due
	if now >= due || t.stop.Load() {
		return !t.stop.Load()
	}
	if t.unused() {
		t.park(due - now)
	} else {
		// All its errors (time out, value changed, signal) mean: look again.
		_ = futex.WaitUntil(&t.wake, seen, t.base+due)
	}
	woken := t.now()
	t.yield.slept(woken, woken-now)
	return woken >= due
}

// unused is whether no GPU had work lately.
func (t *thread) unused() bool {
	for _, g := range t.gpus {
		if g.load.Active > 0 {
			return false
		}
	}
	return true
}

// park sleeps for d or until roused, as goroutines do. It comes back later than
// a futex, since another thread has to wake this one. But a thread that sleeps
// in a system call keeps its place in Go's scheduler, whose monitor then looks at
// it every few dozen microseconds: with a hundred sleeps a second, three times the
// processor time that the polling in between takes.
func (t *thread) park(d time.Duration) {
	t.alarm.Reset(d)
	select {
	case <-t.alarm.C:
	case <-t.roused:
		t.alarm.Stop()
	}
}

// bringForward makes the GPUs due at once whose round is to end early.
func (t *thread) bringForward() {
	now := t.now()
	for i, g := range t.gpus {
		if g.hurried(now) {
			t.turns[i].due = min(t.turns[i].due, now)
		} else if g.notified.Load() {
			t.turns[i].due = min(t.turns[i].due, g.began+g.round/hurry)
		}
	}
}

// visit polls GPU i for one piece. If it is the round's last, the handler is
// asked, and what it wants watched is watched.
func (t *thread) visit(i int) error {
	g := t.gpus[i]
	if err := t.begin(g); err != nil {
		return err
	}
	if err := t.watch(g, t.now()+g.piece.Poll, g.hurried); err != nil {
		return err
	}
	st, err := g.sample()
	if err != nil {
		return err
	}
	now := t.now()
	if !g.piece.Last && !g.hurried(now) && !t.stop.Load() {
		g.meter.Pause(st)
		g.left = st.Clock
		g.piece = g.planner.Next(g.load)
		t.turns[i].due = now + g.piece.Pause
		return nil
	}
	g.notified.Store(false)
	g.inside = false
	g.tellQuiet()
	g.meter.Cut(st, &g.polled)
	g.polled.CPU = t.spent()
	g.tell(message{kind: pollEnded})

	if err := t.watchOn(g, now); err != nil || t.stop.Load() {
		return err
	}
	if st, err = g.sample(); err != nil {
		return err
	}
	g.meter.Cut(st, &g.rest.Watched)
	g.rest.Watched.CPU = t.spent()
	g.resting, g.left = true, st.Clock
	t.turns[i].due = now + g.piece.Pause
	return nil
}

// begin starts GPU g's next piece. Where the GPU is polled all the time nothing
// was missed, and the meter just goes on.
func (t *thread) begin(g *watched) error {
	if !g.inside && g.resting && g.Config.Full {
		g.inside = true
		g.tellQuiet()
		return nil
	}
	st, err := g.sample()
	if err != nil {
		return err
	}
	if g.resting {
		g.quiet += st.Clock - g.left
	}
	if g.inside {
		g.meter.Resume(st)
		return nil
	}
	g.inside = true
	g.load = g.plan.Load // an answer that came too late for this round
	g.meter.Begin(st)
	if g.piece.Last {
		g.tellQuiet() // the whole quiet phase is over
	}
	return nil
}

// watchOn polls on after a phase's end at the host's time ended, until the
// handler has answered, and for as long as it says.
func (t *thread) watchOn(g *watched, ended time.Duration) error {
	patience := Patience
	if g.Config.Full {
		patience = time.Duration(math.MaxInt64) - ended
	}
	err := t.watch(g, ended+patience, func(time.Duration) bool { return g.idle() })
	if err != nil {
		return err
	}
	if !g.idle() {
		g.newRound(ended)
		return nil
	}
	g.load = g.plan.Load
	g.newRound(ended)
	if on := g.plan.WatchOn; on > 0 {
		if err := t.watch(g, ended+on, func(time.Duration) bool { return false }); err != nil {
			return err
		}
	}
	if len(g.plan.Await) == 0 {
		return nil
	}
	atMost := g.plan.AwaitAtMost
	if atMost <= 0 {
		_, atMost = g.planner.Mean(g.load)
	}
	return t.watch(g, ended+atMost, func(time.Duration) bool { return !executes(g.meter, g.plan.Await) })
}

// watch is the polling loop. It ends at the host's time until, when done says
// so, or when the sampler is stopped.
func (t *thread) watch(g *watched, until time.Duration, done func(now time.Duration) bool) error {
	for {
		now := t.now()
		g.meter.Host(now)
		if now >= until || done(now) || t.stop.Load() {
			return nil
		}
		if t.yield.due(now) {
			_ = futex.WaitUntil(&t.wake, t.wake.Load(), t.base+now+t.yield.pause)
			woken := t.now()
			t.yield.slept(woken, woken-now)
		}
		if g.watcher != nil && !g.watcher.Changed() {
			g.meter.Unchanged(1)
			continue
		}
		st, err := g.sample()
		if err != nil {
			return err
		}
		g.meter.Observe(st)
	}
}
