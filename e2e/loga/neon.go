package main

import (
	"time"

	"vgpud/accounting"
	"vgpud/e2e/disengaged"
	"vgpud/gpu/soft/sim"
)

// neonConfig is for CUDA's applications: it allocates 12 channels for each.
var neonConfig = disengaged.Config(12)

// runNeon carries the experiment out under NEON's accounting instead of LoGA's,
// and with its scheduler where schedule is set.
func (e experiment) runNeon(schedule bool) (*outcome, error) {
	s, err := sim.New(e.gpu, e.seed)
	if err != nil {
		return nil, err
	}
	for _, t := range e.tenants {
		if _, err := s.Add(t.load()); err != nil {
			return nil, err
		}
	}
	out := &outcome{accounted: make([]time.Duration, len(e.tenants))}
	var allow func([]accounting.NeonOwner) []accounting.Owner
	if schedule {
		allow = disengaged.NewQueue(neonConfig, len(e.tenants)).Allow
	}
	sampling := accounting.NewNeon(neonConfig, s.Gate(), allow)
	for s.Now() < e.length {
		next, round := sampling.Step(s.Now())
		if round != nil {
			for _, o := range round.Owners {
				out.accounted[o.Owner] += o.Charged
			}
		}
		s.AdvanceTo(min(next, e.length))
	}
	out.length, out.idle = s.Now(), s.Totals().Idle
	for _, g := range s.Guests() {
		out.truth = append(out.truth, g.Usage().Busy)
		out.kernels = append(out.kernels, g.Progress().Completed)
	}
	return out, nil
}
