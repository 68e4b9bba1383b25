package scheduler

import (
	"testing"

	"vgpud/fairshare"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
)

// TestUrgentAfterSilence: while the daemon is silent executors let launches run by themselves, an
// urgent one behind another guest's, too. When the daemon is back, or another takes over, the urgent
// one does not wait until the other has ended.
func TestUrgentAfterSilence(t *testing.T) {
	for _, known := range []bool{false, true} { // to the daemon, since before the silence
		name := "another daemon"
		if known {
			name = "the same daemon"
		}
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			if err := s.sched.SetPolicy("hpf"); err != nil {
				t.Fatal(err)
			}
			guest := func(id fairshare.GuestID, ceiling int) *Guest {
				return s.joinWith(id, GuestOptions{Terms: ipc.Terms{Weight: 1, PriorityCeiling: ceiling}}, uint16(id))
			}
			batch, urgent := guest(1, 0), guest(2, 1)
			if known {
				s.sched.LaunchesChanged()
			}
			start := func(g *Guest, v ipc.Launch) ipc.Claim {
				c := s.submit(g, v)
				if !c.Grant() || !c.Start(s.clock.Now()) {
					t.Fatalf("a launch did not go to the GPU: %v", c.State())
				}
				return c
			}
			long := start(batch, ipc.Launch{Evictable: true, Form: 1})
			short := start(urgent, ipc.Launch{Priority: 1})
			s.sched.LaunchesChanged()
			if long.State() != slotstate.ToEvict || short.State() != slotstate.Running {
				t.Errorf("the batch launch is %v, the urgent one %v", long.State(), short.State())
			}
		})
	}
}
