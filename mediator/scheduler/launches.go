package scheduler

import (
	"fmt"
	"log/slog"
	"math"
	"time"

	"vgpud/accounting"
	"vgpud/fairshare"
	"vgpud/gpu"
	"vgpud/mediator/ipc"
	"vgpud/mediator/launchqueue"
	"vgpud/mediator/vgpu/abi"
)

// launches is what a scheduler knows of single launches. The scheduler's mu guards it.
type launches struct {
	queue     launchqueue.Queue
	evictions launchqueue.Evictions
	ledger    fairshare.EvictionCharges
	predictor launchqueue.Predictor
	// byKernel reports whether launches wait for verdicts.
	byKernel bool
	heard    []*Guest // those that have a listener then: see [Scheduler.Listen]
	timers   timers
	// evictionDeadline is how long a kernel may take to leave the GPU; 0 is no limit.
	evictionDeadline time.Duration
	busyWait         busyWait
	slots            []launchqueue.Guest // reused by readLaunches
	holder           *Guest              // whose turn is open; nil: nobody's
	look             inTurn              // whose slots are read in any case
}

// checkAgain is after how long to read again what should have been done by now.
const checkAgain = time.Millisecond

// LaunchesChanged reads the guests' launch slots, and tells the policy of every launch that
// arrived, ended or left the GPU. It is called when a guest's executors have changed a slot.
func (s *Scheduler) LaunchesChanged() { s.locked(s.readLaunches) }

// readLaunches reads the guests' launch slots, and tells the policy of one event after the other.
//
// Preconditions: s.roster and s.mu are held.
func (s *Scheduler) readLaunches(guests []*Guest) {
	s.readSlots(guests)
	for {
		ev, ok := s.launches.queue.Next()
		if !ok {
			s.yieldIdleEvents()
			return
		}
		// A policy about guests is asked at the ends of phases. Only what it has evicted itself is
		// news to it.
		if !s.launches.byKernel && ev.Kind != fairshare.Evicted {
			continue
		}
		s.observe(guests, &accounting.Phase{})
		s.decide(guests, ev)
	}
}

// yieldIdleEvents tells event kernels that have nothing to do to leave the GPU for launches that
// wait, whatever the policy. Nobody is charged for that: nothing is interrupted.
//
// Preconditions: s.mu is held.
func (s *Scheduler) yieldIdleEvents() {
	l := &s.launches
	if !l.byKernel {
		return
	}
	now := s.o.Clock.Now()
	l.queue.IdleEvents(func(idle *launchqueue.Launch) {
		if idle.Evict(math.MaxUint32, now, 0) {
			l.busyWait.evicts(now)
		}
	})
}

// readSlots reads the guests' launch slots.
//
// Preconditions: s.roster and s.mu are held.
func (s *Scheduler) readSlots(guests []*Guest) {
	l := &s.launches
	l.slots = l.slots[:0]
	wait := s.waitsBusily()
	l.look.begin(len(guests))
	for i, g := range guests {
		orders := g.current()
		if orders.BusyWait != wait {
			g.setLaunchMode(orders.Mode, wait)
		}
		if g.o.Page == nil {
			continue
		}
		bell := g.o.Page.DaemonFutex() // before the slots are read
		l.slots = append(l.slots, launchqueue.Guest{
			ID: g.id, Name: g.o.Name, Slots: g.o.Page, Mode: orders.Mode,
			Ceiling: g.limit(orders.Terms).PriorityCeiling, TimeLimit: min(orders.TimeLimit, launchqueue.MaxDuration),
			NoNews: bell == g.bell && !l.look.includes(i), InTurn: g.turned,
		})
		g.bell, g.turned = bell, g == l.holder
	}
	now := s.o.Clock.Now()
	l.queue.Read(now, l.slots, func(c launchqueue.Change) { s.launchChanged(guests, c) })
	s.scheduleCheck()
}

// scheduleCheck sets the timer for launches that may be stalled.
//
// Preconditions: s.mu is held.
func (s *Scheduler) scheduleCheck() {
	if at, ok := s.launches.queue.NextCheck(); ok {
		s.launches.timers.readBy(max(at, s.o.Clock.Now()+checkAgain))
	}
}

// setEvictionDeadline changes how long a kernel may take to leave the GPU.
func (l *launches) setEvictionDeadline(d time.Duration) {
	l.evictionDeadline = d
	l.queue.SetEvictionDeadline(d)
}

// onGPU is what commands that are on the GPU may take, if each runs for as long as its guest's may.
type onGPU struct {
	known bool
	time  time.Duration // of those whose time is limited, at most launchqueue.MaxDuration
	// endless counts contexts with commands that may run for ever.
	endless int
}

