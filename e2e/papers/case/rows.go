package main

import "math"

// row is a line of the results: a number beside the goal and the paper's.
type row struct {
	ID string `json:"id"`
	// Value is nil if it was not measured.
	Value *float64 `json:"value"`
	Unit  string   `json:"unit"`
	Goal  string   `json:"goal"`
	// Met is nil if it was not measured.
	Met   *bool  `json:"met"`
	Paper string `json:"paper"`
	// Runs is how many runs the value is from, and Spread its standard deviation over seeds.
	Runs   int     `json:"runs"`
	Spread float64 `json:"spread"`
	// Half and Double are the value at half and at double host work, where the goal holds for them
	// too.
	Half    *float64 `json:"half,omitempty"`
	Double  *float64 `json:"double,omitempty"`
	Beside  string   `json:"beside,omitempty"`
	Command string   `json:"command"`
	// Why is why a goal was missed, or a value not measured.
	Why string `json:"why"`
}

// goal is what a row must reach.
type goal struct {
	id, unit string
	limit    float64
	atMost   bool
	paper    string
	// live is set for what is measured with processes or on real GPUs.
	live bool
}

// goals are the rows in order.
var goals = []goal{
	{id: "sa_2gpu", unit: "x", limit: 2.2, paper: "2.2"},
	{id: "sa_4gpu", unit: "x", limit: 2.0, paper: "2.0"},
	{id: "sa_2gpu_min", unit: "x", limit: 1.8, paper: "1.8"},
	{id: "sa_4gpu_min", unit: "x", limit: 1.4, paper: "1.4"},
	{id: "cg_2gpu", unit: "x", limit: 1.64, paper: "1.64"},
	{id: "cg_4gpu", unit: "x", limit: 1.41, paper: "1.41"},
	{id: "alg3_alg2", unit: "x", limit: 1.05, paper: "1.21"},
	{id: "turn_2gpu", unit: "x", limit: 3.7, paper: "3.7"},
	{id: "turn_4gpu", unit: "x", limit: 2.8, paper: "2.8"},
	{id: "util_mean", unit: "%", limit: 23.9, paper: "23.9 (SA 9.5, CG 9.3)"},
	{id: "util_peak", unit: "%", limit: 78, paper: "78 (SA 48, CG 48)"},
	{id: "slow_mean", unit: "%", limit: 2.5, atMost: true, paper: "2.5 (algorithm 2: 1.8)"},
	{id: "slow_worst", unit: "%", limit: 5, atMost: true, paper: "7.0 (algorithm 2: 5.1)"},
	{id: "sched_predict", unit: "x", limit: 1.4, paper: "1.4"},
	{id: "sched_detect", unit: "x", limit: 0.98, paper: "about 1"},
	{id: "sched_train", unit: "x", limit: 2.2, paper: "2.2"},
	{id: "sched_generate", unit: "x", limit: 3.1, paper: "3.1"},
	{id: "mix128", unit: "x", limit: 2.7, paper: "2.7 over SA (§5.3; §7 says SchedGPU)"},
	{id: "oom", unit: "times", atMost: true, paper: "0"},
	{id: "deadlock", unit: "mixes", atMost: true, paper: "0"},
	{id: "passed_worst", unit: "s", limit: 30, atMost: true, paper: "-"},
	{id: "weight_error", unit: "points", limit: 3, atMost: true, paper: "-"},
	{id: "decide_us", unit: "µs", limit: 10, atMost: true, paper: "-"},
	{id: "pass_us", unit: "µs", limit: 100, atMost: true, paper: "-"},
	{id: "live_sa", unit: "x", limit: 1.5, paper: "-", live: true},
	{id: "live_oom", unit: "times", atMost: true, paper: "-", live: true},
	{id: "begin_us", unit: "µs", limit: 200, atMost: true, paper: "-", live: true},
	{id: "launch_added", unit: "%", limit: 1, atMost: true, paper: "-", live: true},
	{id: "gpu_sa", unit: "x", limit: 1.5, paper: "-", live: true},
	{id: "gpu_oom", unit: "times", atMost: true, paper: "-", live: true},
	{id: "gpu_begin_us", unit: "µs", limit: 200, atMost: true, paper: "-", live: true},
	{id: "gpu_launch_added", unit: "%", limit: 1, atMost: true, paper: "-", live: true},
}

// goalOf returns the goal of a row.
func goalOf(id string) *goal {
	for i := range goals {
		if goals[i].id == id {
			return &goals[i]
		}
	}
	return nil
}

// text returns the goal as it is written.
func (g *goal) text() string {
	switch {
	case g.id == "alg3_alg2":
		return "shown; own queue >= 1.05 x algorithm 3's"
	case g.id == "pass_us":
		return "<= 100; algorithm 2 <= 1000"
	case g.id == "begin_us" || g.id == "gpu_begin_us":
		return "<= 200 p50"
	case g.atMost:
		return "<= " + number(g.limit)
	}
	return ">= " + number(g.limit)
}

// holds reports whether a value reaches the goal.
func (g *goal) holds(v float64) bool {
	if g.atMost {
		return v <= g.limit
	}
	return v >= g.limit
}

// command is how most rows are measured.
const command = "make bench-case"

// measured returns a row for a value over runs. Values at half and at double host work, if given,
// must reach the goal too.
func measured(id string, s stat, runs int, also ...float64) row {
	g := goalOf(id)
	v, met := round(s.mean), g.holds(s.mean)
	r := row{ID: id, Value: &v, Unit: g.unit, Goal: g.text(), Paper: g.paper, Runs: runs, Spread: round(s.spread), Command: command}
	if len(also) == 2 {
		half, double := round(also[0]), round(also[1])
		r.Half, r.Double = &half, &double
		met = met && g.holds(also[0]) && g.holds(also[1])
	}
	r.Met = &met
	return r
}

// missed reports whether a row was measured and does not reach its goal.
func (r *row) missed() bool { return r.Met != nil && !*r.Met }

// round drops what is beyond the fourth digit after the point.
func round(v float64) float64 { return math.Round(v*1e4) / 1e4 }
