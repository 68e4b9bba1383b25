package main

import (
	"fmt"
	"time"

	"vgpud/accounting"
)

// Poller is the sampler of a [Simulation]. It has the result of polling every
// accounting.Config.Tick, and skips the ticks at which the status can't have changed.
type Poller struct {
	meter *accounting.Meter
	sim   accounting.Simulation
	tick  time.Duration
}

// NewPoller returns a poller that watches sim as c says.
func NewPoller(c accounting.Config, sim accounting.Simulation) *Poller {
	c = c.WithDefaults()
	return &Poller{meter: accounting.NewMeter(c), sim: sim, tick: c.Tick}
}

// Poll watches the GPU from now on for the given length and writes what it saw
// into p.
func (p *Poller) Poll(length time.Duration, phase *accounting.Phase) error {
	st, err := p.sample()
	if err != nil {
		return err
	}
	p.meter.Begin(st)
	if st, err = p.watch(st, length, nil); err != nil {
		return err
	}
	p.meter.Cut(st, phase)
	return nil
}

// PollUntilGone watches on until none of the groups executes, but no longer
// than atMost: a suspended guest's kernel is charged exactly (LoGA §4.3).
func (p *Poller) PollUntilGone(groups []accounting.GroupID, atMost time.Duration, phase *accounting.Phase) error {
	st, err := p.sample()
	if err != nil {
		return err
	}
	p.meter.Begin(st)
	if st, err = p.watch(st, atMost, groups); err != nil {
		return err
	}
	p.meter.Cut(st, phase)
	return nil
}

// Round watches the GPU for one round of the planner's and writes what its
// pieces came to into phase. quiet is how long it didn't watch: the pause before
// the first piece, and those between pieces.
func (p *Poller) Round(planner *accounting.Planner, l accounting.Load, phase *accounting.Phase) (quiet time.Duration, err error) {
	before, err := p.sample()
	if err != nil {
		return 0, err
	}
	for first := true; ; first = false {
		piece := planner.Next(l)
		p.sim.AdvanceTo(before.Clock + piece.Pause)
		st, err := p.sample()
		if err != nil {
			return 0, err
		}
		if quiet += st.Clock - before.Clock; first {
			p.meter.Begin(st)
		} else {
			p.meter.Resume(st)
		}
		if st, err = p.watch(st, piece.Poll, nil); err != nil {
			return 0, err
		}
		if piece.Last {
			p.meter.Cut(st, phase)
			return quiet, nil
		}
		p.meter.Pause(st)
		before = st
	}
}

// watch polls for a length from the status st on, or until none of the groups in
// gone executes, and returns the status at the end, which is not observed yet.
func (p *Poller) watch(st accounting.Status, length time.Duration, gone []accounting.GroupID) (accounting.Status, error) {
	if polled, ok := p.sim.(accounting.PolledSimulation); ok {
		polled.Polling(true)
		defer polled.Polling(false)
	}
	start, end := st.Clock, st.Clock+length
	for now := start; now < end; {
		if gone != nil && !executes(p.meter, gone) {
			break
		}
		next := p.nextTick(start, now, end)
		if skipped := (next - now - 1) / p.tick; skipped > 0 {
			p.meter.Unchanged(uint64(skipped))
		}
		p.sim.AdvanceTo(next)
		now = next
		var err error
		if st, err = p.sample(); err != nil {
			return st, err
		}
		if next < end {
			p.meter.Observe(st)
		}
	}
	return st, nil
}

// nextTick is the first poll after now that can see something new, or end.
func (p *Poller) nextTick(start, now, end time.Duration) time.Duration {
	next := now + p.tick
	steady := p.sim.SteadyUntil()
	if steady >= end {
		return end
	}
	if steady > next {
		ticks := (steady - start + p.tick - 1) / p.tick
		next = start + ticks*p.tick
	}
	return min(next, end)
}

func (p *Poller) sample() (accounting.Status, error) {
	st, err := p.sim.Sample()
	if err != nil {
		return st, fmt.Errorf("accounting: read the GPU's status: %w", err)
	}
	return st, nil
}

// executes reports whether one of the groups did at the newest observation.
func executes(m *accounting.Meter, groups []accounting.GroupID) bool {
	g, running := m.Executing()
	if !running {
		return false
	}
	for _, other := range groups {
		if g == other {
			return true
		}
	}
	return false
}
