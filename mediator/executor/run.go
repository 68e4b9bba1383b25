package executor

import (
	"context"
	"time"

	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
)

const (
	// PollWindow is how long an executor without work polls its rings before it asks for a doorbell
	// and sleeps: about as long as waking takes.
	PollWindow = 200 * time.Microsecond
	// shortWaitWindow is the same while a kernel leaves for an urgent one, and while what it left
	// is read: waking takes several times as long.
	shortWaitWindow = time.Millisecond
	// urgentWindow is the same for the most urgent guest's next launch, if the daemon asks for busy
	// waiting.
	urgentWindow = 100 * time.Millisecond
	// fewPolls is the number of polls of a wait that is too short to count.
	fewPolls = 32
)

// Run carries out commands until ctx ends, or until the context has left: see [Executor.Save]. It
// returns nil then, or an error if it can't sleep.
func (x *Executor) Run(ctx context.Context) error {
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		x.slot.Wake()
		close(woken)
	})
	defer func() {
		if !stop() {
			<-woken // the page is unmapped after Run
		}
	}()

	// Waits for the guest and waits for the GPU have windows of their own: a guest may be slow with
	// its next launch while the GPU is fast with each.
	var forGuest, forGPU pollWindow
	window := &forGuest
	var yields yieldLimiter
	now := x.o.Clock.Now()
	idleFrom, polls, limit := now, 0, x.pollLimit(now)
	for ctx.Err() == nil && !x.gone {
		futex := x.slot.Futex()
		polls++
		suspended := x.o.Page.SuspendWord(now) == ipc.Suspend
		if x.Step(suspended) {
			if polls > fewPolls {
				window.record(now-idleFrom, limit)
			}
			if window = &forGuest; x.busy() {
				window = &forGPU
			}
			now = x.o.Clock.Now()
			idleFrom, polls, limit = now, 0, x.pollLimit(now)
			x.priority.update(now)
			continue
		}
		d := now - idleFrom
		if !yields.blocked(now) && (d < window.length(limit) || d < shortWaitWindow && x.waitsShortly() || d < urgentWindow && x.awaitsUrgentLaunch() || x.awaitsEviction()) {
			x.yield()
			back := x.o.Clock.Now()
			yields.yielded(now, back)
			now = back
			continue
		}
		if !x.arm(suspended || x.leaving != nil) {
			continue
		}
		x.slot.AddWakeup()
		if err := x.slot.Sleep(futex, x.sleepFor(now)); err != nil {
			return err
		}
		now = x.o.Clock.Now()
		window.record(now-idleFrom, limit)
		idleFrom, polls, limit = now, 0, x.pollLimit(now)
	}
	return nil
}

// waitsShortly reports whether a kernel was told to leave all of the GPU, or something short is
// under way, such as reading what it left.
func (x *Executor) waitsShortly() bool {
	for _, ch := range x.channels {
		if ch.job.waitsShortly() || ch.second.waitsShortly() {
			return true
		}
	}
	return false
}

// awaitsUrgentLaunch reports whether no guest's launches go before this guest's, and the daemon
// asks for busy waiting for its next one.
func (x *Executor) awaitsUrgentLaunch() bool {
	p := x.o.Page
	return p.BusyWait() && p.Mode() == ipc.ModeAhead && len(x.channels) > 0
}

// awaitsEviction reports whether a kernel on the GPU may be told to leave at any time, and the
// daemon asks for busy waiting for that.
func (x *Executor) awaitsEviction() bool {
	if p := x.o.Page; !p.BusyWait() || p.Mode() != ipc.ModeByKernel {
		return false
	}
	for _, ch := range x.channels {
		if ch.job.mayLeave() || ch.second.mayLeave() {
			return true
		}
	}
	return false
}

// mayLeave reports whether the job is on the GPU and leaves it when told. A nil job does not.
func (j *job) mayLeave() bool {
	return j != nil && j.p != nil && j.state.onGPU() && j.form != 0 && !j.plan.Stay && !j.total.unresponsive
}

// waitsShortly reports whether what the job waits for is soon over. A nil job waits for nothing.
func (j *job) waitsShortly() bool {
	if j == nil || j.p == nil {
		return false
	}
	switch j.state {
	case waiting:
		// Other launches leave for an urgent one.
		return j.urgency > 0 && j.slot.State() == slotstate.Ready
	case preparing, readingControl, readingSkipped:
		return true
	case preempted, over:
		return false
	}
	return j.run.below >= uint32(j.ch.x.props.SMs)
}

// busy reports whether commands are unfinished, so that the next event is the GPU's.
func (x *Executor) busy() bool {
	for _, ch := range x.channels {
		if ch.busy() {
			return true
		}
	}
	return false
}

// arm prepares to sleep: every channel asks for a doorbell, and to be woken by what is on the GPU.
// It reports false if there is work after all.
func (x *Executor) arm(suspended bool) bool {
	idle := true
	for _, ch := range x.channels {
		ch.accountDeferred()
		if !ch.arm(suspended) {
			idle = false
		}
		ch.ask()
	}
	for _, ch := range x.draining {
		ch.ask()
	}
	x.zeroes.ask()
	return idle
}

// ask has the executor woken by what the channel waits for on the GPU.
func (ch *channel) ask() {
	ch.waiter.ask(ch.oldest())
	ch.job.awaitFences()
	ch.second.awaitFences()
}

// yieldLimiter keeps an executor from yielding while other threads want its processor. Linux runs
// all of them before a thread that yields, whatever its priority, which on a busy host takes from
// tens of milliseconds to seconds. A thread that sleeps instead has its priority when it is woken.
// So after a long yield the executor does not poll for a while.
type yieldLimiter struct {
	until time.Duration // on the executor's clock
}

const (
	// longYield is the time of a yield from which on another thread than those that the executor
	// polls for has had the processor: those have little to do.
	longYield = 300 * time.Microsecond
	// yieldBackoff is for how many times the time of a long yield there is no other.
	yieldBackoff = 50
)

// yielded records a yield.
func (l *yieldLimiter) yielded(from, to time.Duration) {
	if took := to - from; took > longYield {
		l.until = to + yieldBackoff*took
	}
}

// blocked reports whether the executor must not yield at now.
func (l *yieldLimiter) blocked(now time.Duration) bool { return now < l.until }

// pollWindow decides for how long to poll: for the whole window if recent waits mostly ended within
// it, and for next to no time if they did not, as while a long kernel runs. Even then it polls now
// and then: sleeping makes waits longer, so they might be short without. If the daemon allows more,
// longer waits are polled too: see [longPoll].
type pollWindow struct {
	misses int // of the last waits, those that outlasted the window: a score
	waits  uint
	long   longPoll
}

const (
	maxMisses     = 3
	probeInterval = 16 // waits
)

// record records how long a wait took that might have been polled for up to limit.
func (w *pollWindow) record(d, limit time.Duration) {
	w.waits++
	w.long.record(d, limit)
	if d > PollWindow {
		w.misses = min(w.misses+1, maxMisses)
	} else {
		w.misses = max(w.misses-1, 0)
	}
}

// length returns for how long to poll now; limit is the most that the daemon allows.
func (w *pollWindow) length(limit time.Duration) time.Duration {
	length := PollWindow
	if w.misses >= maxMisses && w.waits%probeInterval != 0 {
		length = PollWindow / 20
	}
	return max(length, w.long.length(limit))
}
