package scheduler

import (
	"testing"
	"time"

	"vgpud/accounting"
	"vgpud/fairshare/quota"
	"vgpud/mediator/ipc"
)

// spentAfter is a budget that is spent once so much was used.
type spentAfter struct {
	limit time.Duration
	then  quota.Sanction
}

func (b *spentAfter) Charge(total quota.Measured, _ time.Duration) quota.Sanction {
	if total.Charged < b.limit {
		return quota.None
	}
	return b.then
}

// TestBudgets tests that a guest whose budget is spent is held, or throttled, by the decision of
// the very round that spent it, and gets the GPU again once it has a budget again.
func TestBudgets(t *testing.T) {
	for _, policy := range []string{"none", "dfq", "hpf", "ffs"} {
		s := newScene(t)
		b := &spentAfter{limit: 25 * ms, then: quota.Held}
		g := s.joinWith(1, GuestOptions{Terms: ipc.Terms{Weight: 8, Guarantee: 0.5, PriorityCeiling: 9}, Budget: b}, 1)
		other := s.join(2, 1, 2)
		if err := s.sched.SetPolicy(policy); err != nil {
			t.Fatal(err)
		}
		s.sched.Changed(0)
		for _, g := range s.guests {
			g.o.Page.Context(0).SetBacklog(true)
		}
		s.poll(10*ms, busy(1, 10*ms))
		s.poll(10*ms, busy(1, 10*ms))
		if g.sanction != quota.None {
			t.Errorf("%s: held with 20 of 25 ms used", policy)
		}
		for range 5 {
			s.poll(10*ms, busy(1, 6*ms))
			if !g.Suspended() || other.Suspended() {
				t.Errorf("%s: held %v, the other %v, with %v of 25 ms used", policy, g.Suspended(), other.Suspended(), g.Bill().Used)
			}
		}
		if st := g.Status(s.clock.Now()); st.Entitled != 0 || st.Sanction != quota.Held {
			t.Errorf("%s: held and entitled to %v, sanction %v", policy, st.Entitled, st.Sanction)
		}
		b.then = quota.Throttled
		s.poll(10*ms, busy(2, 10*ms))
		if g.Suspended() {
			t.Errorf("%s: throttled, and held", policy)
		}
		st := s.sched.state[0]
		if st.Weight != quota.ThrottledWeight || st.Quota.Guarantee != 0 || st.Urgency != 0 || g.Status(s.clock.Now()).Entitled > 0.01 {
			t.Errorf("%s: throttled: %+v, entitled to %v", policy, st, g.Status(s.clock.Now()).Entitled)
		}
		b.limit = time.Hour
		s.poll(10*ms, busy(2, 10*ms))
		if st := s.sched.state[0]; st.Weight != 8 || st.Quota.Guarantee != 0.5 || st.Urgency != 9 {
			t.Errorf("%s: after the period: %+v", policy, st)
		}
		if g.Terms().Weight != 8 || g.o.Page.Terms().Weight != 8 {
			t.Errorf("%s: the budget changed the terms: %+v", policy, g.Terms())
		}
		s.leave(1)
		s.leave(0)
	}
}

// TestSpentBudgetStarts tests that a guest that starts with its budget spent, as after a restart of
// the guest or the daemon, is held before anything is charged.
func TestSpentBudgetStarts(t *testing.T) {
	for _, policy := range []string{"none", "dfq", "hpf", "ffs"} {
		s := newScene(t)
		if err := s.sched.SetPolicy(policy); err != nil {
			t.Fatal(err)
		}
		s.join(1, 1, 1)
		g := s.joinWith(2, GuestOptions{Terms: ipc.Terms{Weight: 8}, Budget: &spentAfter{then: quota.Held}}, 2)
		s.sched.Changed(g.ID())
		if !g.Suspended() {
			t.Errorf("%s: not held", policy)
		}
		s.leave(1)
		s.leave(0)
	}
}

// told is a budget that remembers what it was told, and is never spent.
type told struct {
	total  quota.Measured
	coming time.Duration
	times  int
}

func (b *told) Charge(total quota.Measured, coming time.Duration) quota.Sanction {
	b.total, b.coming = total, coming
	b.times++
	return quota.None
}

// TestBudgetIsTold tests what a budget is told each round, beside what the guest was charged: what its
// executors counted, how far the charge may be off, and what the kernels on the GPU will use.
func TestBudgetIsTold(t *testing.T) {
	s := newScene(t)
	poll, quiet := s.sched.planner.Mean(accounting.Load{Active: 1})
	b := new(told)
	g := s.joinWith(1, GuestOptions{Terms: ipc.Terms{Weight: 1}, Bill: ipc.Bill{Used: time.Second, Executed: 900 * ms}, Budget: b}, 1)
	if want := (quota.Measured{Charged: time.Second, Executed: 900 * ms}); b.total != want {
		t.Errorf("at first %+v, want %+v", b.total, want)
	}
	kernel := func(n int, took time.Duration) {
		for range n {
			g.o.Page.Context(0).AddFetched()
			g.o.Page.Context(0).AddFinished(took, 0, false)
		}
	}
	kernel(4, 250*ms)
	g.o.Page.Context(0).AddFetched()
	g.o.Page.Context(0).AddFetched()
	s.poll(10*ms, busy(1, 4*ms))
	want := quota.Measured{Charged: time.Second + 4*ms, Executed: time.Second, Variance: float64(4*ms) * float64(poll+quiet) * 0.6}
	if b.total != want || b.coming != 500*ms {
		t.Errorf("told of %+v and %v, want %+v and two kernels", b.total, b.coming, want)
	}
	before := b.total.Variance
	if s.poll(10*ms, busy(1, 10*ms)); b.total.Variance != before {
		t.Errorf("alone on the GPU, its charge is off by %v more", b.total.Variance-before)
	}
	g.o.Page.Context(0).AddFinished(250*ms, 0, false)
	g.o.Page.Context(0).AddFinished(250*ms, 0, false)
	if s.poll(10*ms, busy(1, 4*ms)); b.coming < 480*ms || b.coming >= 500*ms {
		t.Errorf("with nothing on the GPU just now, told of %v, want nearly what there was", b.coming)
	}
	s.script("", true) // kernels leave
	if s.poll(10*ms, busy(1, 4*ms)); b.coming != poll+quiet {
		t.Errorf("of kernels that leave %v are coming, want %v", b.coming, poll+quiet)
	}
	s.sched.SetGPU(GPU{Watch: s.sched.gpu.Watch, ByExecutors: true})
	before = b.total.Variance
	if s.poll(10*ms, busy(g.contextGroup(0), 4*ms)); b.total.Variance != before || b.total.Charged != time.Second+26*ms {
		t.Errorf("executors told of all, and the budget of %+v", b.total)
	}
	kernel(1, 3*ms)
	times := b.times
	if s.leave(0); b.total.Executed != 1503*ms || b.times != times+1 || b.coming != 0 {
		t.Errorf("when it left, told of %+v and %v", b.total, b.coming)
	}
}
