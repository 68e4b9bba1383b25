package driver

import (
	"context"
	"errors"
	"runtime"
	"time"

	"vgpud/internal/sched"
	"vgpud/mediator/vgpu/abi"
)

// target is what a goroutine waits for: a command, or any command past an index.
type target struct {
	command *Pending
	past    uint64
}

func (g target) reached(ch *Channel) bool {
	if g.command != nil {
		return !g.command.busy.Load()
	}
	return ch.head.Load() > g.past
}

// await waits for a target. One of the goroutines that wait reads the completions for all.
func (ch *Channel) await(ctx context.Context, g target) error {
	for {
		if g.reached(ch) {
			return nil
		}
		select {
		case ch.leader <- struct{}{}:
			var err error
			if gone := ch.dev.touch(func() { err = ch.drive(ctx, g) }); gone != nil {
				ch.fail(gone)
				err = ch.abandon()
			}
			<-ch.leader
			if ch.waiters.Load() > 0 {
				ch.progress.notify() // one of the others leads now
			}
			return err
		default:
		}
		if err := ch.follow(ctx, g); err != nil {
			return err
		}
	}
}

// follow waits until the leader has made progress or has left.
func (ch *Channel) follow(ctx context.Context, g target) error {
	ch.waiters.Add(1)
	defer ch.waiters.Add(-1)
	moved := ch.progress.wait()
	if g.reached(ch) {
		return nil
	}
	if len(ch.leader) == 0 {
		return nil // it left before it could see us
	}
	ch.wake() // it may otherwise sleep until its own target is reached
	select {
	case <-moved:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// drive reads completions until the target is reached. The caller holds ch.leader.
func (ch *Channel) drive(ctx context.Context, g target) error {
	if ch.released {
		return ch.err
	}
	for {
		n, err := ch.reap()
		if g.reached(ch) {
			return nil
		}
		if n > 0 && err == nil {
			continue
		}
		if ch.failed.Load() {
			return ch.abandon()
		}
		if err := ch.checkState(); err != nil {
			ch.fail(err)
			continue // what completed before must still be read
		}
		spin := ch.spinner()
		if spin.until(ch.reader) {
			continue
		}
		if err := ch.sleep(ctx, g, spin); err != nil {
			return err
		}
	}
}

// errUnexpected means that the host completed a command that was not sent.
var errUnexpected = errors.New("the host completed a command that was not sent")

// reap reads the available completions and hands them out. The caller holds ch.leader.
func (ch *Channel) reap() (int, error) {
	if ch.finished {
		return 0, nil
	}
	n, kick, err := ch.reader.Fetch(ch.buf)
	if n > 0 {
		head := ch.head.Load()
		for i := range ch.buf[:n] {
			p := ch.pending[head&ch.mask].Load()
			if c := &ch.buf[i]; p != nil && c.Cookie == head && p.busy.Load() {
				p.complete(c)
				head++
				continue
			}
			err = errUnexpected
			break
		}
		ch.head.Store(head)
		if ch.waiters.Load() > 0 {
			ch.progress.notify()
		}
	}
	if kick {
		if e := ch.ring(); err == nil {
			err = e
		}
	}
	if err != nil {
		ch.fail(err)
	}
	return n, err
}

// tryReap reads the available completions, unless another goroutine is reading. It does not wait.
func (ch *Channel) tryReap() {
	select {
	case ch.leader <- struct{}{}:
	default:
		return
	}
	if !ch.released {
		// Errors here are found again by those who wait.
		_ = ch.dev.touch(func() { _, _ = ch.reap() })
	}
	<-ch.leader
	if ch.waiters.Load() > 0 {
		ch.progress.notify()
	}
}

// abandon ends every command under way with the channel's error. The caller holds ch.leader.
func (ch *Channel) abandon() error {
	ch.submit.Lock()
	defer ch.submit.Unlock()
	ch.windowsMu.Lock()
	defer ch.windowsMu.Unlock()
	head := ch.head.Load()
	for ; head < ch.tail; head++ {
		p := ch.pending[head&ch.mask].Load()
		if p.busy.Load() {
			if p.window.Size != 0 {
				ch.abandonedWindows = append(ch.abandonedWindows, p.window)
				p.window = abi.Window{}
			}
			if m := p.host.Swap(nil); m != nil {
				ch.abandonedHost = append(ch.abandonedHost, m)
			}
			p.remaining, p.err = 0, ch.err
			p.form.discard()
			p.form = launchForm{}
			p.busy.Store(false)
		}
	}
	ch.head.Store(head)
	ch.finished = true
	if ch.waiters.Load() > 0 {
		ch.progress.notify()
	}
	return ch.err
}

// checkState checks in shared memory that the host still fetches the channel.
func (ch *Channel) checkState() error {
	switch state, code := abi.UnpackState[abi.ChannelState](abi.LoadWord(ch.page, abi.ChannelStateWord)); state {
	case abi.ChannelOpening, abi.ChannelReady:
		return nil
	default:
		return &Error{Status: statusOf(code), Code: code}
	}
}

// sleep asks for the channel's interrupt and waits for it.
func (ch *Channel) sleep(ctx context.Context, g target, spin *spinner) error {
	skip := 0
	if ch.waiters.Load() == 0 {
		// No other goroutine needs an earlier completion.
		last := g.past
		if g.command != nil {
			last = g.command.last
		}
		skip = int(min(last-ch.head.Load(), ch.mask))
	}
	if !ch.reader.Arm(skip) {
		return nil
	}
	var tick <-chan time.Time
	if ch.dev.bus.Vectors() == 0 {
		tick = ch.timer.next()
	}
	select {
	case <-ch.irq:
		spin.finish()
	case <-tick:
	case <-ch.dead:
	case <-ch.dev.down:
		ch.fail(ch.dev.downErr)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// spinner decides how long to poll the ring before sleeping: up to its limit if most recent waits
// were so short that polling saved the sleep, and hardly at all otherwise. So a guest that waits
// for long kernels hardly polls, and one that waits for short ones does not sleep. It judges by how
// long waits took, not by whether polling succeeded, and now and then polls up to the limit
// regardless: a sleep lengthens a wait, so otherwise a spinner that once stopped polling might
// never start again.
type spinner struct {
	limit       time.Duration
	normalLimit time.Duration // the limit for launches that are not urgent
	singleCPU   bool          // nothing can happen while we poll
	start       time.Time     // of the wait under way
	longWaits   int           // how many of the last waits were long: a score
	waits       uint
	// noYield is for how many more waits the processor isn't yielded: a process that got it kept
	// it, so it wasn't one that we wait for.
	noYield int
	// contended is for how many more waits only normalLimit applies: another process had the
	// processor during polling, or the completion came soon after polling stopped. The processes
	// that we wait for may need the processor, too.
	contended int
	overran   bool          // this wait polled for longer than normalLimit, and then slept
	fixed     time.Duration // ChannelOptions.Spin
}

const (
	minSpin         = 2 * time.Microsecond
	polledSpinLimit = 100 * time.Microsecond
	// doorbellSpinLimit adds the time that waking the host's processes takes, one after the other:
	// the virtual GPU's, the executor's, and perhaps the GPU's. A waiter that slept meanwhile would
	// be woken last.
	doorbellSpinLimit = 400 * time.Microsecond
	// urgentSpinLimit is for channels whose launches are urgent. Their kernels are short but wait
	// for others to leave the GPU, and urgency is worth the processor's time. A wait that is longer
	// grows little by a sleep.
	urgentSpinLimit = 2 * time.Millisecond
	// wakeLatency is what being woken adds to a wait. Polling would not have shortened a wait that
	// exceeds the limit by more.
	wakeLatency  = 100 * time.Microsecond
	maxLongWaits = 3
	// retryEvery is after how many waits a spinner that stopped polling tries the limit again.
	retryEvery = 16
	// preempted is the time of one polling round above which another process must have had the
	// processor for longer than carrying on a command takes.
	preempted      = 300 * time.Microsecond
	noYieldWaits   = 256
	contendedWaits = 8
	// readsPerClock is how often the ring is read between two readings of the clock.
	readsPerClock = 32
	// manyCPUs is the number of processors from which other goroutines have one without being
	// yielded it. A goroutine that is locked to a thread, as those called from C are, and yields,
	// waits for two threads to be woken before it runs again: 12 µs, as long as an empty kernel
	// takes.
	manyCPUs = 4
)

// shareCPUs reports whether goroutines wait for each other's processors. It is evaluated once,
// since GOMAXPROCS takes a lock of the scheduler.
var shareCPUs = runtime.GOMAXPROCS(0) < manyCPUs

// spinner returns the spinner for the wait that begins.
func (ch *Channel) spinner() *spinner {
	if n := ch.doorbells.Load(); n != ch.seenDoorbells {
		ch.seenDoorbells = n
		return &ch.doorbellSpin
	}
	return &ch.polledSpin
}

// newSpinner returns a spinner with the normal limit, or that of urgent launches.
func newSpinner(usual time.Duration, urgent bool) spinner {
	s := spinner{limit: usual, normalLimit: usual}
	if urgent {
		s.limit = urgentSpinLimit
	}
	return s
}

// currentLimit returns the limit of the wait under way.
func (s *spinner) currentLimit() time.Duration {
	if s.contended > 0 {
		return s.normalLimit
	}
	return s.limit
}

// budget returns how long to poll in this wait.
func (s *spinner) budget() time.Duration {
	if s.fixed != 0 {
		return s.fixed
	}
	if s.longWaits >= maxLongWaits && s.waits%retryEvery != 0 {
		return minSpin
	}
	return s.currentLimit()
}

// finish records the end of a wait.
func (s *spinner) finish() { s.observe(time.Since(s.start)) }

// observe records how long a wait took.
func (s *spinner) observe(wait time.Duration) {
	if s.overran && wait < 2*s.limit {
		s.contended = contendedWaits
	}
	if wait > s.currentLimit()+wakeLatency {
		s.longWaits = min(s.longWaits+1, maxLongWaits)
	} else {
		s.longWaits = max(s.longWaits-1, 0)
	}
}

// until polls the ring until it has a completion or the budget ends.
func (s *spinner) until(r *abi.CompletionReader) bool {
	s.start = time.Now()
	s.overran = false
	s.waits++
	budget := s.budget()
	if budget < 0 || s.singleCPU && s.fixed == 0 {
		return false
	}
	s.noYield, s.contended = max(s.noYield-1, 0), max(s.contended-1, 0)
	var last time.Duration
	for round := 0; ; round++ {
		for range readsPerClock {
			if n, err := r.Pending(); n > 0 || err != nil {
				s.finish()
				return true
			}
		}
		now := time.Since(s.start)
		longer := s.fixed == 0 && now > s.normalLimit
		if now-last > preempted {
			s.contended = contendedWaits
		}
		if now > budget || longer && s.contended > 0 {
			s.overran = longer
			return false
		}
		if now-last > preempted {
			s.noYield = noYieldWaits
		}
		if last = now; s.noYield == 0 || longer {
			// The kernel wakes the host's process on the processor that writes the doorbell, since
			// it expects the writer to sleep; a writer that polls instead would keep it waiting for
			// a time slice.
			sched.Yield()
		}
		if round&15 == 15 && shareCPUs {
			runtime.Gosched() // the host may be a goroutine of this process
		}
	}
}

// backoff produces growing pauses for a driver without interrupts.
type backoff struct {
	timer *time.Timer
	last  time.Duration
	at    time.Time
}

const (
	minBackoff = 50 * time.Microsecond
	maxBackoff = time.Millisecond
)

// next returns a channel that fires after the next pause. Pauses grow while they follow each other
// closely.
func (p *backoff) next() <-chan time.Time {
	now := time.Now()
	if now.Sub(p.at) > p.last+maxBackoff {
		p.last = 0
	}
	p.last = min(max(2*p.last, minBackoff), maxBackoff)
	p.at = now
	if p.timer == nil {
		p.timer = time.NewTimer(p.last)
	} else {
		p.timer.Reset(p.last)
	}
	return p.timer.C
}
