package executor

import (
	"context"
	"slices"
	"testing"
	"time"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

// ticking is a clock that goes on with each look.
type ticking struct{ now, tick time.Duration }

func (c *ticking) Now() time.Duration {
	c.now += c.tick
	return c.now
}

func (c *ticking) WaitUntil(context.Context, time.Duration) error { return nil }

// polledEvents are event kernels that note when their doorbells are polled.
type polledEvents struct {
	gpu.EventKernels
	polls []bool
	rung  bool // there is a ring that nobody saw
}

func (p *polledEvents) PollEvents(on bool) bool {
	p.polls = append(p.polls, on)
	return p.rung
}

// TestRingWait: after some short waits the executor of a guest that may poll waits for a ring without
// sleeping, and rings ask for no kick meanwhile. It polls no longer than it may.
func TestRingWait(t *testing.T) {
	const limit, pause = 5 * time.Millisecond, 2 * time.Millisecond
	for name, c := range map[string]struct {
		limit       time.Duration
		first       bool // no wait was recorded
		ringAt      int  // the yield in which it rings
		kickAt      int  // the yield in which somebody kicks
		unseen      bool
		pending     bool // there is a ring from before
		long        bool // a yield takes long
		again, poll bool
		most        time.Duration
	}{
		"a ring":                             {limit: limit, ringAt: 3, again: true, poll: true, most: pause},
		"no ring":                            {limit: limit, poll: true, most: limit},
		"a kick":                             {limit: limit, kickAt: 3, again: true, poll: true, most: pause},
		"a ring just when the poll ends":     {limit: limit, unseen: true, again: true, poll: true, most: limit},
		"nothing known":                      {limit: limit, first: true, ringAt: 3},
		"the guest may not poll":             {ringAt: 3},
		"a ring from before":                 {limit: limit, pending: true},
		"another thread wants the processor": {limit: limit, long: true, poll: true, most: 3 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, gpu.ContextOptions{})
			n, ok := r.page.TakeEventNumber(0)
			if !ok {
				t.Fatal("no event number")
			}
			r.page.SetPollLimit(c.limit)
			at := &ticking{tick: 10 * time.Microsecond}
			r.x.o.Clock = at
			r.page.Beat(at.now)
			ek := &polledEvents{rung: c.unseen}
			ring := func() { abi.AtomicWord(r.options.Events, abi.EventPage(n)+abi.EventDoorbellWord).Add(1) }
			kicks := abi.AtomicWord(r.options.Events, abi.EventKicksWord)
			yields := 0
			r.x.yield = func() {
				switch yields++; yields {
				case c.ringAt:
					ring()
				case c.kickAt:
					kicks.Add(1)
				case 2:
					if c.long {
						at.now += 2 * longYield
					}
				}
			}
			w := newRingWait(r.x, ek)
			if !c.first {
				for range 2 * minPaidWaits {
					w.on, w.from, w.limit = true, at.now-pause, c.limit
					w.ended()
				}
			}
			if c.pending {
				ring()
			}
			begin := at.now
			if again := w.poll(t.Context(), kicks.Load()); again != c.again {
				t.Errorf("there is something to look at: %v", again)
			}
			if took := at.now - begin; c.poll && took > c.most+at.tick || !c.poll && yields > 0 {
				t.Errorf("polled for %v, %d yields", took, yields)
			}
			if want := []bool{true, false}; c.poll != slices.Equal(ek.polls, want) || !c.poll && len(ek.polls) > 0 {
				t.Errorf("polls are told of as %v", ek.polls)
			}
		})
	}
}
