package daemon

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"vgpud/fairshare"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
)

// TestBoardNeverLosesLaunches has executors and a policy do as they like: what the
// policy is told adds up to what there is.
func TestBoardNeverLosesLaunches(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newTable(t, 3)
		var live []ipc.Claim
		known := make(map[fairshare.LaunchID]bool)
		hear := func() {
			for {
				ev, ok := b.board.next()
				if !ok {
					return
				}
				switch ev.Kind {
				case fairshare.Arrived:
					if known[ev.Launch] {
						rt.Fatalf("launch %d arrived twice", ev.Launch)
					}
					known[ev.Launch] = true
				case fairshare.Finished, fairshare.Evicted:
					if !known[ev.Launch] {
						rt.Fatalf("%v %d, which never arrived", ev.Kind, ev.Launch)
					}
					known[ev.Launch] = ev.Kind == fairshare.Evicted
				}
				for _, l := range b.launches() {
					if !known[l.ID] {
						rt.Fatalf("shown launch %d, of which it was not told", l.ID)
					}
				}
			}
		}
		pick := func() (ipc.Claim, error) {
			if len(live) == 0 {
				return ipc.Claim{}, errors.New("none")
			}
			return live[rapid.IntRange(0, len(live)-1).Draw(rt, "which")], nil
		}
		rt.Repeat(map[string]func(*rapid.T){
			"submit": func(rt *rapid.T) {
				if len(live) < 2*ipc.MaxLaunchSlots {
					b.now++
					v := ipc.Launch{Evictable: rapid.Bool().Draw(rt, "evictable"), Arrived: b.now}
					if c, ok := b.parties[rapid.IntRange(0, 2).Draw(rt, "guest")].page.Claim(0, &v); ok {
						live = append(live, c)
					}
				}
			},
			"execute": func(rt *rapid.T) {
				c, err := pick()
				if err != nil {
					return
				}
				b.now++
				switch c.State() {
				case slotstate.Ready:
					if rapid.Bool().Draw(rt, "silent") {
						c.Grant()
					}
				case slotstate.ToRun:
					c.Start(b.now)
				case slotstate.Running, slotstate.ToEvict:
					if rapid.Bool().Draw(rt, "leaves") {
						c.Leave(b.now, ms)
					} else {
						c.Finish(ms)
					}
				}
			},
			"abandon": func(rt *rapid.T) {
				if c, err := pick(); err == nil {
					c.Abandon(ms)
				}
			},
			"decide": func(rt *rapid.T) {
				for _, r := range b.board.rows {
					switch rapid.IntRange(0, 2).Draw(rt, "verdict") {
					case 0:
						r.run(b.now)
					case 1:
						r.evict(math.MaxUint32, b.now, 0)
					}
				}
			},
			"look": func(*rapid.T) { b.look() },
			"hear": func(*rapid.T) { hear() },
			"another policy": func(*rapid.T) {
				b.board.anew()
				clear(known)
			},
			"": func(*rapid.T) {
				var still []ipc.Claim
				for _, c := range live {
					if c.State() != slotstate.Done {
						still = append(still, c)
					}
				}
				live = still
			},
		})
		b.look()
		hear()
		got := 0
		for _, yes := range known {
			if yes {
				got++
			}
		}
		if got != len(live) || len(b.launches()) != len(live) {
			rt.Errorf("there are %d launches, the policy knows of %d and is shown %d", len(live), got, len(b.launches()))
		}
	})
}
