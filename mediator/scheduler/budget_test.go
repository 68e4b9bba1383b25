package scheduler

import (
	"testing"
	"time"

	"vgpud/fairshare/quota"
	"vgpud/mediator/ipc"
)

// spentAfter is a budget that is spent once so much was used.
type spentAfter struct {
	limit time.Duration
	then  quota.Sanction
}

func (b *spentAfter) Charge(total time.Duration) quota.Sanction {
	if total < b.limit {
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
