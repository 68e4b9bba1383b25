package main

import (
	"time"

	"vgpud/accounting"
	"vgpud/gpu/soft/sim"
)

// neonConfig is NEON as LoGA §5.1 configured it: 1 ms of sampling and 5 ms of
// free run for each allocated channel, and CUDA allocates 12 for an
// application.
var neonConfig = accounting.NeonConfig{Alone: 12 * time.Millisecond, FreeRun: 60 * time.Millisecond}

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
	queue := neonQueue{virtual: make([]time.Duration, len(e.tenants))}
	var allow func([]accounting.NeonOwner) []accounting.Owner
	if schedule {
		allow = queue.allow
	}
	neon := accounting.NewNeon(neonConfig, s.Gate(), allow)
	for s.Now() < e.length {
		next, round := neon.Step(s.Now())
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

// neonQueue is NEON's disengaged fair queueing: who is ahead of the one with the
// least virtual time by more than a free run sits the next one out.
type neonQueue struct{ virtual []time.Duration }

func (q *neonQueue) allow(sampled []accounting.NeonOwner) (allowed []accounting.Owner) {
	system, found := time.Duration(0), false
	for _, o := range sampled {
		q.virtual[o.Owner] += o.Charged
		if o.Commands > 0 && (!found || q.virtual[o.Owner] < system) {
			system, found = q.virtual[o.Owner], true
		}
	}
	threshold := neonConfig.FreeRun * time.Duration(len(sampled))
	for _, o := range sampled {
		q.virtual[o.Owner] = max(q.virtual[o.Owner], system)
		if q.virtual[o.Owner]-system <= threshold {
			allowed = append(allowed, o.Owner)
		}
	}
	return allowed
}
