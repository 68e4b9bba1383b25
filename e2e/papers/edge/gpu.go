package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"vgpud/e2e/papers/goals"
)

// gpuFile and gpuPage have the rows that are measured on a GPU.
const (
	gpuFile = "edge-gpu.json"
	gpuPage = "edge-gpu.md"
)

// gpuWhys are why rows of a GPU miss their goals.
var gpuWhys = map[string]string{
	"launch_p50_us":   "a resident warp that polls a word and answers it takes longer than the goal there, without kernel or table: docs/results/edge-gpu.md, what a launch is made of",
	"launch_p99_us":   "as launch_p50_us: docs/results/edge-gpu.md",
	"launch32_p50_us": "as launch_p50_us, and each guest stores 16 doorbells before it looks at the first flag: docs/results/edge-gpu.md",
	"launch32_p99_us": "two guests' contexts take turns on the GPU, so that some events wait for their context's: docs/results/edge-gpu.md",
	"speedup_native":  "as launch_p50_us: even the bare answer is less than 4.4 times as fast as a native launch there: docs/results/edge-gpu.md",
	"speedup_guest":   "as launch_p50_us: docs/results/edge-gpu.md",
	"shared_p50_us":   "an event waits for its context's turn, and the others' slices are as long as the driver has them by default; events have no priority over others' kernels: docs/results/edge-gpu.md",
}

// takeGPU takes the rows out of a file that e2e/nvidia/run --part edge has written, and makes their
// page with the parts of a launch, which a test of gpu/nvidia logs: lines of text.
func takeGPU(dir, from, parts string) error {
	f, err := goalSet.FromGPU(from, func(string) float64 { return 1 }, gpuWhys)
	if err != nil {
		return err
	}
	logged, err := os.ReadFile(parts)
	if err != nil {
		return err
	}
	if err := goals.Write(filepath.Join(dir, gpuFile), f); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, gpuPage), gpuText(f, logged), 0o644)
}

// gpuText is the page.
func gpuText(f *goals.GPUFile, logged []byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `# EDGE on a GPU: event kernels

%s. Made by %[2]sgo run ./e2e/papers/edge -gpu FILE -parts LOG -out docs/results%[2]s from what %[2]se2e/nvidia/run --part edge --out FILE%[2]s measured.
Guests are processes over vfio-user, with the daemon as it is by default; nothing is configured.

| what | value | goal | met | runs | how | why not |
|---|---|---|---|---|---|---|
`, f.GPU, "`")
	for _, r := range f.Rows {
		met := "yes"
		if r.Missed() {
			met = "**no**"
		}
		fmt.Fprintf(&b, "| %s | **%.4g** %s | %s | %s | %d | %s | %s |\n", "`"+r.ID+"`", *r.Value, r.Unit, r.Goal, met, r.Runs, r.Beside, r.Why)
	}
	b.WriteString(`
## What a launch is made of

A resident kernel of one thread polls a word in the host's memory, and answers in another. Each line adds what a dispatcher does besides
(` + "`go test -c ./gpu/nvidia`, then `nvidia.test -test.v -test.run TestHardwareEventParts`" + `):

`)
	for line := range strings.Lines(string(logged)) {
		_, place, _ := strings.Cut(line, "parts_test.go:") // "" on lines of others
		if _, text, ok := strings.Cut(place, ": "); ok && strings.Contains(text, "p50") {
			b.WriteString("- " + text)
		}
	}
	return b.Bytes()
}
