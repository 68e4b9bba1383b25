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
