package daemon

import (
	"runtime"
	"testing"
	"time"

	"vgpud/clock"
	"vgpud/fairshare"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
)

// BenchmarkTurn is how long a launch waits for its turn on a GPU that is free: from
// the executor's word to the daemon's, by way of the bell and back.
func BenchmarkTurn(b *testing.B) {
	for _, policy := range []string{"fifo", "hpf"} {
		b.Run(policy, func(b *testing.B) {
			s := newScene(b)
			s.share.clock = clock.Real{}
			g := s.join(1, 1, 1)
			g.deaf = make(chan struct{})
			if err := s.share.setPolicy(policy); err != nil {
				b.Fatal(err)
			}
			s.share.changed(0)
			g.hearing.Go(func() { s.share.listen(g) })
			b.ReportAllocs()
			for b.Loop() {
				now := clock.Real{}.Now()
				c, ok := g.page.Claim(0, &ipc.Launch{Arrived: now})
				if !ok {
					b.Fatal("no stub")
				}
				for c.State() != slotstate.ToRun {
					runtime.Gosched()
				}
				c.Start(now)
				c.Finish(time.Microsecond)
			}
			close(g.deaf)
			g.page.WakeDaemon()
			g.hearing.Wait()
		})
	}
}

// BenchmarkDecide is what the daemon computes for one launch that arrives and ends
// among the launches of eight guests, without being woken.
func BenchmarkDecide(b *testing.B) {
	s := newScene(b)
	for id := range fairshare.GuestID(8) {
		s.join(id+1, 1, uint16(id+1))
	}
	if err := s.share.setPolicy("hpf"); err != nil {
		b.Fatal(err)
	}
	s.share.changed(0)
	for _, g := range s.guests {
		s.submit(g, ipc.Launch{Form: 1, Evictable: true})
	}
	s.share.rang()
	urgent := s.guests[3]
	b.ReportAllocs()
	for b.Loop() {
		c := s.submit(urgent, ipc.Launch{Priority: 9})
		s.share.rang()
		c.Start(s.clock.Now())
		c.Finish(time.Microsecond)
		s.share.rang()
	}
}
