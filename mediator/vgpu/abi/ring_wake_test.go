package abi

import (
	"sync"
	"testing"
	"time"

	"vgpud/internal/atonce"
)

// meeting is the time that the two sides of a ring are tried against each other.
const meeting = 2 * time.Second

// TestSleepingHostIsRung has the host go to sleep while the guest submits a command.
func TestSleepingHostIsRung(t *testing.T) {
	p := newSharedPair(t, 128)
	buf := make([]Entry, MaxMore+1)
	var asleep, kick bool
	lost := 0
	p.write(t)
	rounds := atonce.Run(meeting, func() { asleep = p.sr.Arm() }, func() { kick = p.sw.Publish() }, func() bool {
		if asleep && !kick {
			lost++
		}
		if n, err := p.sr.Fetch(buf); n != 1 || err != nil {
			t.Errorf("fetched %d, %v", n, err)
		}
		p.write(t)
		return !t.Failed()
	})
	if lost > 0 {
		t.Errorf("%d doorbells lost in %d rounds", lost, rounds)
	}
}

// write writes a command that the host does not see yet.
func (p *pair) write(t *testing.T) {
	e := p.sw.Next()
	if e == nil {
		t.Fatal("no room")
	}
	Header{Op: OpNop}.Encode(e)
	Empty{}.Encode(e)
}

// TestSleepingGuestIsInterrupted has the guest go to sleep while the host completes a command.
func TestSleepingGuestIsInterrupted(t *testing.T) {
	p := newSharedPair(t, 128)
	var c [1]Completion
	var asleep, interrupt bool
	lost := 0
	complete := func() {
		if e, err := p.cw.Next(); e == nil {
			t.Errorf("no room: %v", err)
		} else {
			(&Completion{Op: OpNop}).Encode(e)
		}
	}
	complete()
	rounds := atonce.Run(meeting, func() { asleep = p.cr.Arm(0) }, func() { interrupt = p.cw.Publish() }, func() bool {
		if asleep && !interrupt {
			lost++
		}
		if n, _, err := p.cr.Fetch(c[:]); n != 1 || err != nil {
			t.Errorf("fetched %d, %v", n, err)
		}
		complete()
		return !t.Failed()
	})
	if lost > 0 {
		t.Errorf("%d interrupts lost in %d rounds", lost, rounds)
	}
}

// TestHostWithoutRoomIsRung has the host go to sleep for room while the guest takes a completion.
func TestHostWithoutRoomIsRung(t *testing.T) {
	p := newSharedPair(t, 128)
	fill := func() error {
		for {
			e, err := p.cw.Next()
			if e == nil {
				p.cw.Publish()
				return err
			}
			(&Completion{Op: OpNop}).Encode(e)
		}
	}
	if err := fill(); err != nil {
		t.Fatal(err)
	}
	var c [1]Completion
	var asleep, kick bool
	lost := 0
	rounds := atonce.Run(meeting, func() { asleep = p.cw.ArmRoom() }, func() {
		var err error
		if _, kick, err = p.cr.Fetch(c[:]); err != nil {
			t.Error(err)
		}
	}, func() bool {
		if asleep && !kick {
			lost++
		}
		if err := fill(); err != nil {
			t.Error(err)
		}
		return !t.Failed()
	})
	if lost > 0 {
		t.Errorf("%d doorbells lost in %d rounds", lost, rounds)
	}
}

// TestNoLostWakeup runs both sides as goroutines that sleep on channels whenever the protocol lets
// them. A lost wake-up is a deadlock, which ends at the test's time limit.
func TestNoLostWakeup(t *testing.T) {
	const total = 20000
	p := newSharedPair(t, 128)
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
