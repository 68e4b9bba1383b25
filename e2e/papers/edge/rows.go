package main

import (
	"fmt"

	"vgpud/e2e/papers/goals"
	"vgpud/gpu/soft/machine/warps"
)

const command = "make bench-edge"

// sameSide is the goal where the paper's preemption loses, or wins less than another: that it does
// here too.
const sameSide = "the paper's side: >= 1"

// goalSet has the rows in order: those of the model, then those of a GPU.
var goalSet = goals.Set{
	Files:    []string{"edge.json", "edge-gpu.json"},
	Profiles: []string{"docs/results/edge.md", "docs/results/edge-gpu.md"},
	Goals: []goals.Goal{
		{ID: "preempt_oldest", Unit: "cycles", Limit: 50, AtMost: true, Paper: "50"},
		{ID: "preempt_newest", Unit: "cycles", Limit: 220, AtMost: true, Paper: "220"},
		{ID: "preempt_oldest_gain", Unit: "x", Limit: 35.9, Paper: "35.9 below none of the four"},
		{ID: "preempt_newest_gain", Unit: "x", Limit: 33.7, Paper: "33.7 below none of the four"},
		{ID: "preempt_ours", Unit: "cycles", Limit: 50, AtMost: true, Paper: "-"},
		{ID: "drain_mean", Unit: "x", Limit: 2.6, Paper: "2.6"},
		{ID: "drain_tail", Unit: "x", Limit: 2.9, Paper: "2.9"},
		{ID: "drain_mean_fit", Unit: "x", Limit: 115.7, Paper: "115.7"},
		{ID: "drain_tail_fit", Unit: "x", Limit: 68.4, Paper: "68.4"},
		{ID: "drain_mean_freeregs", Unit: "x", Limit: 96.4, Paper: "96.4"},
		{ID: "drain_tail_freeregs", Unit: "x", Limit: 53.8, Paper: "53.8"},
		{ID: "low_drain", Unit: "x", Limit: 1.3, Paper: "1.3"},
		{ID: "low_reserve", Unit: "x", Limit: 1, Says: sameSide, Paper: "2.3, reservation wins"},
		{ID: "low_bg", Unit: "x", Limit: 1.3, Paper: "1.3: the background under reservation over preemption"},
		{ID: "high_drain", Unit: "x", Limit: 1.4, Paper: "1.4"},
		{ID: "high_reserve", Unit: "x", Limit: 2.8, Paper: "2.8"},
		{ID: "high_bg_drain", Unit: "x", Limit: 1, Says: sameSide, Paper: "1.3: the background under preemption over draining"},
		{ID: "high_bg_reserve", Unit: "x", Limit: 1, Says: sameSide, Paper: "1.2: the background under preemption over reservation"},
		{ID: "antt_drain", Unit: "x", Limit: 1.4, Paper: "1.4"},
		{ID: "antt_reserve", Unit: "x", Limit: 2.7, Paper: "2.7"},
		{ID: "total_base", Unit: "x", Limit: 3.14, Paper: "3.14"},
		{ID: "total_edge", Unit: "x", Limit: 2.06, Paper: "2.06"},
		{ID: "rate_drain", Unit: "x", Limit: 1.4, Paper: "future work"},
		{ID: "rate_bg", Unit: "x", Limit: 1.1, AtMost: true, Paper: "future work"},

		{ID: "launch_p50_us", Unit: "µs", Limit: 2.1, AtMost: true, Paper: "1.1, an estimate", Live: true},
		{ID: "launch_p99_us", Unit: "µs", Limit: 3, AtMost: true, Paper: "-", Live: true},
		{ID: "launch32_p50_us", Unit: "µs", Limit: 3, AtMost: true, Paper: "-", Live: true},
		{ID: "launch32_p99_us", Unit: "µs", Limit: 6, AtMost: true, Paper: "-", Live: true},
		{ID: "speedup_native", Unit: "x", Limit: 4.4, Paper: "4.4", Live: true},
		{ID: "speedup_guest", Unit: "x", Limit: 7, Paper: "-", Live: true},
		{ID: "block_us", Unit: "µs", Limit: 4, AtMost: true, Paper: "-", Live: true},
		{ID: "grid_us", Unit: "µs over native", Limit: 1, AtMost: true, Paper: "-", Live: true},
		{ID: "idle_other", Unit: "%", Limit: 1, AtMost: true, Paper: "-", Live: true},
		{ID: "idle_same", Unit: "%", Limit: 1, AtMost: true, Paper: "-", Live: true},
		{ID: "idle_core", Unit: "cores", Limit: 0, AtMost: true, Paper: "-", Live: true},
		{ID: "idle_watts", Unit: "%", Limit: 100, AtMost: true, Says: "shown", Paper: "persistent threads +13", Live: true},
		{ID: "shared_p50_us", Unit: "µs", Limit: 200, AtMost: true, Paper: "-", Live: true},
		{ID: "shared_urgent_p50_us", Unit: "µs", Limit: 200, AtMost: true, Paper: "-", Live: true},
		{ID: "share_error", From: "event_share_error", Unit: "points", Limit: 2, AtMost: true, Paper: "-", Live: true},
		{ID: "charge_error", From: "event_charge_error", Unit: "points", Limit: 1, AtMost: true, Paper: "-", Live: true},
		{ID: "cpu_slow", Unit: "x", Limit: 1.02, AtMost: true, Paper: "1.17 to 1.19", Live: true},
		{ID: "ping_rate", Unit: "x", Limit: 1.05, AtMost: true, Paper: "4.83, 2.54", Live: true},
		{ID: "small_faster", Unit: "x", Limit: 2.9, Paper: "2.9", Live: true},
		{ID: "large_slower", Unit: "x", Limit: 1.1, AtMost: true, Paper: "5.6", Live: true},
	},
}

