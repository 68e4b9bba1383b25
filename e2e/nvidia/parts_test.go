package main

import (
	"math"
	"slices"
	"testing"
	"time"

	"vgpud/e2e/kernels"
	"vgpud/e2e/nvidia/report"
	"vgpud/e2e/nvidia/tenant"
)

func TestEvictionIsHeldToChunkOrSuspension(t *testing.T) {
	for name, c := range map[string]struct {
		form tenant.Form
		want float64
	}{
		"no form":              {tenant.Form{Task: time.Microsecond}, hardwareSuspension},
		"a short task":         {tenant.Form{Form: 1, Group: 1, Task: 10 * time.Microsecond}, 35},
		"a chunk of them":      {tenant.Form{Form: 4, Group: 8, Task: 10 * time.Microsecond}, 105},
		"tasks of half a life": {tenant.Form{Form: 2, Group: 8, Task: time.Millisecond}, hardwareSuspension},
	} {
		e := eviction{form: c.form}
		if got := e.bound(); got != c.want {
			t.Errorf("%s: %v µs, want %v", name, got, c.want)
		}
	}
}

// TestEvictionRowIsTheWorstKernels holds that one kernel above its bound is a goal
// missed, however many are below theirs.
func TestEvictionRowIsTheWorstKernels(t *testing.T) {
	found := []eviction{
		{name: "slow but allowed", form: tenant.Form{Form: 0}, p50: []float64{300, 310, 320}},
		{name: "quick but not enough", form: tenant.Form{Form: 1, Group: 1, Task: 5 * time.Microsecond}, p50: []float64{40, 50, 45}},
	}
	b := &bench{options: &options{}, found: &report.File{}}
	r := b.evictionRow("evict_us_p50", found, func(e *eviction) []float64 { return e.p50 })
	if r.Value != 45 || r.Goal != 30 || r.Met || len(r.Detail.Lines) != 2 {
		t.Errorf("%+v", r)
	}
}

// TestWhatWasNotMeasuredIsNoRow keeps what is no number out of the file, which could
// not hold it.
func TestWhatWasNotMeasuredIsNoRow(t *testing.T) {
	b := &bench{options: &options{progress: t.Output()}, found: &report.File{}}
	r := b.row("share_error", []float64{0.01}, "how")
	r.Baseline["none"], r.Baseline["some"] = math.NaN(), 1
	b.add(r, b.row("host_cpu", nil, "how"))
	if len(b.found.Rows) != 1 || len(b.found.Rows[0].Baseline) != 1 {
		t.Errorf("%+v", b.found.Rows)
	}
}

// TestQuickKernelsExist holds that what is measured when time is short is of the whole.
func TestQuickKernelsExist(t *testing.T) {
	b := &bench{options: &options{quick: true}}
	for _, name := range transformQuick {
		if !slices.Contains(tenant.Scaled(), name) {
			t.Errorf("no scaled kernel %q", name)
		}
	}
	for _, j := range b.longKernels() {
		if !slices.Contains(tenant.Scaled(), j.Scaled) {
			t.Errorf("no scaled kernel %q", j.Scaled)
		}
	}
	for _, name := range featureTests {
		if _, ok := kernels.ByName(name); !ok {
			t.Errorf("no kernel %q", name)
		}
	}
	full := &bench{options: &options{}}
	for _, name := range b.appNames() {
		if !slices.Contains(full.appNames(), name) {
			t.Errorf("no program %q", name)
		}
	}
}
