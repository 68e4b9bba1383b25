package scheduler

import (
	"testing"

	"vgpud/mediator/ipc"
)

// TestSuspendWordIsNotReadBack: a guest is suspended until the scheduler resumes it, whatever is
// written on its page meanwhile.
func TestSuspendWordIsNotReadBack(t *testing.T) {
	s := newScene(t)
	g := s.join(1, 1, 1)
	s.next(suspending(1))
	s.poll(ms, busy(1, ms))
	for _, round := range []func(){
		func() { s.poll(ms, busy(1, ms)) },
		func() { s.quiet(5*ms, 0) },
		func() { s.sched.Changed(1) },
	} {
		g.o.Page.SetSuspendWord(ipc.Run)
		round()
		if !g.Suspended() || g.o.Page.StoredSuspendWord() != ipc.Suspend {
			t.Errorf("suspended %v, the page says %v", g.Suspended(), g.o.Page.StoredSuspendWord())
		}
	}
	if n := g.Bill().Suspensions; n != 1 {
		t.Errorf("%d suspensions", n)
	}
}

// TestModeIsNotReadBack: what is written on a page about how to wait for launches makes no listener
// poll, and is overwritten by the next decision.
func TestModeIsNotReadBack(t *testing.T) {
	s := newScene(t)
	g := s.join(1, 1, 1)
	s.join(2, 1, 2)
	s.byKernel()
	g.o.Page.SetMode(ipc.ModeAhead)
	g.o.Page.SetBusyWait(true)
	if mode, wait := g.launchMode(); mode != ipc.ModeByKernel || wait {
		t.Errorf("treated as %v, %v", mode, wait)
	}
	s.sched.LaunchesChanged()
	s.poll(ms)
	if mode, wait := g.o.Page.Mode(), g.o.Page.BusyWait(); mode != ipc.ModeByKernel || wait {
		t.Errorf("the page says %v, %v", mode, wait)
	}
}

// TestBillIsNotReadBack: neither the bill nor the terms are taken from the page.
func TestBillIsNotReadBack(t *testing.T) {
	s := newScene(t)
	g := s.join(1, 2, 1)
	s.poll(ms, busy(1, ms))
	g.o.Page.SetBill(ipc.Bill{})
	g.o.Page.SetTerms(ipc.Terms{Weight: 1000, PriorityCeiling: 9})
	s.poll(ms, busy(1, ms))
	if got, want := g.o.Page.Bill().Used, 2*ms; got != want {
		t.Errorf("billed %v, want %v", got, want)
	}
	if got, want := g.o.Page.Terms(), (ipc.Terms{Weight: 2}); got != want {
		t.Errorf("granted %+v, want %+v", got, want)
	}
}
