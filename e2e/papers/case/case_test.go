package main

import (
	"testing"
	"time"

	"vgpud/fairshare/place"
)

// TestRandomMixes: in 100 of the mixes with growth, deaths and lost GPUs no memory is exceeded and
// nothing waits for ever.
func TestRandomMixes(t *testing.T) {
	var all mishap
	for seed := range uint64(100) {
		m := stir(seed)
		if m.oom+m.stuck > 0 {
			t.Errorf("seed %d: memory exceeded %d times, stuck: %v", seed, m.oom, m.stuck > 0)
		}
		all.add(m)
	}
	if all.passed > place.DefaultPatience {
		t.Errorf("a task was passed for %v", all.passed)
	}
	if all.grown == 0 || all.moved == 0 || all.left == 0 || all.deaths == 0 || all.lost == 0 {
		t.Errorf("not everything happened: %+v", all)
	}
	t.Logf("%+v", all)
}

// TestSimulationOfSingleAssignment agrees with what needs no simulation.
func TestSimulationOfSingleAssignment(t *testing.T) {
	for _, h := range []host{p100s, v100s} {
		for _, w := range table2 {
			jobs := on(w.mix(0), &h, 1)
			o := simulate(&h, jobs, fromAllocation, newSingle)
			length, busy := alone(jobs, h.gpus)
			if d := (o.length - length).Abs(); d > 10*time.Millisecond || o.done != w.jobs {
				t.Errorf("%s %s: %d jobs in %v, want %d in %v", h.name, w.name, o.done, o.length, w.jobs, length)
			}
			if mean, _ := o.utilisation(); mean-busy > 0.001 || busy-mean > 0.001 {
				t.Errorf("%s %s: %.4f of the GPUs' time, want %.4f", h.name, w.name, mean, busy)
			}
			if s := o.slowdown(); s > 1e-3 {
				t.Errorf("%s %s: launches alone are slowed by %.4f", h.name, w.name, s)
			}
		}
	}
}
