package main

import "vgpud/e2e/papers/goals"

// goalSet has the rows in order.
var goalSet = goals.Set{
	// Simulated, timed on some machine, and measured with processes.
	Files:    []string{"case.json", "case-time.json", liveFile},
	Profiles: []string{"docs/results/case.md", "docs/results/case-live.md"},
	Goals: []goals.Goal{
		{ID: "sa_2gpu", Unit: "x", Limit: 2.2, Paper: "2.2"},
		{ID: "sa_4gpu", Unit: "x", Limit: 2.0, Paper: "2.0"},
		{ID: "sa_2gpu_min", Unit: "x", Limit: 1.8, Paper: "1.8"},
		{ID: "sa_4gpu_min", Unit: "x", Limit: 1.4, Paper: "1.4"},
		{ID: "cg_2gpu", Unit: "x", Limit: 1.64, Paper: "1.64"},
		{ID: "cg_4gpu", Unit: "x", Limit: 1.41, Paper: "1.41"},
		{ID: "alg3_alg2", Unit: "x", Limit: 1.05, Says: "shown; own queue >= 1.05 x algorithm 3's", Paper: "1.21"},
		{ID: "turn_2gpu", Unit: "x", Limit: 3.7, Paper: "3.7"},
		{ID: "turn_4gpu", Unit: "x", Limit: 2.8, Paper: "2.8"},
		{ID: "util_mean", Unit: "%", Limit: 23.9, Paper: "23.9 (SA 9.5, CG 9.3)"},
		{ID: "util_peak", Unit: "%", Limit: 78, Paper: "78 (SA 48, CG 48)"},
		{ID: "slow_mean", Unit: "%", Limit: 2.5, AtMost: true, Paper: "2.5 (algorithm 2: 1.8)"},
		{ID: "slow_worst", Unit: "%", Limit: 5, AtMost: true, Paper: "7.0 (algorithm 2: 5.1)"},
		{ID: "sched_predict", Unit: "x", Limit: 1.4, Paper: "1.4"},
		{ID: "sched_detect", Unit: "x", Limit: 0.98, Paper: "about 1"},
		{ID: "sched_train", Unit: "x", Limit: 2.2, Paper: "2.2"},
		{ID: "sched_generate", Unit: "x", Limit: 3.1, Paper: "3.1"},
		{ID: "mix128", Unit: "x", Limit: 2.7, Paper: "2.7 over SA (§5.3; §7 says SchedGPU)"},
		{ID: "oom", Unit: "times", AtMost: true, Paper: "0"},
		{ID: "deadlock", Unit: "mixes", AtMost: true, Paper: "0"},
		{ID: "passed_worst", Unit: "s", Limit: 30, AtMost: true, Paper: "-"},
		{ID: "weight_error", Unit: "points", Limit: 3, AtMost: true, Paper: "-"},
		{ID: "decide_us", Unit: "µs", Limit: 10, AtMost: true, Paper: "-"},
		{ID: "pass_us", Unit: "µs", Limit: 100, AtMost: true, Says: "<= 100; algorithm 2 <= 1000", Paper: "-"},
		{ID: "live_sa", Unit: "x", Limit: 1.5, Paper: "-", Live: true},
		{ID: "live_oom", Unit: "times", AtMost: true, Paper: "-", Live: true},
		{ID: "begin_us", Unit: "µs", Limit: 200, AtMost: true, Says: "<= 200 p50", Paper: "-", Live: true},
		{ID: "launch_added", Unit: "%", Limit: 1, AtMost: true, Paper: "-", Live: true},
		{ID: "gpu_sa", Unit: "x", Limit: 1.5, Paper: "-", Live: true},
		{ID: "gpu_oom", Unit: "times", AtMost: true, Paper: "-", Live: true},
		{ID: "gpu_begin_us", Unit: "µs", Limit: 200, AtMost: true, Says: "<= 200 p50", Paper: "-", Live: true},
		{ID: "gpu_launch_added", Unit: "%", Limit: 1, AtMost: true, Paper: "-", Live: true},
	}}

// command is how most rows are measured.
const command = "make bench-case"

// measured returns a row for a value over runs. Values at half and at double host work, if given,
// must reach the goal too.
func measured(id string, s stat, runs int, also ...float64) goals.Row {
	g := goalSet.Of(id)
	r := g.Row(s.mean, s.spread, runs, command)
	if len(also) == 2 {
		half, double := round(also[0]), round(also[1])
		r.Half, r.Double = &half, &double
		*r.Met = *r.Met && g.Holds(also[0]) && g.Holds(also[1])
	}
	return r
}

// round drops what is beyond the fourth digit after the point.
func round(v float64) float64 { return goals.Round(v) }
