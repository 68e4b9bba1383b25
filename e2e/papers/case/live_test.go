package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	results "vgpud/e2e/nvidia/report"
	"vgpud/e2e/papers/case/live"
	"vgpud/e2e/papers/goals"
)

// TestW1IsTheModels: what runs with real processes is what is simulated.
func TestW1IsTheModels(t *testing.T) {
	got, err := live.W1()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(modelled(table2[0].mix(0), &v100s), got); diff != "" {
		t.Errorf("go run ./e2e/papers/case -jobs e2e/papers/case/live/w1.json (-want +got):\n%s", diff)
	}
}

// TestLiveFile: rows measured later take the place of older ones, in the order of the goals, and rows of
// real GPUs come from the file of e2e/nvidia. A missed goal keeps the reason that was found.
func TestLiveFile(t *testing.T) {
	dir := t.TempDir()
	slow := measured("begin_us", stat{mean: 5000}, 3)
	slow.Why = "see docs/results/case.md"
	put := func(rows ...goals.Row) {
		t.Helper()
		if err := updateLive(dir, func(p *livePage) { p.put(rows) }); err != nil {
			t.Fatal(err)
		}
	}
	put(slow, measured("live_sa", stat{mean: 1.2}, 2))
	put(measured("live_sa", stat{mean: 1.7}, 5), measured("begin_us", stat{mean: 4000}, 3))
	from := filepath.Join(dir, "gpu.json")
	f := results.File{GPU: "2 × H100", Driver: "580", Date: "2026-01-02", Rows: []results.Row{
		results.NewRow("gpu_launch_added", []float64{0.002}), results.NewRow("gpu_sa", []float64{1.9, 2}), results.NewRow("host_cpu", []float64{1}),
	}}
	if err := f.Write(from); err != nil {
		t.Fatal(err)
	}
	if err := takeGPU(dir, from); err != nil {
		t.Fatal(err)
	}
	if err := takeGPU(dir, filepath.Join(dir, "none.json")); err == nil {
		t.Error("no file is no error")
	}
	data, err := os.ReadFile(filepath.Join(dir, liveFile))
	if err != nil {
		t.Fatal(err)
	}
	var p livePage
	if err := json.Unmarshal(data, &p); err != nil {
		t.Fatal(err)
	}
	type brief struct {
		ID    string
		Value float64
		Met   bool
		Why   string
	}
	var got []brief
	for _, r := range p.Rows {
		got = append(got, brief{r.ID, *r.Value, *r.Met, r.Why})
	}
	want := []brief{{"live_sa", 1.7, true, ""}, {"begin_us", 4000, false, slow.Why}, {"gpu_sa", 1.95, true, ""}, {"gpu_launch_added", 0.2, true, ""}}
	if diff := cmp.Diff(want, got); diff != "" || !strings.Contains(p.GPUs, "2 × H100, driver 580") {
		t.Errorf("%q (-want +got):\n%s", p.GPUs, diff)
	}
}
