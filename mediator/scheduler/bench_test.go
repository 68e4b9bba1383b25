package scheduler

import (
	"runtime"
	"testing"
	"time"

	"vgpud/clock"
	"vgpud/fairshare"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
)

// BenchmarkTurn measures how long a launch waits for its turn on a free GPU, from the executor's
// ring to the verdict in the slot.
func BenchmarkTurn(b *testing.B) {
	for _, policy := range []string{"fifo", "hpf"} {
		b.Run(policy, func(b *testing.B) {
			s := newScene(b)
			s.sched.o.Clock = clock.Real{}
			g := s.join(1, 1, 1)
			if err := s.sched.SetPolicy(policy); err != nil {
				b.Fatal(err)
			}
			s.sched.Changed(0)
			s.sched.Listen(g)
			b.ReportAllocs()
			for b.Loop() {
				now := clock.Real{}.Now()
				c, ok := g.o.Page.Claim(0, &ipc.Launch{Arrived: now})
				if !ok {
					b.Fatal("no slot")
				}
				for c.State() != slotstate.ToRun {
					runtime.Gosched()
				}
				c.Start(now)
				c.Finish(time.Microsecond)
			}
			s.leave(0)
		})
	}
}

// BenchmarkDecide measures what the scheduler computes for one launch that arrives and ends among
// the launches of eight guests.
func BenchmarkDecide(b *testing.B) {
	s := newScene(b)
	for id := range fairshare.GuestID(8) {
		s.join(id+1, 1, uint16(id+1))
	}
	if err := s.sched.SetPolicy("hpf"); err != nil {
		b.Fatal(err)
	}
	s.sched.Changed(0)
	for _, g := range s.guests {
		s.submit(g, ipc.Launch{Form: 1, Evictable: true})
	}
	s.sched.LaunchesChanged()
	urgent := s.guests[3]
	b.ReportAllocs()
	for b.Loop() {
		c := s.submit(urgent, ipc.Launch{Priority: 9})
		s.sched.LaunchesChanged()
		c.Start(s.clock.Now())
		c.Finish(time.Microsecond)
		s.sched.LaunchesChanged()
	}
}
