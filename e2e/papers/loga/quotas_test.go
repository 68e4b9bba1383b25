package main

import (
	"fmt"
	"math"
	"testing"
	"time"

	"vgpud/accounting"
	"vgpud/e2e/papers/parallel"
	"vgpud/fairshare"
	"vgpud/gpu/soft/sim"
)

// watches are the ways of watching that quotas are kept under.
var watches = map[string]accounting.Config{
	"pieces": {}, "one piece": {Piece: -1}, "all the time": {Full: true},
}

// quotaTime is how long quotas have to hold.
const quotaTime = 5 * time.Second

// every says which programs of the corpus are tried: a fraction of them.
const every = 5

// A capped guest that has the GPU for itself gets its cap, within two points and a kernel, whatever
// its kernels and however the GPU is watched.
func TestCaps(t *testing.T) {
	apps := applications(t)
	type job struct {
		name    string
		cap     float64
		longest time.Duration
		e       experiment
	}
	var jobs []job
	for i := 0; i < len(apps); i += every {
		app := apps[i]
		for how, watch := range watches {
			for _, policy := range []string{"none", "dfq"} {
				limit := []float64{0.05, 0.25, 0.5, 0.9}[i%4]
				jobs = append(jobs, job{fmt.Sprintf("%s, %s, polled %s", app.name, policy, how), limit, app.longest(), experiment{
					tenants: []tenant{{load: app.load(4), weight: 1, quota: fairshare.Quota{Cap: limit}}},
					policy:  policy, watch: watch, seed: uint64(i), length: quotaTime,
				}})
			}
		}
	}
	outs, err := parallel.Map(len(jobs), func(i int) (*outcome, error) { return jobs[i].e.run() })
	if err != nil {
		t.Fatal(err)
	}
	worst := 0.0
	for i, out := range outs {
		j := jobs[i]
		off := math.Abs(out.whole.used[0] - j.cap)
		worst = max(worst, off)
		if off > 0.02+j.longest.Seconds()/quotaTime.Seconds() {
			t.Errorf("%s: used %.3f with a cap of %v", j.name, out.whole.used[0], j.cap)
		}
	}
	t.Logf("%d runs: at worst %.2f points from the cap", len(outs), 100*worst)
}

// A guarantee holds beside guests of eight times the weight, which share the rest by theirs, and
// the GPU is busy all the time.
func TestGuarantees(t *testing.T) {
	apps := applications(t)
	type job struct {
		name      string
		guarantee float64
		longest   time.Duration
		e         experiment
	}
	var jobs []job
	for i := 0; i < len(apps); i += every {
		app := apps[i]
		other := apps[(i+1)%len(apps)]
		for how, watch := range watches {
			for _, policy := range []string{"none", "dfq"} {
				g := []float64{0.1, 0.3, 0.6, 0.8}[i%4]
				jobs = append(jobs, job{
					fmt.Sprintf("%s beside %s, %s, polled %s", app.name, other.name, policy, how), g, max(app.longest(), other.longest()),
					experiment{
						tenants: []tenant{
							{load: app.load(4), weight: 1, quota: fairshare.Quota{Guarantee: g}},
							{load: other.load(4), weight: 8},
							{load: func() sim.Load { return sim.Throttle("throttle", 2*time.Millisecond, 0) }, weight: 8},
						},
						policy: policy, watch: watch, seed: uint64(i), length: quotaTime,
					},
				})
			}
		}
	}
	outs, err := parallel.Map(len(jobs), func(i int) (*outcome, error) { return jobs[i].e.run() })
	if err != nil {
		t.Fatal(err)
	}
	lacking, uneven := 0.0, 0.0
	for i, out := range outs {
		j := jobs[i]
		// Of what the switches between contexts leave. Accounting with polling in one piece may be off
		// by more than this is about.
		got, times, all := 0.0, out.truth, time.Duration(0)
		whole := j.e.watch.Piece < 0
		if whole {
			times = out.accounted
		}
		for _, d := range times {
			all += d
		}
		got = float64(times[0]) / float64(all)
		kernel := j.longest.Seconds() / quotaTime.Seconds()
		lacking = max(lacking, j.guarantee-got)
		if got < j.guarantee-0.02-kernel {
			t.Errorf("%s: used %.3f with a guarantee of %v", j.name, got, j.guarantee)
		}
		if idle := out.idle; idle > quotaTime/100 {
			t.Errorf("%s: idle for %v", j.name, idle)
		}
		if a, b := out.whole.used[1], out.whole.used[2]; j.e.policy == "dfq" && !whole {
			uneven = max(uneven, math.Abs(a-b))
			if math.Abs(a-b) > 0.03+kernel {
				t.Errorf("%s: guests of one weight used %.3f and %.3f", j.name, a, b)
			}
		}
	}
	t.Logf("%d runs: at worst %.2f points below the guarantee, %.2f between guests of one weight", len(outs), 100*lacking, 100*uneven)
}
