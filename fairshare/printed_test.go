package fairshare_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/fairshare"
)

// TestPrintedRuleHasQuietPhases tests that a guest is charged for the polling phase and the quiet
// phase before it, is suspended for the next quiet phase if it is ahead by more than the two, and
// is resumed at the end of that phase (LoGA §3.4).
func TestPrintedRuleHasQuietPhases(t *testing.T) {
	for _, name := range []string{"dfq-loga", "loga-cl"} {
		policy, err := fairshare.New(name, fairshare.Options{})
		if err != nil {
			t.Fatal(err)
		}
		suspend := []fairshare.Verdict{{Guest: 1, Action: fairshare.Suspend}}
		resume := []fairshare.Verdict{{Guest: 1, Action: fairshare.Resume}}
		suspended := false
		var now time.Duration
		for i, round := range []struct {
			quiet, poll time.Duration
			used        [2]time.Duration // of the polling phase
			quieted     []fairshare.Verdict
			polled      []fairshare.Verdict
		}{
			// 3/4 and 1/4 of 12 ms: ahead by 6, and 12 are allowed.
			{quiet: 11 * ms, poll: ms, used: [2]time.Duration{750 * us, 250 * us}},
			// Ahead by 6 as before, but only 2 are allowed.
			{quiet: ms, poll: ms, used: [2]time.Duration{500 * us, 500 * us}, polled: suspend},
			// It ran in the polling phase, so it stays ahead by as much, and 10 are allowed.
			{quiet: 9 * ms, poll: ms, used: [2]time.Duration{500 * us, 500 * us}, quieted: resume},
		} {
			for _, ev := range []fairshare.Event{
				{Kind: fairshare.Tick, Phase: fairshare.QuietPhase, Length: round.quiet},
				{Kind: fairshare.Tick, Phase: fairshare.PollPhase, Length: round.poll, Watched: round.poll},
			} {
				now += ev.Length
				st := fairshare.State{Round: 6 * ms}
				want := round.quieted
				for j, used := range round.used {
					g := fairshare.Guest{ID: fairshare.GuestID(j + 1), Weight: 1, Active: true, Backlogged: true, Suspended: suspended && j == 0}
					if ev.Phase == fairshare.PollPhase {
						g.Used, g.Runs = used, 1
						want = round.polled
					}
					st.Guests = append(st.Guests, g)
				}
				got, _ := policy.Decide(now, ev, st)
				if diff := cmp.Diff(want, append([]fairshare.Verdict(nil), got...)); diff != "" {
					t.Errorf("%s, round %d, phase %d: verdicts (-want +got):\n%s", name, i, ev.Phase, diff)
				}
				for _, v := range got {
					suspended = v.Action == fairshare.Suspend
				}
			}
		}
	}
}
