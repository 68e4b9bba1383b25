package tune

import (
	"time"

	"vgpud/mediator/vgpu/abi"
)

// Offline runs launches until the choice for a shape is settled, or most have run, and tells of it: tuning off line, as
// FLEP does before a program is used (§4.1). Where persistent blocks are chosen, how often they look is then found as FLEP
// finds L: the smallest that keeps the bound on overhead, so that they leave the soonest. run launches as it is told and
// returns what that cost.
func (t *Tuner) Offline(s Shape, slots, most int, run func(abi.Preempt) (time.Duration, error)) (Report, error) {
	slots = max(slots, 1)
	for range most {
		choice, k := t.Pick(s, slots)
		took, err := run(choice)
		if err != nil {
			t.Lost(k)
			return Report{}, err
		}
		t.Observe(k, took)
		if k.c == nil || !k.c.open {
			break
		}
	}
	c := t.class(s.Class(), true)
	if a := &c.arms[c.chosen]; !c.open && a.choice.Form == abi.PreemptPersistent && a.choice.Every > 1 {
		if err := t.amortize(c, a, run); err != nil {
			return Report{}, err
		}
	}
	return t.report(c), nil
}

// amortize finds the least Every for the arm that was chosen.
func (t *Tuner) amortize(c *class, a *arm, run func(abi.Preempt) (time.Duration, error)) error {
	var best samples
	cost := func(every uint32) (float64, error) {
		var s samples
		choice := a.choice
		choice.Every = every
		for range t.params.Measure {
			took, err := run(choice)
			if err != nil {
				return 0, err
			}
			s.add(perTask(took, c.tasks))
		}
		best = s
		return s.low(), nil
	}
	every, err := Amortize(c.arms[0].cost.low(), t.params.Overhead, a.choice.Every-1, cost)
	if err == nil && every > 0 {
		a.choice.Every, a.cost = every, best
	}
	return err
}