// micros converts cycles to microseconds.
func micros(cycles float64) float64 { return cycles / warps.Hz * 1e6 }

// The launch alone (§VI.A): measured by the paper on a Titan V, and estimated by it for EDGE as 300
// cycles and a round trip over PCIe.
const (
	launchNative = 5.0 // µs
	roundTrip    = 0.7
)

func launchEdge() float64 { return roundTrip + micros(float64(warps.TableII.Dispatch)) }

// results are what rows and figures are made of.
type results struct {
	lab      *lab
	flushing flushing
	waits    []pair
	beside   *besides
}

// rows are the model's.
func (r *results) rows() (rows []goals.Row) {
	add := func(id string, value float64, runs int, beside string, a ...any) {
		row := goalSet.Of(id).Row(value, 0, runs, command)
		if row.Beside = fmt.Sprintf(beside, a...); row.Missed() {
			row.Why = whys[id]
		}
		rows = append(rows, row)
	}
	const none, all = 0, 5 // of flushSets
	f := r.flushing
	for v, id := range []string{"preempt_oldest", "preempt_newest"} {
		add(id, f.mean(v, all), f.victims(v, all), "with none of the four %.0f", f.mean(v, none))
	}
	for v, id := range []string{"preempt_oldest_gain", "preempt_newest_gain"} {
		add(id, f.mean(v, none)/f.mean(v, all), f.victims(v, all), "")
	}
	add("preempt_ours", f.mean(2, all), f.victims(2, all), "with none of the four %.0f", f.mean(2, none))

	for _, c := range []struct {
		suffix string
		way    int
		ok     func(*pair) bool
	}{{"", preempting, anyPair}, {"_fit", preempting, fits}, {"_freeregs", preemptingAny, anyPair}} {
		dm, dt := over(r.waits, draining, c.ok)
		pm, pt := over(r.waits, c.way, c.ok)
		om, ot := over(r.waits, preemptingOldest, c.ok)
		n := 0
		for i := range r.waits {
			if p := &r.waits[i]; c.ok(p) {
				n += len(p.waits[c.way])
			}
		}
		oldest := func(d, o float64) string {
			if c.way == preemptingAny {
				return ""
			}
			return fmt.Sprintf("; the oldest as victim %.1f", d/o)
		}
		add("drain_mean"+c.suffix, dm/pm, n, "%.0f over %.0f cycles%s", dm, pm, oldest(dm, om))
		add("drain_tail"+c.suffix, dt/pt, n, "%.0f over %.0f cycles%s", dt, pt, oldest(dt, ot))
	}

	b, pairs := r.beside, len(r.beside.pairs)
	ratio := func(id string, load, over, under int, value func(*slowdown) float64) {
		x, y := b.mean(load, over, value), b.mean(load, under, value)
		add(id, x/y, pairs, "%.2f over %.2f", x, y)
	}
	ratio("low_drain", low, byDraining, byPreemption, ofEvents)
	ratio("low_reserve", low, byPreemption, byReservation, ofEvents)
	ratio("low_bg", low, byReservation, byPreemption, ofBackground)
	ratio("high_drain", high, byDraining, byPreemption, ofEvents)
	ratio("high_reserve", high, byReservation, byPreemption, ofEvents)
	ratio("high_bg_drain", high, byPreemption, byDraining, ofBackground)
	ratio("high_bg_reserve", high, byPreemption, byReservation, ofBackground)
	ratio("antt_drain", high, byDraining, byPreemption, (*slowdown).antt)
	ratio("antt_reserve", high, byReservation, byPreemption, (*slowdown).antt)

	base, edge, preempted := r.totals()
	estimate := fmt.Sprintf("; the launch in it, %.1f µs to %.1f, is the paper's estimate", launchNative, launchEdge())
	add("total_base", base/preempted, len(r.waits), "%.2f over %.2f µs%s", base, preempted, estimate)
	add("total_edge", edge/preempted, len(r.waits), "%.2f over %.2f µs%s", edge, preempted, estimate)
	ratio("rate_drain", high, byDraining, byRate, ofEvents)
	ratio("rate_bg", high, byRate, byDraining, ofBackground)
	return rows
}

// totals are figure 1's: launch and wait together, in microseconds.
func (r *results) totals() (base, edge, preempted float64) {
	// Of means and tails, figure 1 has the means.
	d, _ := over(r.waits, draining, anyPair)
	p, _ := over(r.waits, preempting, anyPair)
	return launchNative + micros(d), launchEdge() + micros(d), launchEdge() + micros(p)
}
