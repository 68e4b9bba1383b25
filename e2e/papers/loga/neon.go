package main

import (
	"math"
	"time"

	"vgpud/e2e/papers/neon"
	"vgpud/fairshare"
)

// runNeon carries the experiment out under NEON's accounting as the papers describe it
// instead of LoGA's, and with its scheduler where schedule is set.
func (e experiment) runNeon(schedule bool) (*outcome, error) {
	e.policy = "none"
	l, err := e.loop(fairshare.Options{})
	if err != nil {
		return nil, err
	}
	config := neon.PerChannels(e.eachHas())
	var allow func([]neon.Sample) []neon.Owner
	if schedule {
		allow = neon.NewQueue(config, len(e.tenants)).Allow
	}
	sampling := neon.NewSampling(config, neon.SimGate(l.sim), allow)
	for l.sim.Now() < e.length {
		next, round := sampling.Step(l.sim.Now())
		if round != nil {
			for _, o := range round.Samples {
				l.out.accounted[o.Owner] += o.Charged
			}
		}
		l.advance(min(next, e.length))
	}
	return l.result(), nil
}

// runPublishedNeon carries the experiment out under NEON as it is published, which asks
// for its own time; nobody is held back unless schedule is set. What it charges is not
// told, so that nothing is accounted.
func (e experiment) runPublishedNeon(schedule bool) (*outcome, error) {
	o := fairshare.Options{Sample: neon.PerChannels(e.eachHas()).Alone}
	if !schedule {
		o.Threshold = math.MaxInt64
	}
	e.policy = "neon"
	l, err := e.loop(o)
	if err != nil {
		return nil, err
	}
	for l.sim.Now() < e.length {
		l.observe(0, 0)
		for i, g := range l.sim.Guests() {
			done := g.Progress().Completed
			l.state.Guests[i].Requests = fairshare.Requests{Completed: done, Calls: done, UnderWay: g.InFlight(), First: g.TakeIssued()}
		}
		next := l.decide(fairshare.Event{Kind: fairshare.Tick})
		l.advance(min(l.sim.Now()+next, e.length))
	}
	return l.result(), nil
}

// advance carries the clock on to t, and marks where the tenants stand on the way.
func (l *loop) advance(t time.Duration) {
	for l.sim.Now() < t {
		l.sim.AdvanceTo(min(t, l.sim.Now()+time.Second/steps))
		l.markInTime()
	}
}
