package fairshare_test

import (
	"testing"
	"time"

	"vgpud/fairshare"
)

// TestSuspendReasons: a suspension says why it is, and says so anew when that changes.
func TestSuspendReasons(t *testing.T) {
	ahead := policyFunc(func() []fairshare.Verdict { return []fairshare.Verdict{{Guest: 1, Action: fairshare.Suspend}} })
	none := policyFunc(func() []fairshare.Verdict { return nil })
	busy := func(id fairshare.GuestID, used time.Duration, q fairshare.Quota) fairshare.Guest {
		return fairshare.Guest{ID: id, Weight: 1, Active: true, Backlogged: true, Used: used, Quota: q}
	}
	held := busy(1, 0, fairshare.Quota{})
	held.Held = true
	for _, c := range []struct {
		name   string
		policy fairshare.Policy
		first  fairshare.Guest
		others []fairshare.Guest
		reason fairshare.SuspendReason
		cause  fairshare.GuestID
	}{
		{"ahead", ahead, busy(1, 20*ms, fairshare.Quota{}), nil, fairshare.AheadOfShare, 0},
		{"at its cap", none, busy(1, 20*ms, fairshare.Quota{Cap: 0.1}), nil, fairshare.AtCap, 0},
		{"at its cap, and ahead", ahead, busy(1, 20*ms, fairshare.Quota{Cap: 0.1}), nil, fairshare.AtCap, 0},
		{"without a budget", ahead, held, nil, fairshare.BudgetSpent, 0},
		{"beside a guarantee", none, busy(1, 20*ms, fairshare.Quota{}), []fairshare.Guest{busy(4, 0, fairshare.Quota{}), busy(7, 0, fairshare.Quota{Guarantee: 0.9})}, fairshare.BehindGuarantee, 7},
	} {
		p := fairshare.Bound(c.policy)
		st := fairshare.State{Guests: append([]fairshare.Guest{c.first}, c.others...), Round: 24 * ms}
		poll := fairshare.Event{Kind: fairshare.Tick, Phase: fairshare.PollPhase, Length: 20 * ms, Watched: 20 * ms}
		var got *fairshare.Verdict
		for i := range 10 { // a guarantee is missed for some rounds first
			v, _ := p.Decide(time.Duration(i)*20*ms, poll, st)
			for _, v := range v {
				if v.Guest == 1 && v.Action == fairshare.Suspend {
					got = &v
				}
			}
			st.Guests[0].Suspended = got != nil
		}
		if got == nil || got.Reason != c.reason || got.For != c.cause {
			t.Errorf("%s: %+v, want reason %v for guest %d", c.name, got, c.reason, c.cause)
		}
	}

	p := fairshare.Bound(ahead)
	g := busy(1, 0, fairshare.Quota{})
	ask := func() (reasons []string) {
		v, _ := p.Decide(0, fairshare.Event{Kind: fairshare.Changed, Guest: 1}, fairshare.State{Guests: []fairshare.Guest{g}, Round: 24 * ms})
		for _, v := range v {
			reasons = append(reasons, v.Action.String()+" "+v.Reason.String())
		}
		return reasons
	}
	for i, want := range []string{"suspend share", "", "suspend budget", "", "suspend share"} {
		g.Held = i == 2 || i == 3
		got := ask()
		if want == "" && len(got) == 0 || len(got) == 1 && got[0] == want {
			g.Suspended = true
			continue
		}
		t.Errorf("decision %d: %v, want %q", i, got, want)
	}
}
