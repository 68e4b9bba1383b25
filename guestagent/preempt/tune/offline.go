package tune

import (
	"time"

	"vgpud/mediator/vgpu/abi"
)

// Offline runs launches until the choice for a shape is made, or most have run, and returns its
// report: tuning off line, as FLEP does before a program is used (§4.1). run launches in the given
// form and returns what that cost.
func (t *Tuner) Offline(s Shape, slots, most int, run func(abi.Preempt) (time.Duration, error)) (Report, error) {
	slots = max(slots, 1)
	for range most {
		choice, k := t.Pick(s, slots)
		took, err := run(choice)
		if err != nil {
			t.Discard(k)
			return Report{}, err
		}
		t.Observe(k, took, took)
		if k.c == nil || !k.c.measuring {
			break
		}
	}
	return t.report(t.class(s.Class(), true)), nil
}
