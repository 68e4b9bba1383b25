package mediator

import (
	"testing"

	"vgpud/mediator/api"
	"vgpud/mediator/link"
)

// TestVerdictIsNotReadBack: a guest is held until the daemon lets it run, whatever is
// written on its page meanwhile.
func TestVerdictIsNotReadBack(t *testing.T) {
	s := newScene(t)
	g := s.join(1, 1, 1)
	s.next(suspend(1))
	s.poll(ms, busy(1, ms))
	for _, round := range []func(){
		func() { s.poll(ms, busy(1, ms)) },
		func() { s.quiet(5*ms, 0) },
		func() { s.share.changed(1) },
	} {
		g.page.SetVerdict(link.Run)
		round()
		if !g.heldNow() || g.page.Decided() != link.Suspend {
			t.Errorf("held %v, the page says %v", g.heldNow(), g.page.Decided())
		}
	}
	if g.suspensions != 1 {
		t.Errorf("%d suspensions", g.suspensions)
	}
}

// TestModeIsNotReadBack: what is written on a page about how to wait for launches has no
// listener spin, and is gone with the next decision.
func TestModeIsNotReadBack(t *testing.T) {
	s := newScene(t)
	g := s.join(1, 1, 1)
	s.join(2, 1, 2)
	s.byKernel()
	g.page.SetMode(link.ModeAhead)
	g.page.SetSpins(true)
	if mode, spins := g.treated(); mode != link.ModeByKernel || spins {
		t.Errorf("treated as %v, %v", mode, spins)
	}
	s.share.rang()
	s.poll(ms)
	if mode, spins := g.page.Mode(), g.page.Spins(); mode != link.ModeByKernel || spins {
		t.Errorf("the page says %v, %v", mode, spins)
	}
}

// TestBillIsNotReadBack: nor does a bill change, or what is granted.
func TestBillIsNotReadBack(t *testing.T) {
	s := newScene(t)
	g := s.join(1, 2, 1)
	s.poll(ms, busy(1, ms))
	g.page.SetBill(link.Bill{})
	g.page.SetTerms(link.Terms{Weight: 1000, PriorityCeiling: 9})
	s.poll(ms, busy(1, ms))
	if got, want := g.page.Bill().Used, 2*ms; got != want {
		t.Errorf("billed %v, want %v", got, want)
	}
	if got, want := g.page.Terms(), link.Terms(api.Terms{Weight: 2}); got != want {
		t.Errorf("granted %+v, want %+v", got, want)
	}
}
