package scheduler

import (
	"time"

	"vgpud/fairshare"
	"vgpud/mediator/ipc"
)

// HandOver is how long it takes, about, from a verdict until the launch of another guest is on the
// GPU: three processes are woken, which takes 60 to 90 µs each on a host that has nothing else to do.
const HandOver = 250 * time.Microsecond

// closeTurn ends the turn that is open, unless it stays open. That comes before the verdicts of the
// same decision: an executor that sees one of them does not start another launch any more.
//
// Preconditions: s.roster and s.mu are held.
func (s *Scheduler) closeTurn(stays *Guest) {
	if h := s.launches.holder; h != nil && h != stays {
		h.o.Page.SetTurn(ipc.Turn{})
		s.launches.holder = nil
	}
}

// openTurn lets the executors of one of the guests, and of no other, put its next launch on the GPU
// without a verdict, as the policy has decided at now.
//
// Preconditions: s.roster and s.mu are held.
func (s *Scheduler) openTurn(guests []*Guest, now time.Duration) {
	t, ok := s.policy.(fairshare.TurnTaker)
	if !ok || !s.launches.byKernel || s.over() {
		s.closeTurn(nil)
		return
	}
	turn := t.Turn()
	g := guestWith(guests, turn.Guest)
	if g == nil || g.o.Page == nil || turn.Lasts <= 0 || g.Suspended() {
		s.closeTurn(nil)
		return
	}
	s.closeTurn(g)
	s.launches.holder, g.turned = g, true
	g.o.Page.SetTurn(ipc.Turn{Until: now + turn.Lasts, Behind: turn.Behind})
}
