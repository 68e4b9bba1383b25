package system

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"vgpud/e2e/host"
)

// TestCommandLine runs the scripts in testdata.
func TestCommandLine(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			dir, err := host.Programs()
			if err != nil {
				return err
			}
			e.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "checkdemo": checkDemo, "checkbatch": checkBatch,
		},
	})
}

// exits runs a program that must end with the exit status given first.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS PROGRAM ARG...")
	}
	script := []string{"-c", `"$@" 2>stderr; code=$?; cat stderr >&2; rm stderr; [ $code = ` + args[0] + ` ] || { echo "exit status $code, want ` + args[0] + `" >&2; exit 1; }`, "sh"}
	ts.Check(ts.Exec("sh", append(script, args[1:]...)...))
}

// checkDemo compares the demo's JSON, in a file, with what is promised, and the accounted time with
// the GPU's own count. With "calibrated" there is no such count, only the number of kernels and
// their duration alone; on a soft GPU that duration depends on the host and changes from second to
// second, so only hardware must match it.
func checkDemo(ts *testscript.TestScript, neg bool, args []string) {
	calibrated := len(args) == 2 && args[1] == "calibrated"
	if neg || len(args) != 1 && !calibrated {
		ts.Fatalf("usage: checkdemo FILE [calibrated]")
	}
	var result struct {
		Phases []struct {
			Policy  string
			Seconds float64
			Guests  []map[string]any
			Jain    *float64
			CPU     *float64 `json:"accounting_cpu_ratio"`
			Missed  float64  `json:"polling_gap_seconds"`
		}
	}
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &result))
	if len(result.Phases) != 2 || result.Phases[0].Policy != "none" || result.Phases[1].Policy != "dfq" {
		ts.Fatalf("phases: %+v", result.Phases)
	}
	for _, p := range result.Phases {
		if len(p.Guests) != 3 || p.Jain == nil || *p.Jain <= 0 || *p.Jain > 1 || p.CPU == nil || *p.CPU < 0 {
			ts.Fatalf("phase: %+v", p)
		}
		shares := 0.0
		for i, g := range p.Guests {
			for _, field := range []string{"weight", "kernels", "gpu_seconds", "gpu_seconds_truth", "share", "entitled", "suspended_seconds"} {
				if v, ok := g[field].(float64); !ok || v < 0 {
					ts.Fatalf("%s of guest %d: %v", field, i, g[field])
				}
			}
			if _, ok := g["name"].(string); !ok || g["verified"] != true || g["weight"] != float64(int(1)<<i) || g["kernels"] == 0.0 {
				ts.Fatalf("guest: %v", g)
			}
			shares += g["share"].(float64)
			used, truth := g["gpu_seconds"].(float64), g["gpu_seconds_truth"].(float64)
			if !calibrated {
				// Unobserved time may be missing from either count.
				if off, most := math.Abs(used-truth), 0.1*p.Seconds+p.Missed; off > most {
					ts.Fatalf("guest %v: %.4f s accounted, %.4f s by the GPU, more than %.4f s between them", g["name"], used, truth, most)
				}
				continue
			}
			alone, _ := g["kernel_seconds_alone"].(float64)
			if made := g["kernels"].(float64) * alone; alone <= 0 || used <= 0 || math.Abs(truth-made) > 1e-9*made {
				ts.Fatalf("guest %v: %.4f s accounted, its %v kernels of %v s alone are said to be %.4f s", g["name"], used, g["kernels"], alone, truth)
			}
		}
		if shares < 0.99 || shares > 1.01 {
			ts.Fatalf("shares sum to %v", shares)
		}
	}
}

// checkBatch compares the JSON of the demo with several GPUs, in a file, with what is promised.
func checkBatch(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: checkbatch FILE")
	}
	var result map[string]struct {
		GPUs int
		Ways []struct {
			Way     string
			Seconds float64
			Done    int
			Memory  *int      `json:"out_of_memory"`
			Busy    []float64 `json:"gpu_busy_ratio"`
			Jobs    []struct {
				Name           string
				GPU            int
				Kernels, Wrong uint64
				Checked        uint64  `json:"bytes_checked"`
				Seconds        float64 `json:"seconds"`
				Waited         float64 `json:"waited_seconds"`
			}
		}
		Gain       float64 `json:"throughput_gain"`
		Turnaround float64 `json:"turnaround_gain"`
	}
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &result))
	b, ok := result["batch"]
	if len(result) != 1 || !ok || len(b.Ways) != 2 || b.Ways[0].Way != "single" || b.Ways[1].Way != "floating" {
		ts.Fatalf("result: %+v", result)
	}
	for _, w := range b.Ways {
		if len(w.Jobs) != 4*b.GPUs || w.Done != len(w.Jobs) || w.Memory == nil || *w.Memory != 0 || len(w.Busy) != b.GPUs || w.Seconds <= 0 {
			ts.Fatalf("way: %+v", w)
		}
		for _, j := range w.Jobs {
			if j.Name == "" || j.GPU < 0 || j.GPU >= b.GPUs || j.Kernels == 0 || j.Checked == 0 || j.Wrong != 0 || j.Waited < 0 || j.Seconds <= 0 || j.Seconds > w.Seconds {
				ts.Fatalf("%s, job: %+v", w.Way, j)
			}
		}
	}
	// Single assignment leaves the GPUs idle while jobs work on the host. A busy host takes as long for
	// both otherwise.
	if b.Gain <= 0.9 || b.Turnaround <= 0.9 {
		ts.Fatalf("gain %v, of turnaround %v", b.Gain, b.Turnaround)
	}
}
