package demo

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/cmd/internal/output"
	"vgpud/cmd/vgpud/workload"
	"vgpud/gpu/corpus"
	"vgpud/mediator/api"
)

// snapshots returns two instants, 10 s apart, of two guests of weights 1 and 3.
func snapshots() (guests []*guest, a, b snapshot) {
	one, eight := 1.0, 8.0
	two, three := 2.0, 3.0
	guests = []*guest{
		{weight: 1, Plan: workload.Plan{Name: "x"}},
		{weight: 3, Plan: workload.Plan{Name: "y"}},
	}
	at := time.Unix(1000, 0)
	a = snapshot{
		at: at, gpu: api.GPU{AccountingCPUSeconds: 1, BusySeconds: 5, Gaps: 7, Overruns: 2, RealTime: true},
		vms: map[string]api.VM{
			"x": {Name: "x", GPUSeconds: 2.5, GPUSecondsOwn: &two, Kernels: 10, SuspendedSeconds: 1},
			"y": {Name: "y", GPUSeconds: 1.5, GPUSecondsOwn: &one, Kernels: 20},
		},
		reports: map[string]workload.Report{"x": {Cases: 1, BusySeconds: 1, BackloggedSeconds: 1}, "y": {Cases: 5}},
	}
	b = snapshot{
		at: at.Add(10 * time.Second), gpu: api.GPU{AccountingCPUSeconds: 3, BusySeconds: 13, Gaps: 8, Overruns: 2, RealTime: true},
		vms: map[string]api.VM{
			"x": {Name: "x", GPUSeconds: 3.5, GPUSecondsOwn: &three, Kernels: 15, SuspendedSeconds: 4},
			"y": {Name: "y", GPUSeconds: 8.25, GPUSecondsOwn: &eight, Kernels: 60},
		},
		reports: map[string]workload.Report{"x": {Cases: 3, BusySeconds: 11, BackloggedSeconds: 10}, "y": {Cases: 5}},
	}
	return guests, a, b
}

func TestPhaseIsTheDifferenceBetweenTwoLooks(t *testing.T) {
	m, a, b := snapshots()
	got := phaseOf("dfq", m, a, b)
	jain := got.Jain
	got.Jain = 0
	want := Phase{
		Policy: "dfq", Seconds: 10, AccountingCPURatio: 0.2, BusyRatio: 0.8, PollingGaps: 1, RealTime: true,
		Guests: []Guest{
			{Name: "x", Weight: 1, Kernels: 5, Cases: 2, Verified: true, GPUSeconds: 1, GPUSecondsTruth: 1, Share: 0.125, Entitled: 0.25, SuspendedSeconds: 3, BackloggedRatio: 0.9},
			{Name: "y", Weight: 3, Kernels: 40, Cases: 0, Verified: false, GPUSeconds: 6.75, GPUSecondsTruth: 7, Share: 0.875, Entitled: 0.75},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("phase (-want +got):\n%s", diff)
	}
	x, y := 1.0, 7.0/3
	if want := (x + y) * (x + y) / (2 * (x*x + y*y)); math.Abs(jain-want) > 1e-9 {
		t.Errorf("Jain's index %v, want %v", jain, want)
	}
	if got.checked() {
		t.Error("a phase in which a guest had no result checked is long enough")
	}
	r := Result{Phases: []Phase{got}}
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "y under dfq") {
		t.Errorf("a guest whose results were not checked: %v", err)
	}
	r.Phases[0].Guests[1].Verified = true
	if err := r.Err(); err != nil {
		t.Errorf("all right: %v", err)
	}
}

// TestJSON checks the names that programs read.
func TestJSON(t *testing.T) {
	m, a, b := snapshots()
	var out bytes.Buffer
	if err := output.JSON(&out, &Result{Phases: []Phase{phaseOf("none", m, a, b)}}); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Phases []map[string]any `json:"phases"`
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"policy", "guests", "jain", "accounting_cpu_ratio"} {
		if _, ok := got.Phases[0][name]; !ok {
			t.Errorf("a phase has no %q", name)
		}
	}
	guest := got.Phases[0]["guests"].([]any)[0].(map[string]any)
	for _, name := range []string{
		"name", "weight", "kernels", "verified", "gpu_seconds", "gpu_seconds_truth", "share", "entitled", "suspended_seconds", "backlogged_ratio",
	} {
		if _, ok := guest[name]; !ok {
			t.Errorf("a guest has no %q", name)
		}
	}
}

func TestRows(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  int
	}{
		{"", 80, 0}, {"\n", 80, 1}, {"a\nb\n", 80, 2}, {strings.Repeat("µ", 80) + "\n", 80, 1},
		{strings.Repeat("x", 81) + "\n", 80, 2}, {strings.Repeat("x", 200) + "\n\n", 80, 4},
	} {
		if got := rows([]byte(c.text), c.width); got != c.want {
			t.Errorf("%d bytes on %d columns take %d rows, want %d", len(c.text), c.width, got, c.want)
		}
	}
}

// TestGuests checks the promises about the demo's guests.
func TestGuests(t *testing.T) {
	batch, urgent := urgencyPair()
	for _, m := range []*guest{batch, urgent} {
		for _, w := range m.Work {
			if _, _, err := w.Case(1); err != nil {
				t.Errorf("%s: %v", m.Name, err)
			}
		}
	}
	if asks := -int(urgent.Priority); asks <= batch.ceiling || asks > urgent.ceiling {
		t.Errorf("the urgent guest asks for priority %d within %d, beside one with at most %d", asks, urgent.ceiling, batch.ceiling)
	}
	for _, m := range newGuests() {
		if m.Workers < 4 {
			t.Errorf("%s: %d workers keep fewer than four launches in its rings", m.Name, m.Workers)
		}
		for _, w := range m.Work {
			k, ok := corpus.ByName(w.Kernel)
			if !ok {
				t.Errorf("%s: the corpus has no kernel %q", m.Name, w.Kernel)
				continue
			}
			size, err := corpus.ParseSize(w.Size)
			if err != nil {
				t.Error(err)
				continue
			}
			if w.Repeat > 1 && len(k.Case(size, 1).Restore()) > 0 {
				t.Errorf("%s: %s can't be repeated without restoring its buffers", m.Name, w.Kernel)
			}
		}
	}
}
