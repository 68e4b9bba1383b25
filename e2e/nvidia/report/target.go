package report

import (
	"fmt"
	"math"
	"slices"

	"vgpud/e2e/nvidia/figure"
)

// Target is what a row's value is held to.
type Target struct {
	ID, Unit string
	Goal     float64
	// Least says that the value is to be at least the goal, else at most.
	Least bool
	// What says what the value is, for people.
	What string
}

// What suspensions took on an H100 when that was measured before, in ms, medians of 50 each
// (docs/nvidia.md): it is to be as good, or better.
const (
	MeasuredSuspend = 0.359
	MeasuredResume  = 0.353
)

// targets are the rows, in the order of the page.
var targets = []Target{
	{"accounting_error", "fraction of the window", 0.01, false, "accounting: error of a guest, worst of 16 points"},
	{"accounting_cost_10us", "fraction", 0.005, false, "accounting's cost beside ten throttles of 10 µs + 1000 µs (LoGA figure 7a)"},
	{"accounting_cost_100us", "fraction", 0.005, false, "accounting's cost beside ten throttles of 100 µs + 1000 µs (LoGA figure 7b)"},
	{"host_cpu", "fraction of a core", 0.02, false, "host CPU of the daemon for one GPU"},
	{"share_error", "fraction", 0.02, false, "shares at weights 1:2:4: error of a guest, worst"},
	{"fair_distance", "factor", 0, false, "distance from Fair beside four throttles of 200 µs + 800 µs (LoGA figure 11)"},
	{"throughput_kept", "fraction", 0.98, true, "throughput under weighted sharing, of that under default time slicing"},
	{"suspend_ms", "ms", MeasuredSuspend, false, "suspension of a running kernel, until it stands still"},
	{"resume_ms", "ms", MeasuredResume, false, "its resumption, until its first block runs"},
	{"evict_us_p50", "µs", 0, false, "eviction of a guest's kernel by the daemon, word set to GPU free, median, of the kernel nearest its bound"},
	{"evict_us_p99", "µs", 0, false, "the same, 99th percentile"},
	{"evict_own_us_p50", "µs", 0, false, "eviction by a program of its own kernel in the same forms, median, likewise"},
	{"evict_own_us_p99", "µs", 0, false, "the same, 99th percentile"},
	{"transform_overhead_geomean", "fraction", 0.005, false, "transformation's overhead, forms chosen, geometric mean, with speed-ups counted as 0"},
	{"transform_overhead_worst", "fraction", 0.02, false, "the same, worst kernel"},
	{"urgent_added_us", "µs", 200, false, "urgent 100 µs kernels after pauses of 1 to 5 ms, beside 20 ms kernels: median over running alone"},
	{"urgent_speedup_default", "factor", 7, true, "the same, speed-up over default time slicing"},
	{"urgent_speedup_mps", "factor", 50, true, "the same, speed-up over NVIDIA MPS"},
	{"urgent_batch_kept", "fraction", 0.8, true, "meanwhile, what the guest with the 20 ms kernels keeps of its throughput"},
	{"urgent_back_to_back_added_us", "µs", 200, false, "urgent 100 µs kernels back to back, beside 20 ms kernels: median over running alone"},
	{"urgent_back_to_back_speedup_default", "factor", 7, true, "the same, speed-up over default time slicing"},
	{"urgent_back_to_back_speedup_mps", "factor", 50, true, "the same, speed-up over NVIDIA MPS"},
	{"urgent_back_to_back_batch_kept", "fraction", 0, true, "meanwhile, what the guest with the 20 ms kernels keeps: the urgent ones leave no time"},
	{"launch_added_us", "µs", 15, false, "launch to completion of an empty kernel, over native"},
	{"copy_up_ratio", "fraction", 0.90, true, "copies to the GPU, of native bandwidth"},
	{"copy_down_ratio", "fraction", 0.90, true, "copies from the GPU, of native bandwidth"},
	{"soak_lost", "results", 0, false, "a soak of 6 guests that come, go, fault and are evicted and suspended, one of them hostile: kernels lost or results wrong"},
	{"soak_accounting_error", "fraction of the window", 0.01, false, "the same, accounting: error of the sum over the guests"},
	{"soak_memory_kept", "MiB", 0, false, "the same, the GPU's memory that is not free any more once all have gone"},
	{"soak_kept", "things", 0, false, "the same, the daemon's descriptors and processes, guests, and contexts off the GPU that are there then, and were not before"},
	{"soak_not_recovered", "events", 0, false, "the same, events after which a guest did not work as it should"},
	{"soak_standstill_ms", "ms", 1000, false, "the same, the longest time in which a guest with work had none done"},
}

// Targets are the rows that there are to be, in the order of the page.
func Targets() []Target { return slices.Clone(targets) }

// place is where an id stands, unknown ones last.
func place(id string) int {
	i := slices.IndexFunc(targets, func(t Target) bool { return t.ID == id })
	if i < 0 {
		return len(targets)
	}
	return i
}

// NewRow makes the row of an id: the median and the spread of the runs, held to the
// target's goal. It panics on an id that there is no target for.
func NewRow(id string, runs []float64) Row { return NewRowOf(id, figure.Median(runs), runs) }

// NewRowOf is NewRow of a value that follows from all runs together, and is not the
// median of what each comes to by itself; the spread is theirs.
func NewRowOf(id string, value float64, runs []float64) Row {
	i := place(id)
	if i == len(targets) {
		panic(fmt.Sprintf("report: no target %q", id))
	}
	t := targets[i]
	r := Row{
		ID: id, Value: value, Unit: t.Unit, Runs: len(runs), Spread: figure.Spread(runs),
		Baseline: make(map[string]float64),
	}
	r.Hold(t.Goal)
	return r
}

// Hold holds the row to a goal, in place of its target's, which some have none of
// their own.
func (r *Row) Hold(goal float64) {
	r.Goal, r.Met = goal, r.Value <= goal
	if i := place(r.ID); i < len(targets) && targets[i].Least {
		r.Met = r.Value >= goal
	}
	if math.IsNaN(r.Value) {
		r.Met = false
	}
}

// Hold holds rows to their targets' goals as these are now, where they have such: a row
// may be from when its goal was another. One that missed a goal that its value meets missed
// it for another reason, and still does.
func (f *File) Hold() {
	for i := range f.Rows {
		r := &f.Rows[i]
		at := place(r.ID)
		if at == len(targets) || targets[at].Goal == 0 {
			continue
		}
		met := r.Met
		r.Hold(r.Goal)
		other := r.Met && !met
		if r.Hold(targets[at].Goal); other {
			r.Met = false
		}
	}
}
