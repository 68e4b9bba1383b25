package abi

import (
	"sync"
	"testing"
)

// TestNoLostWakeup runs both sides as goroutines that sleep on channels whenever the protocol lets
// them. A lost wake-up is a deadlock, which ends at the test's time limit.
func TestNoLostWakeup(t *testing.T) {
	const total = 20000
	p := newPair(t, 128)
	doorbell, interrupt := make(chan struct{}, 1), make(chan struct{}, 1)
	ring := func(c chan struct{}) {
		select {
		case c <- struct{}{}:
		default:
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { // host
		buf := make([]Entry, MaxMore+1)
		for done := 0; done < total; {
			n, err := p.sr.Fetch(buf)
			if err != nil {
				t.Error(err)
				return
			}
			if n == 0 {
				if p.sr.Arm() {
					<-doorbell
				}
				continue
			}
			for i := range n {
				h, _ := DecodeHeader(&buf[i])
				e, err := p.cw.Next()
				for e == nil && err == nil {
					if p.cw.Publish() {
						ring(interrupt)
					}
					if p.cw.ArmRoom() {
						<-doorbell
					}
					e, err = p.cw.Next()
				}
				if err != nil {
					t.Error(err)
					return
				}
				done++
				(&Completion{Op: h.Op, Cookie: h.Cookie, Seq: uint64(done)}).Encode(e)
			}
			if p.cw.Publish() {
				ring(interrupt)
			}
		}
	})
	wg.Go(func() { // guest
		comps := make([]Completion, 32)
		sent, seen := 0, 0
		for seen < total {
			batch := 0
			for sent < total && batch < 1+sent%50 {
				e := p.sw.Next()
				if e == nil {
					break
				}
				Header{Op: OpNop, Cookie: uint64(sent)}.Encode(e)
				Empty{}.Encode(e)
				sent++
				batch++
			}
			if p.sw.Publish() {
				ring(doorbell)
			}
			n, kick, err := p.cr.Fetch(comps)
			if err != nil {
				t.Error(err)
				return
			}
			if kick {
				ring(doorbell)
			}
			for _, c := range comps[:n] {
				if c.Cookie != uint64(seen) {
					t.Errorf("completion %d has cookie %d", seen, c.Cookie)
					return
				}
				seen++
			}
			if n == 0 && batch == 0 && seen < total && p.cr.Arm(0) {
				<-interrupt
			}
		}
	})
	wg.Wait()
}
