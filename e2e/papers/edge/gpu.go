package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	gpurows "vgpud/e2e/nvidia/report"
	"vgpud/e2e/papers/goals"
)

// gpuFile and gpuPage have the rows that are measured on a GPU.
const (
	gpuFile = "edge-gpu.json"
	gpuPage = "edge-gpu.md"
)

// gpuWhys are why rows of a GPU miss their goals.
var gpuWhys = map[string]string{
	"launch_p50_us":        "a resident warp that polls a word and answers it, with its stores made visible before the answer, takes longer than the goal there, without kernel or table; forwarding doorbells through the aperture would save 0.4 µs of it and keep a processor of the host busy: docs/results/edge-gpu.md, what a launch is made of",
	"launch_p99_us":        "as launch_p50_us: docs/results/edge-gpu.md",
	"launch32_p50_us":      "as launch_p50_us, and each guest stores 16 doorbells before it looks at the first flag: docs/results/edge-gpu.md",
	"launch32_p99_us":      "two guests' contexts take turns on the GPU, so that some events wait for their context's: docs/results/edge-gpu.md",
	"speedup_native":       "as launch_p50_us: even the bare answer is less than 4.4 times as fast as a native launch there: docs/results/edge-gpu.md",
	"speedup_guest":        "as launch_p50_us: docs/results/edge-gpu.md",
	"small_faster":         "launches in a stream overlap, and native ones take little longer than events there; where each is waited for an event takes 1.5 times less: docs/results/edge-gpu.md",
	"large_slower":         "as small_faster: a dispatcher gives one event after the other to its resident blocks, and native launches of 120 blocks overlap in a stream; where each is waited for the event takes 0.78 of a launch: docs/results/edge-gpu.md",
	"shared_urgent_p50_us": "the change of contexts takes the hardware 140 µs and the other kernel up to 40 to leave (docs/nvidia.md); polling for parked events took 415 µs to 223, and what is left besides was not told apart: docs/results/edge-gpu.md",
	"shared_p50_us":        "an event waits for its context's turn, and the others' slices are as long as the driver has them by default; the policy gives events no priority there, as hpf does (shared_urgent_p50_us): docs/results/edge-gpu.md",
}

// gpuResults are what was measured on a GPU.
type gpuResults struct {
	goals.GPUFile
	// Launch is what a launch is made of: lines that a test of gpu/nvidia logs.
	Launch []string `json:"launch"`
}

// takeGPU takes the rows out of a file that e2e/nvidia/run has written, and the parts of a launch out
// of the log of a test of gpu/nvidia, and makes their page. Rows that were taken over before stay if
// they have nothing newer. log may be empty.
func takeGPU(dir, from, log string) error {
	f, err := goalSet.FromGPU(from, func(string) float64 { return 1 }, gpuWhys)
	if err != nil {
		return err
	}
	r := &gpuResults{GPUFile: *f}
	if log != "" {
		logged, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		r.Launch = launchParts(logged)
	}
	path := filepath.Join(dir, gpuFile)
	if err := r.keep(path); err != nil {
		return err
	}
	if err := goals.Write(path, r); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, gpuPage), r.page(), 0o644)
}

// launchParts returns the lines of a log that say what parts of a launch take.
func launchParts(logged []byte) (lines []string) {
	for line := range strings.Lines(string(logged)) {
		_, place, _ := strings.Cut(line, "parts_test.go:") // "" on lines of others
		if _, text, ok := strings.Cut(place, ": "); ok && strings.Contains(text, "p50") {
			lines = append(lines, strings.TrimSpace(text))
		}
	}
	return lines
}

// keep adds what an older file has and this one has not, which must be of the same GPU and driver, and
// puts the rows in order.
func (r *gpuResults) keep(path string) error {
	data, err := os.ReadFile(path)
	var old gpuResults
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		if err := json.Unmarshal(data, &old); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if undated(old.GPU) != undated(r.GPU) {
			return fmt.Errorf("%s is of %s, and the new rows are of %s", path, old.GPU, r.GPU)
		}
	}
	if r.Launch == nil {
		r.Launch = old.Launch
	}
	rows := make(map[string]goals.Row)
	for _, row := range append(old.Rows, r.Rows...) {
		rows[row.ID] = row
	}
	r.Rows = nil
	for _, g := range goalSet.Goals {
		if row, ok := rows[g.ID]; ok {
			r.Rows = append(r.Rows, row)
		}
	}
	return nil
}

// undated returns the name of a GPU and of its driver without the day.
func undated(gpu string) string { return gpu[:max(strings.LastIndex(gpu, ", "), 0)] }

// page is the page.
func (r *gpuResults) page() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `# EDGE on a GPU: event kernels

%s. Made by %[2]sgo run ./e2e/papers/edge -gpu FILE -parts LOG -out docs/results%[2]s from what %[2]se2e/nvidia/run --part edge,edge-idle,edge-shares,edge-host,edge-streams --out FILE%[2]s measured.
Guests are processes over vfio-user, with the daemon as it is by default; nothing is configured but what a row names. Values are medians of the runs.

| what | value | goal | met | runs | beside, in the same run | how | why not |
|---|---|---|---|---|---|---|---|
`, r.GPU, "`")
	for _, row := range r.Rows {
		met := "yes"
		if row.Missed() {
			met = "**no**"
		}
		fmt.Fprintf(&b, "| %s | **%.4g** %s | %s | %s | %d | %s | %s | %s |\n", "`"+row.ID+"`", *row.Value, row.Unit, row.Goal, met, row.Runs, gpurows.Baselines(row.Baseline), row.Beside, row.Why)
	}
	for _, row := range r.Rows {
		if row.Detail != nil {
			fmt.Fprintf(&b, "\n## `%s`\n", row.ID)
			row.Detail.Print(&b)
		}
	}
	b.WriteString(`
## What a launch is made of

A resident kernel of one thread polls a word in the host's memory, and answers in another. Each line adds what a dispatcher does besides
(` + "`go test -c ./gpu/nvidia`, then `nvidia.test -test.v -test.run TestHardwareEventParts`" + `):

`)
	for _, line := range r.Launch {
		b.WriteString("- " + line + "\n")
	}
	return []byte(b.String())
}
