package accounting

import (
	"time"

	"golang.org/x/sys/unix"

	"vgpud/internal/futex"
)

// thread is the polling thread of a [Sampler].
//
// It visits its GPUs one after the other, so that exactly one is in its polling phase at a time
// (LoGA §5.6). With quiet phases five times as long as polling phases it has room for six GPUs.
// With more GPUs their quiet phases get longer, which all sums take as they are.
type thread struct {
	*Sampler
	yield yielder
	epoch time.Time     // has Go's monotonic reading, which needs no system call
	base  time.Duration // CLOCK_MONOTONIC at epoch
	cpuAt time.Duration // the thread's processor time at the last call of spentCPU
	timer *time.Timer   // of park
}

// busyHandlerDelay is how long a piece is put off if the handler still works on the last one.
const busyHandlerDelay = time.Millisecond

func newThread(s *Sampler) *thread {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return &thread{Sampler: s, timer: timer}
}

// run polls until the sampler is stopped or no GPU is left.
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
		g := t.next()
		if g == nil {
			return last
		}
		if !t.sleepUntilDue(g) {
			continue
		}
		if !g.handlerIdle() {
			g.due = t.now() + busyHandlerDelay
			continue
		}
		if err := g.visit(t); err != nil {
			last = err
			g.gone = true
			g.tell(message{kind: failed, err: err})
		}
	}
	return nil
}

// start takes the thread's priority, sets its clocks, and spreads the GPUs' first polling phases
// evenly over a round.
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
	poll, quiet := t.gpus[0].planner.Mean(Load{})
	now, n := t.now(), time.Duration(len(t.gpus))
	for i, g := range t.gpus {
		g.due = now + (poll+quiet)*time.Duration(i)/n
	}
	t.yield.slept(now, 0)
	return nil
}

// next returns the GPU whose next piece is due first, nil if none is left.
func (t *thread) next() (first *sampling) {
	for _, g := range t.gpus {
		if !g.gone && (first == nil || g.due < first.due) {
			first = g
		}
	}
	return first
}

// now implements host: the time since the thread's start.
func (t *thread) now() time.Duration { return time.Since(t.epoch) }

// stopped implements host.
func (t *thread) stopped() bool { return t.stop.Load() }

// spentCPU implements host.
func (t *thread) spentCPU() time.Duration {
	now := threadCPU()
	d := now - t.cpuAt
	t.cpuAt = now
	t.cpu.Add(int64(d))
	return d
}

// sleepUntilDue sleeps until g's next piece is due. It reports false if it was woken earlier, when
// another GPU may be due first.
func (t *thread) sleepUntilDue(g *sampling) bool {
	seen := t.wake.Load()
	now := t.now()
	for _, g := range t.gpus {
		g.expedite(now)
	}
	if t.next() != g {
		return false
	}
	if now >= g.due || t.stop.Load() {
		return !t.stop.Load()
	}
	if t.unused() {
		t.park(g.due - now)
	} else {
		_ = futex.WaitUntil(&t.wake, seen, t.base+g.due) // on any error the caller checks again
	}
	woken := t.now()
	t.yield.slept(woken, woken-now)
	return woken >= g.due
}

// unused reports whether no GPU had work lately.
func (t *thread) unused() bool {
	for _, g := range t.gpus {
		if g.load.Active > 0 {
			return false
		}
	}
	return true
}

// park sleeps for d or until woken, as goroutines do. It returns later than a futex, since another
// thread has to wake this one. But a thread that sleeps in a system call keeps its place in Go's
// scheduler, whose monitor then checks on it every few dozen microseconds: with a hundred sleeps a
// second that takes three times the processor time of the polling in between.
func (t *thread) park(d time.Duration) {
	t.timer.Reset(d)
	select {
	case <-t.timer.C:
	case <-t.wakePark:
		t.timer.Stop()
	}
}

// poll implements host. It also ends if the sampler is stopped.
func (t *thread) poll(s *sampling, until time.Duration, done func(now time.Duration) bool) error {
	for {
		now := t.now()
		s.meter.Host(now)
		if now >= until || done(now) || t.stop.Load() {
			return nil
		}
		if t.yield.due(now) {
			_ = futex.WaitUntil(&t.wake, t.wake.Load(), t.base+now+t.yield.pause)
			woken := t.now()
			t.yield.slept(woken, woken-now)
		}
		if s.watcher != nil && !s.watcher.Changed() {
			s.meter.Unchanged(1)
			continue
		}
		st, err := s.sample()
		if err != nil {
			return err
		}
		s.meter.Observe(st)
	}
}
