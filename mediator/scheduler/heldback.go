package scheduler

import (
	"time"

	"vgpud/fairshare"
	"vgpud/mediator/events"
)

// ForUrgent is why a guest is held back whose launches leave the GPU, or wait, for a more urgent
// guest's. The other reasons are those of [fairshare.SuspendReason].
const ForUrgent = "urgent"

const (
	// rememberReason is the time for which a reason is shown after its end: policies suspend guests
	// for single rounds, many times a second.
	rememberReason = 5 * time.Second
	// longSuspension is the length from which on a suspension is an event.
	longSuspension = 2 * time.Second
)

// HeldBack is why a guest has less of the GPU than it asks for. The zero value is that it is not
// held back.
type HeldBack struct {
	Reason string // of a suspension, or ForUrgent
	// For is the guest for whose sake it is: the one that is behind its guarantee, or more urgent.
	For string
}

// String says for people why a guest is held back, or "".
func (h HeldBack) String() string {
	switch h.Reason {
	case fairshare.AheadOfShare.String():
		return "ahead of its share"
	case fairshare.AtCap.String():
		return "at its cap"
	case fairshare.BehindGuarantee.String():
		return "guest " + h.For + " is behind its guarantee"
	case fairshare.BudgetSpent.String():
		return "its budget is spent"
	case fairshare.Sampled.String():
		return "another guest runs alone, to be measured"
	case ForUrgent:
		return "guest " + h.For + " is more urgent"
	}
	return h.Reason
}

// heldBack is why a guest was held back last. The guest's mu guards it.
type heldBack struct {
	HeldBack
	at        time.Duration // when that was last so, unless it is suspended
	announced bool          // whether the present suspension is an event
}

// setHeldBack notes why the guest is held back at now.
func (g *Guest) setHeldBack(why HeldBack, now time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held.HeldBack, g.held.at = why, now
}

// heldBackAt returns why the guest is held back at now, or was just before.
//
// Preconditions: g.mu is held.
func (g *Guest) heldBackAt(now time.Duration) HeldBack {
	if g.held.Reason == "" || !g.orders.Suspend && now-g.held.at > rememberReason {
		return HeldBack{}
	}
	return g.held.HeldBack
}

// noteReasons notes why verdicts suspend guests, or evict their launches for others.
//
// Preconditions: s.roster and s.mu are held.
func (s *Scheduler) noteReasons(guests []*Guest, verdicts []fairshare.Verdict, now time.Duration) {
	for i := range verdicts {
		v := &verdicts[i]
		var why HeldBack
		switch {
		case v.Action == fairshare.Suspend:
			why.Reason = v.Reason.String()
		case v.Action == fairshare.Evict && v.For != 0 && v.For != v.Guest:
			why.Reason = ForUrgent
		default:
			continue
		}
		if cause := guestWith(guests, v.For); cause != nil {
			why.For = cause.o.Name
		}
		if g := guestWith(guests, v.Guest); g != nil {
			g.setHeldBack(why, now)
		}
	}
}

// announce makes an event of a suspension that lasts, and of its end.
//
// Preconditions: s.roster and s.mu are held.
func (s *Scheduler) announce(g *Guest, now time.Duration) {
	g.mu.Lock()
	why, lasted := g.held.HeldBack, now-g.since
	began := g.orders.Suspend && !g.held.announced && lasted >= longSuspension
	ended := !g.orders.Suspend && g.held.announced
	if began || ended {
		g.held.announced = began
	}
	g.mu.Unlock()
	switch {
	case began:
		s.o.Log.Info("guest is suspended: "+why.String(), events.Kind(events.GuestSuspended), "gpu", s.o.Name, "guest", g.o.Name, "reason", why.Reason, "for", why.For)
	case ended:
		s.o.Log.Info("guest is resumed", events.Kind(events.GuestResumed), "gpu", s.o.Name, "guest", g.o.Name, "suspended", lasted.Round(time.Millisecond))
	}
}
