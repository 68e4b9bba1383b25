package report

import (
	"fmt"
	"math"
	"slices"

	"vgpud/e2e/nvidia/figure"
)

// Target describes a row and its goal.
type Target struct {
	ID, Unit string
	Goal     float64
	// Least reports whether the value must be at least the goal; otherwise it must be at most the
	// goal.
	Least bool
	// What is a description of the value for readers.
	What string
}

// These are the suspension times measured before on an H100, in ms, each the median of 50
// (docs/nvidia.md). New results must be as good or better.
const (
	MeasuredSuspend = 0.359
	MeasuredResume  = 0.353
)

// targets lists the rows in the order of the page.
var targets = []Target{
	{"accounting_error", "fraction of the window", 0.01, false, "accounting: error of a guest, worst of 16 points"},
	{"accounting_cost_10us", "fraction", 0.005, false, "accounting's cost beside ten throttles of 10 µs + 1000 µs (LoGA figure 7a)"},
	{"accounting_cost_median_10us", "fraction", 0.005, false, "the same, median over the programs instead of their mean"},
	{"accounting_cost_100us", "fraction", 0.005, false, "accounting's cost beside ten throttles of 100 µs + 1000 µs (LoGA figure 7b)"},
	{"accounting_cost_median_100us", "fraction", 0.005, false, "the same, median over the programs instead of their mean"},
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
	{"cuda_programs_failed", "programs", 0, false, "tenants' CUDA programs that check the driver API and the runtime: failed"},
	{"cuda_launch_call_us", "µs", 1, false, "a call of cuLaunchKernel in a guest, over 1,000 calls"},
	{"cuda_begin_ratio", "factor", 1, false, "a program's further contexts, from the call until the first work in one has ended: in a guest over that on the machine's own driver"},
	{"cuda_whole_ratio", "factor", 1.05, false, "whole CUDA programs built by nvcc for its shared runtime: time in a guest over that on the machine's own driver"},
	{"python_operations_failed", "operations", 0, false, "operations of PyTorch and CuPy, of those that are right on the machine's own driver: not right in a guest"},
	{"launch_p50_us", "µs", 2.1, false, "a launch of an event kernel of one warp by a store, until its end is seen: median"},
	{"launch_p99_us", "µs", 3, false, "the same, 99th percentile"},
	{"launch32_p50_us", "µs", 3, false, "the same with 32 kernels registered, all of which are rung for: median"},
	{"launch32_p99_us", "µs", 6, false, "the same, 99th percentile"},
	{"speedup_native", "factor", 4.4, true, "a native launch over an event: medians"},
	{"speedup_guest", "factor", 7, true, "a guest's launch by a command over an event: medians"},
	{"block_us", "µs", 4, false, "an event of one block, median"},
	{"grid_us", "µs", 1, false, "an event of a grid, median, less a native launch"},
	{"idle_other", "%", 1, false, "what an event kernel without events takes from another guest"},
	{"idle_same", "%", 1, false, "the same, from its own guest"},
	{"shared_p50_us", "µs", 200, false, "an event beside another guest's kernels of 20 ms, over an event alone: median"},
	{"shared_urgent_p50_us", "µs", 200, false, "an event beside another guest's kernels of 20 ms, over an event alone, with priority over preemptible kernels, under hpf"},
	{"idle_core", "cores", 0, false, "processor time of the host that an event kernel without events takes"},
	{"idle_watts", "%", 100, false, "power that it takes"},
	{"event_share_error", "points", 2, false, "shares of two guests with events without end, weights 1:2"},
	{"event_charge_error", "points", 1, false, "accounting of the same: error of a guest, worst"},
	{"cpu_slow", "factor", 1.02, false, "a program of the host's processor beside a GPU's packets, over alone, worst of two (EDGE figure 4a)"},
	{"ping_rate", "factor", 1.05, false, "the packets' rate alone, over that beside such a program, worst of two (EDGE figure 4a)"},
	{"small_faster", "factor", 2.9, true, "a stream of products of 2 blocks: native launches' time over events' (EDGE figure 4b)"},
	{"large_slower", "factor", 1.1, false, "a stream of products of 120 blocks: events' time over native launches' (EDGE figure 4b)"},
	{"gpu_sa", "factor", 1.5, true, "CASE's W1 on several GPUs: throughput of guests that float over a GPU for each job"},
	{"gpu_oom", "jobs", 0, false, "the same, jobs that got no memory"},
	{"gpu_begin_us", "µs", 200, false, "a context that floats, from the request until it can be used, median"},
	{"gpu_launch_added", "fraction", 0.01, false, "launch to completion of an empty kernel in a context that floats, over one that does not"},
	{"soak_lost", "results", 0, false, "a soak of 6 guests that come, go, fault and are evicted and suspended, one of them hostile: kernels lost or results wrong"},
	{"soak_accounting_error", "fraction of the window", 0.01, false, "the same, accounting: error of the sum over the guests"},
	{"soak_memory_kept", "MiB", 0, false, "the same, the GPU's memory that is not free any more once all have gone"},
	{"soak_kept", "things", 0, false, "the same, the daemon's descriptors and processes, guests, and contexts off the GPU that are there then, and were not before"},
	{"soak_not_recovered", "events", 0, false, "the same, events after which a guest did not work as it should"},
	{"soak_standstill_ms", "ms", 1000, false, "the same, the longest time in which a guest with work had none done"},
}

// Targets returns the targets of all rows, in the order of the page.
func Targets() []Target { return slices.Clone(targets) }

// place returns the position of an id. Unknown ids are last.
func place(id string) int {
	i := slices.IndexFunc(targets, func(t Target) bool { return t.ID == id })
	if i < 0 {
		return len(targets)
	}
	return i
}

// NewRow makes the row of an id: the median and the spread of the runs, compared with the target's
// goal. It panics if no target has the id.
func NewRow(id string, runs []float64) Row { return NewRowOf(id, figure.Median(runs), runs) }

// NewRowOf is NewRow for a value that follows from all runs together instead of being the median of
// the runs' values. The spread is that of the runs.
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

// Hold compares the row with a goal that replaces its target's. Some targets have no goal of their
// own.
func (r *Row) Hold(goal float64) {
	r.Goal, r.Met = goal, r.Value <= goal
	if i := place(r.ID); i < len(targets) && targets[i].Least {
		r.Met = r.Value >= goal
	}
	if math.IsNaN(r.Value) {
		r.Met = false
	}
}

// Hold compares the rows with the current goals of their targets, if they have any: a row may be
// from a time when its goal was another. A row that missed a goal although its value meets it
// missed it for another reason, and still does.
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