// lookAtGPU adds up what the commands that are on the GPU may take.
//
// Preconditions: s.roster and s.mu are held.
func (s *Scheduler) lookAtGPU(guests []*Guest) (on onGPU) {
	on.known = true
	for _, g := range guests {
		limit := commandLimit(g)
		for i := range ipc.MaxContexts {
			n := min(g.o.Executors.Outstanding(i), mostOutstanding)
			switch {
			case n == 0:
			case limit == 0:
				on.endless++
			default:
				on.time = min(on.time+time.Duration(n)*limit, launchqueue.MaxDuration)
			}
		}
	}
	return on
}

// commandLimit returns how long a guest's command may be on the GPU; 0 is for ever.
func commandLimit(g *Guest) time.Duration {
	return min(max(g.TimeLimit(), 0), launchqueue.MaxDuration)
}

// deadline returns by when a launch that is told now to leave must have left; 0 is never. While
// other commands are on the GPU, the launch may have to wait until it is on itself and sees that it
// is to leave: for each of them as long as a kernel of that guest may run. on is looked at once for
// several launches.
//
// Preconditions: s.roster and s.mu are held.
func (s *Scheduler) deadline(guests []*Guest, l *launchqueue.Launch, now time.Duration, on *onGPU) time.Duration {
	in := s.launches.evictionDeadline
	if in <= 0 {
		return 0
	}
	if !on.known {
		*on = s.lookAtGPU(guests)
	}
	others, endless := on.time, on.endless
	if g := guestWith(guests, l.Guest); g != nil {
		switch own, limit := g.o.Executors.Outstanding(l.Slot().Context), commandLimit(g); {
		case own == 0:
		case limit > 0:
			others = max(others-limit, 0) // itself
		case own == 1:
			endless--
		}
	}
	if endless > 0 {
		return 0
	}
	return now + min(in+others, launchqueue.MaxDuration)
}

// mostOutstanding bounds how many commands of a context can be on the GPU.
const mostOutstanding = abi.MaxChannels * gpu.OutcomesKept

// launchChanged accounts for what happened to a launch.
//
// Preconditions: s.roster and s.mu are held.
func (s *Scheduler) launchChanged(guests []*Guest, c launchqueue.Change) {
	ls, l := &s.launches, c.Launch
	switch c.Kind {
	case launchqueue.Appeared:
		ls.predictor.Predict(l)
	case launchqueue.Left:
		if c.Took > 0 {
			ls.evictions.Add(c.Took)
			if g := guestWith(guests, l.Guest); g != nil {
				g.evictions.Add(c.Took)
			}
			ls.predictor.Evicted(l, c.Took)
		}
		s.settleEviction(guests, l, min(c.Took, mostCharged))
	case launchqueue.Unresponsive:
		// From here on its cost is its own guest's, and not charged to the guest that it was evicted
		// for.
		s.settleEviction(guests, l, 0)
		ls.ledger.Requested(fairshare.Verdict{Action: fairshare.Evict, Guest: l.Guest, Launch: l.ID, For: l.Guest})
		s.logOf(guests, l).Warn("kernel does not leave the GPU when told")
	case launchqueue.TurnUnused:
		s.settleEviction(guests, l, 0)
		if g := guestWith(guests, l.Guest); g != nil && c.Took > 0 {
			ls.ledger.Idled(l.Guest, c.Took)
			g.charge(c.Took, 0)
		}
		s.logOf(guests, l).Debug("launch does not use its turn")
	case launchqueue.Stuck:
		if !l.Unresponsive() { // else its guest is charged when it ends
			s.settleEviction(guests, l, 0)
		}
		s.logOf(guests, l).Debug("launch is not waited for any more")
	case launchqueue.Ended, launchqueue.Gone:
		if c.Kind == launchqueue.Ended {
			ls.predictor.Ended(l)
		}
		cost := time.Duration(0) // it ended in time not to be evicted
		if l.Unresponsive() {
			cost = max(s.o.Clock.Now()-l.Slot().Asked, 0)
		}
		s.settleEviction(guests, l, cost)
	}
}

// logOf returns the log of a launch's guest, with what the launch is.
//
// Preconditions: s.roster is held.
func (s *Scheduler) logOf(guests []*Guest, l *launchqueue.Launch) *slog.Logger {
	log := s.o.Log
	if g := guestWith(guests, l.Guest); g != nil {
		log = s.logFor(g)
	}
	return log.With("gpu", s.o.Name, "guest", l.GuestName, "kernel", fmt.Sprintf("%016x", l.Slot().Kernel))
}

// mostCharged bounds what an eviction costs the guest that it is for. How long the launch takes to
// leave is up to the guest that it belongs to, for which it computes all the while.
const mostCharged = 10 * time.Millisecond

// settleEviction charges the guest that a launch was evicted for, now that it has left.
//
// Preconditions: s.roster and s.mu are held.
func (s *Scheduler) settleEviction(guests []*Guest, l *launchqueue.Launch, cost time.Duration) {
	if g := guestWith(guests, s.launches.ledger.Ended(l.ID, cost)); g != nil {
		g.chargeEviction(cost)
	}
}

