package launchqueue

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"vgpud/fairshare"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
)

// TestQueueNeverLosesLaunches has executors and a policy do as they like: what the policy is told
// adds up to the launches that there are.
func TestQueueNeverLosesLaunches(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := newFixture(t, 3)
		var live []ipc.Claim
		known := make(map[fairshare.LaunchID]bool)
		tell := func() {
			for {
				ev, ok := f.queue.Next()
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
				for _, l := range f.launches() {
					if !known[l.ID] {
						rt.Fatalf("shown launch %d, which did not arrive", l.ID)
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
					f.now++
					v := ipc.Launch{Evictable: rapid.Bool().Draw(rt, "evictable"), Arrived: f.now}
					if c, ok := f.guests[rapid.IntRange(0, 2).Draw(rt, "guest")].Slots.(*ipc.ControlPage).Claim(0, &v); ok {
						live = append(live, c)
					}
				}
			},
			"execute": func(rt *rapid.T) {
				c, err := pick()
				if err != nil {
					return
				}
				f.now++
				switch c.State() {
				case slotstate.Ready:
					if rapid.Bool().Draw(rt, "silent") {
						c.Grant()
					}
				case slotstate.ToRun:
					c.Start(f.now)
				case slotstate.Running, slotstate.ToEvict:
					if rapid.Bool().Draw(rt, "leaves") {
						c.Leave(f.now, ms)
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
				for _, l := range f.queue.launches {
					switch rapid.IntRange(0, 2).Draw(rt, "verdict") {
					case 0:
						l.Run(f.now)
					case 1:
						l.Evict(math.MaxUint32, f.now, 0)
					}
				}
			},
			"look": func(*rapid.T) { f.read() },
			"tell": func(*rapid.T) { tell() },
			"another policy": func(*rapid.T) {
				f.queue.Reannounce()
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
		f.read()
		tell()
		got := 0
		for _, yes := range known {
			if yes {
				got++
			}
		}
		if got != len(live) || len(f.launches()) != len(live) {
			rt.Errorf("there are %d launches, the policy knows of %d and is shown %d", len(live), got, len(f.launches()))
		}
	})
}
