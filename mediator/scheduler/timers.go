package scheduler

import (
	"context"
	"time"

	"vgpud/accounting"
	"vgpud/fairshare"
)

// timers are when the policy wants to be asked again and when launch slots are to be read; 0 is
// never. The scheduler's mu guards them.
type timers struct {
	policy, read time.Duration
	// armed is the instant that a goroutine waits for, 0 for ever; rearm ends its wait, or its next
	// one.
	armed time.Duration
	rearm func()
}

// next returns the earlier of the two.
func (t *timers) next() time.Duration {
	if t.policy == 0 || t.read != 0 && t.read < t.policy {
		return t.read
	}
	return t.policy
}

// set sets one of the two. A goroutine that waits for an earlier instant goes on doing so: a policy
// that keeps the GPU for an urgent guest's next launch puts its timer off with each.
func (t *timers) set(which *time.Duration, at time.Duration) {
	*which = at
	if next := t.next(); next != 0 && (t.armed == 0 || next < t.armed) && t.rearm != nil {
		t.rearm()
	}
}

// setPolicy is told in how long from now the policy wants to be asked again; 0 is never.
func (t *timers) setPolicy(now, in time.Duration) {
	at := time.Duration(0)
	if in > 0 {
		at = now + in
	}
	t.set(&t.policy, at)
}

// readBy has launch slots read at the latest at an instant.
func (t *timers) readBy(at time.Duration) {
	if t.read == 0 || at < t.read {
		t.set(&t.read, at)
	}
}

// NextTimer returns when RunTimers is to be called; 0 is never.
func (s *Scheduler) NextTimer() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.launches.timers.next()
}

// RunTimers does what timers were set for that have expired.
func (s *Scheduler) RunTimers() {
	s.locked(func(guests []*Guest) {
		now, t := s.o.Clock.Now(), &s.launches.timers
		if at := t.next(); at == 0 || at > now {
			return // it was put off
		}
		if t.read != 0 && t.read <= now {
			t.read = 0
		}
		asks := t.policy != 0 && t.policy <= now
		if asks {
			t.policy = 0
		}
		s.readLaunches(guests)
		if asks && t.policy == 0 { // no event has had the policy asked meanwhile
			s.observe(guests, &accounting.Phase{})
			s.decide(guests, fairshare.Event{Kind: fairshare.Tick})
		}
	})
}

// keepTime runs timers when they expire, until ctx ends.
func (s *Scheduler) keepTime(ctx context.Context, a alarm) {
	stop := context.AfterFunc(ctx, a.ring)
	defer stop()
	for ctx.Err() == nil {
		reading := a.reading()
		s.mu.Lock()
		at := s.launches.timers.next()
		s.launches.timers.armed, s.launches.timers.rearm = at, a.ring
		s.mu.Unlock()
		if a.wait(reading, at) {
			s.RunTimers()
		}
	}
}