// carryOut does what the policy says about launches.
//
// Preconditions: s.roster and s.mu are held.
func (s *Scheduler) carryOut(guests []*Guest, verdicts []fairshare.Verdict, now time.Duration) {
	ls := &s.launches
	var on onGPU
	for i := range verdicts {
		v := &verdicts[i]
		l := ls.queue.Find(v.Launch)
		switch {
		case l == nil:
		case v.Action == fairshare.Run:
			if !l.Run(now) && l.Ready() {
				// Its slot is not what it was: the policy is told so at once, and asked whose turn
				// it is then.
				ls.queue.Drop(l, func(c launchqueue.Change) { s.launchChanged(guests, c) })
				ls.timers.readBy(now)
			}
		case v.Action == fairshare.Evict && l.Evict(v.BelowSM, now, s.deadline(guests, l, now, &on)):
			ls.ledger.Requested(*v)
			ls.busyWait.evicts(now)
			ls.evictions.Ask(v.Spatial)
		}
	}
	s.scheduleCheck()
}

// launchMode returns how the executors of one of the guests are to treat launches.
//
// A launch that would be let run whatever else there is need not wait for that, which takes a way
// to the daemon and back. It is so if the guest is alone, and if the policy goes by priority, no
// other guest may be as urgent, and the hardware takes turns by itself, so that the launch has its
// turn while others are still told to leave.
//
// Preconditions: s.mu is held.
func (s *Scheduler) launchMode(g *Guest, guests []*Guest, c ceilings) ipc.Mode {
	switch {
	case !s.launches.byKernel || s.over():
		return ipc.ModeFree
	case len(guests) == 1:
		return ipc.ModeAhead
	case !(fairshare.ByPriority(s.policyName) && s.gpu.Properties.Preempts), !c.highestAlone(g.bounded().PriorityCeiling):
		return ipc.ModeByKernel
	}
	return ipc.ModeAhead
}

// ceilings are the lowest and the highest of the guests' priority ceilings, and how many guests
// have the highest.
type ceilings struct{ lowest, highest, atHighest int }

// ceilingsOf returns the ceilings of guests.
//
// Preconditions: s.mu is held.
func ceilingsOf(guests []*Guest) (c ceilings) {
	for i, g := range guests {
		own := g.bounded().PriorityCeiling
		if i == 0 || own > c.highest {
			c.highest, c.atHighest = own, 0
		}
		if own == c.highest {
			c.atHighest++
		}
		if i == 0 || own < c.lowest {
			c.lowest = own
		}
	}
	return c
}

// highestAlone reports whether no other guest has a ceiling as high as one guest's.
func (c ceilings) highestAlone(own int) bool { return own == c.highest && c.atHighest == 1 }

// waitsBusily reports whether the daemon and executors poll, rather than sleep, while they wait for
// launches to come or to leave. To be woken takes some 60 to 90 µs on a host that has nothing else
// to do, twice in each eviction.
//
// Preconditions: s.mu is held.
func (s *Scheduler) waitsBusily() bool {
	return s.launches.byKernel && !s.over() && s.launches.busyWait.now(s.o.Clock.Now())
}

// pollLimit returns how long in a wait the executors of one of the guests may poll for its next
// launch, or for the end of one, if that saves them from sleeping. Only a guest whose launches go
// before another guest's may, since it has its priority for the sake of their latency.
//
// Preconditions: s.mu is held.
func (s *Scheduler) pollLimit(g *Guest, c ceilings) time.Duration {
	if !s.launches.byKernel || s.over() || !fairshare.ByPriority(s.policyName) || g.bounded().PriorityCeiling <= c.lowest {
		return 0
	}
	return s.launches.busyWait.pollLimit()
}

// setLaunchModes tells the guests' executors how to treat launches.
//
// Preconditions: s.roster and s.mu are held.
func (s *Scheduler) setLaunchModes(guests []*Guest) {
	c, l := ceilingsOf(guests), s.latenciesOf(guests)
	for _, g := range guests {
		mode, wait, limit, latency := s.launchMode(g, guests, c), s.waitsBusily(), s.pollLimit(g, c), l.below(g.bounded().PriorityCeiling)
		g.update(func(o *Orders) {
			o.Mode, o.BusyWait, o.PollLimit, o.Latency, o.Suspension = mode, wait, limit, latency, s.suspension()
		})
	}
}

// shown returns the launches that the policy knows of.
func (l *launches) shown(now time.Duration, sms uint32) []fairshare.Launch {
	return l.queue.Launches(now, sms, l.predictor.EvictionCost)
}

// settleEvictions reports to the policy, at the end of a phase, what evictions cost since the last.
//
// Preconditions: s.mu is held, and observe was called.
func (s *Scheduler) settleEvictions() {
	for i := range s.state {
		s.state[i].Charged = s.launches.ledger.Settle(s.state[i].ID)
	}
}
