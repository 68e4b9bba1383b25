package driver

import (
	"context"
	"errors"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/mediator/vgpu/abi"
)

// goal is what somebody waits for: a command, or any command past a count.
type goal struct {
	p    *Pending
	past uint64
}

func (g goal) reached(ch *Channel) bool {
	if g.p != nil {
		return !g.p.busy.Load()
	}
	return ch.head.Load() > g.past
}

// await waits for a goal. One of those who wait reads the completions for all.
func (ch *Channel) await(ctx context.Context, g goal) error {
	for {
		if g.reached(ch) {
			return nil
		}
		select {
		case ch.lead <- struct{}{}:
			var err error
			if gone := ch.dev.touch(func() { err = ch.drive(ctx, g) }); gone != nil {
				ch.fail(gone)
				err = ch.abandon()
			}
			<-ch.lead
			if ch.waiters.Load() > 0 {
				ch.moved.open() // one of them leads now
			}
			return err
		default:
		}
		if err := ch.follow(ctx, g); err != nil {
			return err
		}
	}
}

// follow waits until the leader has done something or has left.
func (ch *Channel) follow(ctx context.Context, g goal) error {
	ch.waiters.Add(1)
	defer ch.waiters.Add(-1)
	moved := ch.moved.wait()
	if g.reached(ch) {
		return nil
	}
	if len(ch.lead) == 0 {
		return nil // it left before it could see us
	}
	ch.poke() // it may sleep until its own goal is reached
	select {
	case <-moved:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// drive reads completions until the goal is reached. The caller holds ch.lead.
func (ch *Channel) drive(ctx context.Context, g goal) error {
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
			continue // what completed before is still read
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

// errStray is a host that answers what was not asked.
var errStray = errors.New("the host completed a command that was not sent")

// reap takes what completions there are and hands them out. The caller holds
// ch.lead.
func (ch *Channel) reap() (int, error) {
	if ch.finished {
		return 0, nil
	}
	n, kick, err := ch.reader.Fetch(ch.buf)
	if n > 0 {
		head := ch.head.Load()
		for i := range ch.buf[:n] {
			p := ch.slots[head&ch.mask].Load()
			if c := &ch.buf[i]; p != nil && c.Cookie == head && p.busy.Load() {
				p.complete(c)
				head++
				continue
			}
			err = errStray
			break
		}
		ch.head.Store(head)
		if ch.waiters.Load() > 0 {
			ch.moved.open()
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

// glance takes what completions there are, unless somebody reads already. It does
// not wait.
func (ch *Channel) glance() {
	select {
	case ch.lead <- struct{}{}:
	default:
		return
	}
	if !ch.released {
		// What goes wrong here is found by who waits.
		_ = ch.dev.touch(func() { _, _ = ch.reap() })
	}
	<-ch.lead
	if ch.waiters.Load() > 0 {
		ch.moved.open()
	}
}

// abandon ends every command under way with the channel's error. The caller holds
// ch.lead.
func (ch *Channel) abandon() error {
	ch.submit.Lock()
	defer ch.submit.Unlock()
	ch.keep.Lock()
	defer ch.keep.Unlock()
	head := ch.head.Load()
	for ; head < ch.tail; head++ {
		p := ch.slots[head&ch.mask].Load()
		if p.busy.Load() {
			if p.window.Size != 0 {
				ch.orphans = append(ch.orphans, p.window)
				p.window = abi.Window{}
			}
			if m := p.host.Swap(nil); m != nil {
				ch.lenders = append(ch.lenders, m)
			}
			p.left, p.err = 0, ch.err
			p.chosen.lost()
			p.chosen = chosen{}
			p.busy.Store(false)
		}
	}
	ch.head.Store(head)
	ch.finished = true
	if ch.waiters.Load() > 0 {
		ch.moved.open()
	}
	return ch.err
}

// checkState reads from shared memory whether the channel still is fetched.
func (ch *Channel) checkState() error {
	switch state, code := abi.UnpackState[abi.ChannelState](abi.LoadWord(ch.page, abi.ChannelStateWord)); state {
	case abi.ChannelOpening, abi.ChannelReady:
		return nil
	default:
		return &Error{Status: statusOf(code), Code: code}
	}
}

// sleep waits for the channel's interrupt, having asked for it.
func (ch *Channel) sleep(ctx context.Context, g goal, spin *spinner) error {
	skip := 0
	if ch.waiters.Load() == 0 {
		// Nobody needs to know of anything earlier.
		last := g.past
		if g.p != nil {
			last = g.p.last
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
		spin.ended()
	case <-tick:
	case <-ch.dead:
	case <-ch.dev.down:
		ch.fail(ch.dev.downErr)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// spinner decides for how long to look at the ring before sleeping: the whole of
// its patience where recent waits were mostly so short that it would have saved
// the sleep, and next to nothing where they were not, so that a guest that waits
// for long kernels hardly spins, and one that waits for short ones doesn't sleep.
// It goes by how long waits took, not by whether looking found something, and now
// and then is patient all the same: a sleep makes a wait longer, so that
// impatience, once learned, might never be unlearned.
type spinner struct {
	most   time.Duration // its patience
	usual  time.Duration // that of launches that are not urgent
	alone  bool          // nothing can happen while we look
	begin  time.Time     // of the wait under way
	missed int           // of the last waits, those that were long: a score
	waits  uint
	// crowded is for how many waits yet the processor isn't offered to others: one
	// that took it kept it, so it was nobody that we wait for.
	crowded int
	// busy is for how many waits yet it has the usual patience alone: the processor was
	// somebody else's while it looked, or what it looked for came soon after it slept. Those
	// that we wait for may want the processor, too.
	busy   int
	inVain bool          // it looked for longer than usual in this wait, and slept
	fixed  time.Duration // as of ChannelOptions.Patience
}

const (
	minPatience   = 2 * time.Microsecond
	awakePatience = 100 * time.Microsecond
	// wokenPatience is longer by what waking the host's processes takes, one after
	// the other: the virtual GPU's, the executor's, and perhaps the GPU's. Who slept
	// meanwhile would have to be woken as the last.
	wokenPatience = 400 * time.Microsecond
	// urgentPatience is that of channels whose launches are urgent. Their kernels are short,
	// but wait for others' to leave the GPU first, and whoever asked for urgency gives the
	// processor for it. A wait that is longer is made little longer by a sleep.
	urgentPatience = 2 * time.Millisecond
	// wakeup is what being woken adds to a wait: one that is longer than patience
	// by more would not have been shortened by looking.
	wakeup      = 100 * time.Microsecond
	missedLimit = 3
	// tryEvery is after how many waits an impatient spinner tries patience.
	tryEvery = 16
	// hogged is a round of looking in which somebody else must have had the
	// processor for longer than carrying on a command takes.
	hogged       = 300 * time.Microsecond
	crowdedWaits = 256
	busyWaits    = 8
	// looks is how many looks are taken between two readings of the clock.
	looks = 32
	// fewProcessors is how many it takes for other goroutines to have one without
	// being offered it. Who is locked to a thread, as callers from C are, and offers
	// his, waits for two threads to be woken until he is back: 12 µs, as long as an
	// empty kernel takes.
	fewProcessors = 4
)

// neighbours is whether goroutines wait for each other's processors. It is asked once, since
// it takes a lock of the scheduler's.
var neighbours = runtime.GOMAXPROCS(0) < fewProcessors

// spinner is the one for the wait that begins.
func (ch *Channel) spinner() *spinner {
	if n := ch.doorbells.Load(); n != ch.rung {
		ch.rung = n
		return &ch.woken
	}
	return &ch.awake
}

// newSpinner returns one with the usual patience, or that of urgent launches.
func newSpinner(usual time.Duration, urgent bool) spinner {
	s := spinner{most: usual, usual: usual}
	if urgent {
		s.most = urgentPatience
	}
	return s
}

// limit is its whole patience now.
func (s *spinner) limit() time.Duration {
	if s.busy > 0 {
		return s.usual
	}
	return s.most
}

// patience is for how long to look now.
func (s *spinner) patience() time.Duration {
	if s.fixed != 0 {
		return s.fixed
	}
	if s.missed >= missedLimit && s.waits%tryEvery != 0 {
		return minPatience
	}
	return s.limit()
}

// ended tells that what was waited for has come.
func (s *spinner) ended() { s.took(time.Since(s.begin)) }

// took takes in how long a wait took.
func (s *spinner) took(wait time.Duration) {
	if s.inVain && wait < 2*s.most {
		s.busy = busyWaits
	}
	if wait > s.limit()+wakeup {
		s.missed = min(s.missed+1, missedLimit)
	} else {
		s.missed = max(s.missed-1, 0)
	}
}

// until looks at the ring until something is there or patience ends.
func (s *spinner) until(r *abi.CompletionReader) bool {
	s.begin = time.Now()
	s.inVain = false
	s.waits++
	patience := s.patience()
	if patience < 0 || s.alone && s.fixed == 0 {
		return false
	}
	s.crowded, s.busy = max(s.crowded-1, 0), max(s.busy-1, 0)
	var last time.Duration
	for round := 0; ; round++ {
		for range looks {
			if n, err := r.Pending(); n > 0 || err != nil {
				s.ended()
				return true
			}
		}
		now := time.Since(s.begin)
		longer := s.fixed == 0 && now > s.usual
		if now-last > hogged {
			s.busy = busyWaits
		}
		if now > patience || longer && s.busy > 0 {
			s.inVain = longer
			return false
		}
		if now-last > hogged {
			s.crowded = crowdedWaits
		}
		if last = now; s.crowded == 0 || longer {
			yield()
		}
		if round&15 == 15 && neighbours {
			runtime.Gosched() // the host may be a goroutine's neighbour
		}
	}
}

// yield gives the processor to whoever waits for it. A doorbell's write wakes the
// host's process on the processor of the writer, as the kernel expects that one to
// sleep now; a writer that spins instead would keep it waiting for a time slice.
func yield() {
	// sched_yield always succeeds. Raw, since Go's runtime need not know: told of a
	// system call that takes a while, it would wake another thread in place of this one.
	unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
}

// pause is the growing pauses of a driver that has no interrupts.
type pause struct {
	timer *time.Timer
	last  time.Duration
	at    time.Time
}

const (
	minPause = 50 * time.Microsecond
	maxPause = time.Millisecond
)

// next returns a channel that fires after the next pause; pauses grow as long as
// they follow each other closely.
func (p *pause) next() <-chan time.Time {
	now := time.Now()
	if now.Sub(p.at) > p.last+maxPause {
		p.last = 0
	}
	p.last = min(max(2*p.last, minPause), maxPause)
	p.at = now
	if p.timer == nil {
		p.timer = time.NewTimer(p.last)
	} else {
		p.timer.Reset(p.last)
	}
	return p.timer.C
}
