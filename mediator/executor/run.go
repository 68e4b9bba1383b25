package executor

import (
	"context"
	"time"

	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
)

const (
	// PollWindow is for how long an executor without work polls its rings before
	// it asks for a doorbell and sleeps: about as long as being woken takes.
	PollWindow = 200 * time.Microsecond
	// leavingWindow is the same where a kernel was told to leave, for another that is
	// urgent, and while what it left is read: to be woken takes several times as long.
	shortWaitWindow = time.Millisecond
	// urgentWindow is the same for the most urgent guest's next launch, where the daemon
	// wants no time lost.
	urgentWindow = 100 * time.Millisecond
	// fewLooks is how many looks at its rings an executor takes so soon that the wait is
	// none.
	fewPolls = 32
)

// Run serves until ctx ends. It returns nil then, or the error that made it
// impossible to sleep.
func (x *Executor) Run(ctx context.Context) error {
	rung := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		x.slot.Wake()
		close(rung)
	})
	defer func() {
		if !stop() {
			<-rung // the page is unmapped after Run
		}
	}()

	// Waits for the guest and waits for the GPU are told apart: a guest may be slow
	// with its next launch where the GPU is quick with each.
	var forGuest, forGPU pollWindow
	window := &forGuest
	var yields yieldLimiter
	now := x.o.Clock.Now()
	idleFrom, looks, limit := now, 0, x.pollLimit(now)
	for ctx.Err() == nil {
		bell := x.slot.Futex()
		looks++
		held := x.o.Page.SuspendWord(now) == ipc.Suspend
		if x.Step(held) {
			if looks > fewPolls {
				window.record(now-idleFrom, limit)
			}
			if window = &forGuest; x.busy() {
				window = &forGPU
			}
			now = x.o.Clock.Now()
			idleFrom, looks, limit = now, 0, x.pollLimit(now)
			x.priority.update(now)
			continue
		}
		d := now - idleFrom
		if !yields.blocked(now) && (d < window.length(limit) || d < shortWaitWindow && x.waitsShortly() || d < urgentWindow && x.awaitsUrgentLaunch() || x.awaitsEviction()) {
			x.yield()
			looked := x.o.Clock.Now()
			yields.yielded(now, looked)
			now = looked
			continue
		}
		if !x.arm(held) {
			continue
		}
		x.slot.AddWakeup()
		if err := x.slot.Sleep(bell, x.sleepFor(now)); err != nil {
			return err
		}
		now = x.o.Clock.Now()
		window.record(now-idleFrom, limit)
		idleFrom, looks, limit = now, 0, x.pollLimit(now)
	}
	return nil
}

// leaving is whether a kernel on the GPU was told to leave all of it, or something is
// under way that is short, as what it left behind being read.
func (x *Executor) waitsShortly() bool {
	for _, ch := range x.channels {
		if ch.job.brief() || ch.second.brief() {
			return true
		}
	}
	return false
}

// urgent is whether nobody's launches come before this guest's, and its next one is not
// to wait for an executor that is woken first.
func (x *Executor) awaitsUrgentLaunch() bool {
	p := x.o.Page
	return p.BusyWait() && p.Mode() == ipc.ModeAhead && len(x.channels) > 0
}

// watchful is whether a kernel on the GPU may be told to leave at any time, where the
// daemon wants no time lost then.
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

// mayLeave is whether the job is on the GPU, and leaves it when told. A nil job does
// not.
func (j *job) mayLeave() bool {
	return j != nil && j.p != nil && j.phase == running && j.form != 0 && !j.plan.Stay && !j.lied
}

// brief is whether what the job waits for is soon over. A nil job waits for nothing.
func (j *job) brief() bool {
	if j == nil || j.p == nil {
		return false
	}
	switch j.phase {
	case waiting:
		// For one that is urgent others leave now.
		return j.stub.Priority > 0 && j.claim.State() == slotstate.Ready
	case preparing, reading, listing:
		return true
	case running:
		return j.told && j.below >= uint32(j.ch.x.props.SMs)
	}
	return false
}

// busy is whether commands are unfinished, so that the next thing to happen is
// the GPU's to do.
func (x *Executor) busy() bool {
	for _, ch := range x.channels {
		if ch.busy() {
			return true
		}
	}
	return false
}

// arm prepares to sleep: every channel asks for a doorbell, and what is on the
// GPU for a ring of the bell. It reports false where there is work after all.
func (x *Executor) arm(held bool) bool {
	idle := true
	for _, ch := range x.channels {
		if !ch.arm(held) {
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

// ask has the bell rung for what the channel waits for on the GPU.
func (ch *channel) ask() {
	ch.waiter.ask(ch.oldest())
	ch.job.ask()
	ch.second.ask()
}

// crowd is who else wants the processor. Linux takes a yield for the end of the thread's
// claim, whatever its priority: until it is back all others there have had their turns,
// which on a busy host takes from tens of milliseconds to seconds. A thread that sleeps
// instead has its precedence when it is woken. So where a yield took long there is no
// polling for a while.
type yieldLimiter struct {
	until time.Duration // on the executor's clock
}

const (
	// hogged is how long a yield takes at least if who had the processor meanwhile was none
	// of those that the executor polls for: these have little to do.
	longYield = 300 * time.Microsecond
	// crowdTimes is for how many times as long as it took there is no other yield.
	yieldBackoff = 50
)

// yielded takes in from when to when it took to yield once.
func (c *yieldLimiter) yielded(from, to time.Duration) {
	if took := to - from; took > longYield {
		c.until = to + yieldBackoff*took
	}
}

// there reports whether others are, at now.
func (c *yieldLimiter) blocked(now time.Duration) bool { return now < c.until }

// pollWindow is how long polling is worth while: the whole window where recent
// waits mostly ended within it, and next to none where they did not, as while
// a long kernel runs. Even then it is tried now and then: since sleeping makes
// waits longer, they might be short without. Where the daemon allows more, longer
// waits are polled too: see [longPoll].
type pollWindow struct {
	misses int // of the last waits, those that outlasted the window: a score
	waits  uint
	long   longPoll
}

const (
	maxMisses     = 3
	probeInterval = 16 // waits
)

// ended tells how long a wait took that might have been polled for up to limit.
func (w *pollWindow) record(d, limit time.Duration) {
	w.waits++
	w.long.record(d, limit)
	if d > PollWindow {
		w.misses = min(w.misses+1, maxMisses)
	} else {
		w.misses = max(w.misses-1, 0)
	}
}

// length is how long to poll now, where limit is the most that the daemon allows.
func (w *pollWindow) length(limit time.Duration) time.Duration {
	length := PollWindow
	if w.misses >= maxMisses && w.waits%probeInterval != 0 {
		length = PollWindow / 20
	}
	return max(length, w.long.length(limit))
}
