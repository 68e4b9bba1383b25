package soft

import (
	"testing"
	"time"

	"vgpud/gpu/soft/machine"
)

// parkRig is a machine in simulated time with a poller of one context, and a channel of another.
type parkRig struct {
	t     *testing.T
	e     *Engine
	p     *eventPoller
	own   *machine.Channel // of the poller's context
	other *machine.Channel
	now   time.Duration
}

func newParkRig(t *testing.T, mode machine.Mode) *parkRig {
	t.Helper()
	// The engine's own clock stays behind the machine's, which only steps move.
	e := &Engine{m: machine.New(machine.Config{Mode: mode}, 0, nil), epoch: time.Now(), base: -24 * time.Hour}
	channels := func(n int) (g *machine.Group, all []*machine.Channel) {
		g, err := e.m.NewGroup()
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			c, err := g.NewChannel()
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, c)
		}
		return g, all
	}
	g, mine := channels(2)
	_, others := channels(1)
	p := &eventPoller{c: &engineContext{e: e, group: g}, ch: mine[0]}
	e.pollers = []*eventPoller{p}
	r := &parkRig{t, e, p, mine[1], others[0], 0}
	p.unpark()
	r.until(time.Millisecond)
	if !p.resident || !p.on {
		t.Fatalf("%v: a poller alone: resident %v, on the GPU %v", mode, p.resident, p.on)
	}
	return r
}

// until does what the pacing thread does, in simulated time.
func (r *parkRig) until(end time.Duration) {
	for r.now < end {
		r.e.step(r.now)
		r.e.pollEvents(r.now)
		r.now = min(end, r.e.m.Next(), r.e.nextPoll(r.now))
	}
	r.e.step(r.now)
}

// submit has a launch that needs the whole GPU wait.
func (r *parkRig) submit(c *machine.Channel) *machine.Launch {
	r.t.Helper()
	l := &machine.Launch{Work: machine.Work{Duration: time.Millisecond}}
	if err := c.Submit(l); err != nil {
		r.t.Fatal(err)
	}
	return l
}

// TestPollerParksAtOnce: a poller without events leaves the GPU when it is polled next after another
// context has work, or its own does that does not fit beside it. Alone it stays for parkAfter. With an
// event under way it stays, to the end of its slice.
func TestPollerParksAtOnce(t *testing.T) {
	for _, mode := range modes {
		for _, c := range []struct {
			who string
			on  func(r *parkRig) *machine.Channel
		}{
			{"another context", func(r *parkRig) *machine.Channel { return r.other }},
			{"its own context", func(r *parkRig) *machine.Channel { return r.own }},
		} {
			r := newParkRig(t, mode)
			cfg := r.e.m.Config()
			began := r.now
			l := r.submit(c.on(r))
			soon := began + pollEvery + max(cfg.ExclusiveSwitch, cfg.SliceSwitch, cfg.ReadySwitch)
			if soon >= min(parkAfter, cfg.Slice+began) {
				t.Fatalf("%v: at once is not before the end of a slice of %v", mode, cfg.Slice)
			}
			r.until(soon + time.Microsecond)
			if r.p.resident || r.p.on || l.Start() == 0 || l.Start() > soon {
				t.Errorf("%v: work of %s from %v on starts at %v, want until %v; the poller is resident %v", mode, c.who, began, l.Start(), soon, r.p.resident)
			}
		}

		r := newParkRig(t, mode)
		if r.until(parkAfter - time.Microsecond); !r.p.on {
			t.Errorf("%v: a poller alone parks before %v", mode, parkAfter)
		}
		cfg := r.e.m.Config()
		if r.until(parkAfter + cfg.ReadySwitch + cfg.ExclusiveSwitch + 2*pollEvery); r.p.resident {
			t.Errorf("%v: a poller alone does not park after %v", mode, parkAfter)
		}

		r = newParkRig(t, mode)
		r.p.lanes = []*eventLane{{p: r.p, busy: true}}
		slice := cfg.Slice
		l := r.submit(r.other)
		if r.until(slice - pollEvery); l.Start() != 0 || !r.p.resident {
			t.Errorf("%v: with an event under way another's work starts at %v, before the slice of %v ends", mode, l.Start(), slice)
		}
		if r.until(2*slice + pollEvery); l.Start() == 0 {
			t.Errorf("%v: with an event under way another's work has not started %v after the slice", mode, slice)
		}
	}
}
