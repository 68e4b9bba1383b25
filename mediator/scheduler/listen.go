package scheduler

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/internal/sched"
	"vgpud/mediator/ipc"
)

// readEvery is how often a listener reads launch slots without a ring, so that a change that nobody
// rang for is noticed at some time.
const readEvery = time.Second

// Listen has a listener wait for the guest's executors to ring for a launch that came or ended, while
// the policy decides about launches. Remove ends it. It is for guests whose page has launch slots.
func (s *Scheduler) Listen(g *Guest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.launches.heard = append(s.launches.heard, g)
	s.startListening(g)
}

// setByKernel notes whether the policy decides about launches.
//
// Preconditions: s.mu is held.
func (s *Scheduler) setByKernel(yes bool) {
	s.launches.byKernel = yes
	for _, g := range s.launches.heard {
		s.startListening(g)
	}
}

// startListening starts a guest's listener if the policy decides about launches. It ends by itself
// under another policy.
//
// Preconditions: s.mu is held.
func (s *Scheduler) startListening(g *Guest) {
	if s.launches.byKernel && !g.listens {
		g.listens = true
		g.listening.Go(func() { s.listen(g) })
	}
}

// stopListening ends a guest's listener, and waits for that.
func (s *Scheduler) stopListening(g *Guest) {
	s.mu.Lock()
	s.launches.heard = slices.DeleteFunc(s.launches.heard, func(o *Guest) bool { return o == g })
	s.mu.Unlock()
	close(g.removed)
	if g.o.Page != nil {
		g.o.Page.WakeDaemon()
	}
	g.listening.Wait()
}

// listen is the listener, which has a thread of its own. It also shows the guest that the daemon is
// alive: launches wait no longer than [ipc.SilenceLimit] for a daemon that is silent, and on a busy
// host a listener is the last to be late.
func (s *Scheduler) listen(g *Guest) {
	page := g.o.Page
	if err := raisePriority(); err != nil {
		s.o.Log.Debug("launches wait a little longer", "guest", g.o.Name, "err", err)
	}
	lastRing, readAt := uint32(0), time.Duration(-1)
	for s.goesOnListening(g) {
		ring, now := page.DaemonFutex(), s.o.Clock.Now()
		select {
		case <-g.removed:
			return
		default:
		}
		if ring != lastRing || readAt < 0 || now-readAt >= readEvery {
			s.LaunchesChanged()
			lastRing, readAt = ring, now
		}
		g.Heartbeat(s.o.Clock.Now())
		if mode, wait := g.launchMode(); wait && mode == ipc.ModeAhead && pollRing(page.DaemonFutex, ring, s.o.Clock, yield) {
			continue
		}
		if err := page.DaemonSleep(ring, ipc.HeartbeatInterval); err != nil {
			s.o.Log.Error("can't wait for a guest's launches", "guest", g.o.Name, "err", err)
			return
		}
	}
}

// A launch waits for a listener, and the GPU with it, so listeners come before whatever else the
// host computes, as executors do: see package executor. They need very little.
const (
	listenNiceness = -15
	listenSlice    = 100 * time.Microsecond // the shortest there is
)

// raisePriority locks the calling goroutine to its thread, which ends with it, and gives that
// thread precedence. Without the right to that, listening works all the same, a little later.
func raisePriority() error {
	runtime.LockOSThread()
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL, Nice: listenNiceness, Runtime: uint64(listenSlice)}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return fmt.Errorf("raise a listener's priority (needs CAP_SYS_NICE, or LimitNICE=%d): %w", listenNiceness, err)
	}
	return nil
}

// pollRing waits without sleeping for a ring after the reading, for as long as a sleep would last.
// It returns false at once if others kept the processor when it was yielded to them: a listener
// that sleeps comes before them when it is woken, and one that yields comes after them.
func pollRing(bell func() uint32, reading uint32, c clock.Clock, yield func()) bool {
	now := c.Now()
	for until := now + ipc.HeartbeatInterval; bell() == reading && now < until; {
		yield()
		before := now
		if now = c.Now(); now-before > keptAway {
			return false
		}
	}
	return true
}

// keptAway is how long a yield takes at least if a thread with more to do than the daemon's own had
// the processor meanwhile.
const keptAway = 300 * time.Microsecond

// fewProcessors is how many it takes for other goroutines to have one without its being yielded to
// them.
const fewProcessors = 4

// yield gives the processor to a thread that waits for it.
var yield = yieldOn(runtime.GOMAXPROCS(0))

// yieldOn returns yield for a host with so many processors. Other goroutines are yielded to only if
// there are few: a listener is locked to its thread, so two threads have to be woken, one after the
// other, before it is back.
func yieldOn(processors int) func() {
	if processors < fewProcessors {
		return runtime.Gosched
	}
	return sched.Yield
}

// goesOnListening reports whether the policy still decides about launches. If not, the guest's listener
// ends.
func (s *Scheduler) goesOnListening(g *Guest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.listens = s.launches.byKernel
	return g.listens
}
