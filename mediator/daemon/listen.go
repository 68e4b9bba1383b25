package daemon

import (
	"context"
	"runtime"
	"time"

	"vgpud/accounting"
	"vgpud/clock"
	"vgpud/fairshare"
	"vgpud/internal/sched"
	"vgpud/mediator/ipc"
)

// lookEvery is how often a listener looks at launches that it was not rung for, so
// that what nobody rang for is noticed at some time.
const lookEvery = time.Second

// listen waits for the guest's executors to say that a launch came or ended, as
// long as the GPU's policy decides about launches, until the guest is deaf.
//
// It also shows the guest that the daemon is alive: launches wait no longer than
// [ipc.SilenceLimit] for a daemon that is silent, and on a host with much else to
// do a listener is the last to be late.
func (s *share) listen(g *guest) {
	if err := hurry(); err != nil {
		s.log.Debug("launches wait a little longer", "guest", g.spec.Name, "err", err)
	}
	attend := func(guests []*guest) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.attendLaunches(guests)
	}
	heard, looked := uint32(0), time.Duration(-1)
	for {
		if by, turned := s.turns(); !by {
			looked = -1
			select {
			case <-turned:
				continue
			case <-g.deaf:
				return
			}
		}
		reading, now := g.page.DaemonFutex(), s.clock.Now()
		select {
		case <-g.deaf:
			return
		default:
		}
		if reading != heard || looked < 0 || now-looked >= lookEvery {
			s.guests(attend)
			heard, looked = reading, now
		}
		g.beat(s.clock.Now())
		if mode, spins := g.treated(); spins && mode == ipc.ModeAhead && pollBell(g.page.DaemonFutex, reading, s.clock, offer) {
			continue
		}
		if err := g.page.DaemonSleep(reading, ipc.HeartbeatInterval); err != nil {
			s.log.Error("can't wait for a guest's launches", "guest", g.spec.Name, "err", err)
			return
		}
	}
}

// pollBell waits for a ring of the most urgent guest's bell after the reading without
// sleeping, for as long as a sleep would last. It reports false at once if others kept the
// processor when it was offered to them: a listener that sleeps comes before them when it
// is woken, and one that offers its processor after them.
func pollBell(bell func() uint32, reading uint32, c clock.Clock, offer func()) bool {
	now := c.Now()
	for until := now + ipc.HeartbeatInterval; bell() == reading && now < until; {
		offer()
		before := now
		if now = c.Now(); now-before > hogged {
			return false
		}
	}
	return true
}

// hogged is how long an offer takes at least if somebody with more to do than the daemon's
// own threads had the processor meanwhile.
const hogged = 300 * time.Microsecond

// fewProcessors is how many it takes for other goroutines to have one without being offered
// it.
const fewProcessors = 4

// offer gives the processor to whoever waits for it.
var offer = offerOn(runtime.GOMAXPROCS(0))

// offerOn returns the offer on a host of so many processors. To other goroutines they are
// offered only where there are few: a listener is locked to its thread, so two threads have
// to be woken, one after the other, before it is back.
func offerOn(processors int) func() {
	if processors < fewProcessors {
		return runtime.Gosched
	}
	return sched.Yield
}

// turns is whether launches wait for verdicts, and what is closed when that
// changes.
func (s *share) turns() (byKernel bool, turned <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.launching.byKernel, s.launching.turned
}

// alarm is when the policy wants to be asked again, or the board to be looked at;
// 0 is never. Its user holds the share's mu.
type alarm struct {
	ask, look time.Duration
	// armed is the instant that is waited for, 0 for ever, and rearm ends that wait.
	armed time.Duration
	rearm func()
}

// next is the earlier of the two.
func (a *alarm) next() time.Duration {
	if a.ask == 0 || a.look != 0 && a.look < a.ask {
		return a.look
	}
	return a.ask
}

// set sets one of the two. Who waits for an earlier instant goes on doing so: a policy
// that keeps the GPU for an urgent guest's next launch puts it off with each.
func (a *alarm) set(which *time.Duration, at time.Duration) {
	*which = at
	if next := a.next(); next != 0 && (a.armed == 0 || next < a.armed) && a.rearm != nil {
		a.rearm()
	}
}

// wanted is told in how long from now the policy wants to be asked again.
func (a *alarm) wanted(now, in time.Duration) {
	at := time.Duration(0)
	if in > 0 {
		at = now + in
	}
	a.set(&a.ask, at)
}

// again has the board looked at then.
func (a *alarm) again(at time.Duration) { a.set(&a.look, at) }

// keepTime asks the policy whenever it wants to be, until ctx ends.
func (s *share) keepTime(ctx context.Context) {
	for ctx.Err() == nil {
		wait, cancel := context.WithCancel(ctx)
		s.mu.Lock()
		at := s.launching.alarm.next()
		s.launching.alarm.armed, s.launching.alarm.rearm = at, cancel
		s.mu.Unlock()
		if at == 0 {
			<-wait.Done()
		} else if s.clock.WaitUntil(wait, at) == nil {
			s.rings()
		}
		cancel()
	}
}

// rings does what the alarm was set for, as far as it is time for that.
func (s *share) rings() {
	s.guests(func(guests []*guest) {
		s.mu.Lock()
		defer s.mu.Unlock()
		now, a := s.clock.Now(), &s.launching.alarm
		if at := a.next(); at == 0 || at > now {
			return // it was put off
		}
		if a.look != 0 && a.look <= now {
			a.look = 0
		}
		asks := a.ask != 0 && a.ask <= now
		if asks {
			a.ask = 0
		}
		s.attendLaunches(guests)
		if asks && a.ask == 0 { // no event has had it asked meanwhile
			s.observe(guests, &accounting.Phase{})
			s.decide(guests, fairshare.Event{Kind: fairshare.Tick})
		}
	})
}
