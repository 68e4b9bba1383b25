package fairshare_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"vgpud/fairshare"
)

// TestCapHoldsOverLives tests that a guest that ends and starts anew, again and again and in the middle
// of rounds, gets no more than its cap over all of its lives.
func TestCapHoldsOverLives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const round = 20 * ms
		limit := part(t, 2, 60, "cap")
		rounds := rapid.IntRange(1, 12).Draw(t, "rounds of a life")
		inLast := round * time.Duration(rapid.IntRange(0, 100).Draw(t, "% of the round in which it leaves")) / 100
		pause := rapid.IntRange(0, 3).Draw(t, "rounds between lives")
		inner, err := fairshare.New("none", fairshare.Options{})
		if err != nil {
			t.Fatal(err)
		}
		p := fairshare.Bound(inner)
		var now, used time.Duration
		change := fairshare.Event{Kind: fairshare.Changed}
		phase := fairshare.Event{Kind: fairshare.Tick, Phase: fairshare.PollPhase, Length: round, Watched: round, Spread: true}
		tell := func(ev fairshare.Event, left []fairshare.Left, guests ...*fairshare.Guest) {
			now += ev.Length
			st := fairshare.State{Round: round, Left: left}
			for _, g := range guests {
				st.Guests = append(st.Guests, *g)
			}
			v, _ := p.Decide(now, ev, st)
			for _, v := range v {
				guests[0].Suspended = v.Action == fairshare.Suspend
			}
		}
		first := fairshare.GuestID(1)
		for ; now < 20*time.Second; first++ {
			g := fairshare.Guest{ID: first, Key: "a", Weight: 1, Quota: fairshare.Quota{Cap: limit}, Active: true, Backlogged: true}
			tell(change, nil, &g)
			for range rounds {
				if g.Used = 0; !g.Suspended {
					g.Used = round
				}
				used += g.Used
				tell(phase, nil, &g)
			}
			var left []fairshare.Left
			if !g.Suspended {
				left = []fairshare.Left{{Key: "a", Used: inLast}}
				used += inLast
			}
			tell(change, nil)
			for range 1 + pause {
				tell(phase, left)
				left = nil
			}
		}
		// Each life may use a round before it is known to be over its cap, which the next pays for.
		if most := limit*float64(now) + float64(4*round); float64(used) > most {
			t.Errorf("used %v in %v with a cap of %v: at most %v", used, now, limit, time.Duration(most))
		}
	})
}

// TestDepartedPaysBack tests that a guest that has left pays back with time, and that one of another
// name pays nothing.
func TestDepartedPaysBack(t *testing.T) {
	const round = 20 * ms
	for name, c := range map[string]struct {
		key       string
		away      time.Duration
		suspended bool
	}{
		"at once":      {"a", 0, true},
		"later":        {"a", 500 * ms, false},
		"another one":  {"b", 0, false},
		"without name": {"", 0, false},
	} {
		inner, err := fairshare.New("none", fairshare.Options{})
		if err != nil {
			t.Fatal(err)
		}
		p := fairshare.Bound(inner)
		tick := fairshare.Event{Kind: fairshare.Tick, Phase: fairshare.PollPhase, Length: round, Watched: round, Spread: true}
		g := fairshare.Guest{ID: 1, Key: "a", Weight: 1, Quota: fairshare.Quota{Cap: 0.1}, Active: true, Backlogged: true, Used: round}
		if c.key == "" {
			g.Key = ""
		}
		p.Decide(round, tick, fairshare.State{Round: round, Guests: []fairshare.Guest{g}})
		p.Decide(round, fairshare.Event{Kind: fairshare.Changed}, fairshare.State{Round: round})
		g.ID, g.Key, g.Used = 2, c.key, 0
		v, _ := p.Decide(round+c.away, fairshare.Event{Kind: fairshare.Changed}, fairshare.State{Round: round, Guests: []fairshare.Guest{g}})
		if got := len(v) == 1 && v[0].Action == fairshare.Suspend && v[0].Reason == fairshare.AtCap; got != c.suspended {
			t.Errorf("%s: verdicts %+v, want it suspended: %v", name, v, c.suspended)
		}
	}
}
