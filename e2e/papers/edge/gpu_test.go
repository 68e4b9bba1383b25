package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	gpurows "vgpud/e2e/nvidia/report"
	"vgpud/e2e/papers/goals"
)

// TestTakeGPU takes rows of a GPU over: those of the set, with why a goal was missed; what else the
// file has stays behind.
func TestTakeGPU(t *testing.T) {
	dir := t.TempDir()
	from, log := filepath.Join(dir, "from.json"), filepath.Join(dir, "log")
	f := gpurows.File{GPU: "a GPU", Driver: "1.2", Date: "today"}
	f.Rows = []gpurows.Row{gpurows.NewRow("block_us", []float64{3, 5, 3}), gpurows.NewRow("launch_p50_us", []float64{9}), gpurows.NewRow("host_cpu", []float64{1})}
	if err := f.Write(from); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(log, []byte("=== RUN\n    hardware_eventparts_test.go:1: and a fence: p50 2µs\nPASS\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := takeGPU(dir, from, log); err != nil {
		t.Fatal(err)
	}
	set := goals.Set{Files: []string{gpuFile}, Profiles: goalSet.Profiles, Goals: []goals.Goal{*goalSet.Of("block_us"), *goalSet.Of("launch_p50_us")}}
	var out strings.Builder
	if err := set.Check(&out, dir); err != nil || !strings.Contains(out.String(), `{"met":1,"missed":1,"unmeasured":0}`) {
		t.Errorf("%v\n%s", err, out.String())
	}
	page, err := os.ReadFile(filepath.Join(dir, gpuPage))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a GPU, driver 1.2, today", "| `block_us` | **3** µs |", "- and a fence: p50 2µs\n"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if strings.Contains(string(page), "host_cpu") {
		t.Error("the page has a row of another set")
	}
	if err := takeGPU(dir, filepath.Join(dir, "none.json"), log); err == nil {
		t.Error("no file is no error")
	}
}

// TestTakeGPUInParts takes over one part after another: rows that have other ids there, with what was
// measured beside them, in the order of the goals, and what was taken over before. It is of one GPU.
func TestTakeGPUInParts(t *testing.T) {
	dir := t.TempDir()
	from, log := filepath.Join(dir, "from.json"), filepath.Join(dir, "log")
	if err := os.WriteFile(log, []byte("    hardware_eventparts_test.go:1: and a fence: p50 2µs\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	take := func(gpu, date, log string, rows ...gpurows.Row) error {
		t.Helper()
		f := gpurows.File{GPU: gpu, Driver: "1.2", Date: date, Rows: rows}
		if err := f.Write(from); err != nil {
			t.Fatal(err)
		}
		return takeGPU(dir, from, log)
	}
	shares, faster := gpurows.NewRow("event_share_error", []float64{1.5}), gpurows.NewRow("small_faster", []float64{3})
	shares.Baseline["equal_shares_would_be"] = 16.7
	faster.Detail = &gpurows.Table{Columns: []string{"native launch, µs"}}
	faster.Detail.Add("32 packets", 8)
	if err := take("a GPU", "on Monday", log, gpurows.NewRow("block_us", []float64{5}), faster); err != nil {
		t.Fatal(err)
	}
	// The row of a guest's kernels has the id share_error there, and is none of EDGE's.
	if err := take("a GPU", "on Tuesday", "", gpurows.NewRow("block_us", []float64{3}), gpurows.NewRow("share_error", []float64{0.7}), shares); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, gpuPage))
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, want := range []string{"on Tuesday", "| `block_us` | **3** µs |", "| `share_error` | **1.5** points | <= 2 | yes | 1 | equal shares would be 16.7 |", "| `small_faster` | **3** x |", "| 32 packets | 8 |", "- and a fence: p50 2µs\n"} {
		next := strings.Index(string(page)[at:], want)
		if next < 0 {
			t.Fatalf("the page lacks %q, or has it too early:\n%s", want, page)
		}
		at += next
	}
	if err := take("another GPU", "on Tuesday", "", shares); err == nil {
		t.Error("rows of two GPUs are in one page")
	}
}
