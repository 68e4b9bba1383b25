package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vgpud/e2e/host"
	"vgpud/e2e/nvidia/report"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := host.Cleanup(); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// harness builds this program beside the daemon's.
func harness(t *testing.T) (programs, self string) {
	t.Helper()
	programs, err := host.Programs()
	if err != nil {
		t.Fatal(err)
	}
	self = filepath.Join(programs, "nvidiabench")
	cmd := exec.Command("go", "build", "-o", self, "vgpud/e2e/nvidia")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return programs, self
}

// TestEveryPartOnASoftGPU has each part do next to nothing on a GPU in software, as it does on a
// real one: it must find a value for each of its rows but those that only hardware has, in the
// format that there is to be.
func TestEveryPartOnASoftGPU(t *testing.T) {
	programs, self := harness(t)
	standIns(t, filepath.Join(programs, "cuda"))
	hardwareOnly := map[string]bool{"suspend_ms": true, "resume_ms": true, "cuda_begin_ratio": true, "cuda_whole_ratio": true, "idle_watts": true, "python_operations_failed": true}
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel() // a part mostly waits, for windows to end and for what was killed
			lacks := func(f report.File, id string) bool { return f.Row(id) == nil && !hardwareOnly[id] }
			o := options{part: p.name, soak: usualSoak, kind: "soft", programs: programs, self: self}
			o.tiny = true
			f, said := measured(t, o)
			if slices.ContainsFunc(p.ids, func(id string) bool { return lacks(f, id) }) {
				// On a busy machine no kernel may end in a tiny window.
				o.tiny, o.quick, o.most = false, true, 1
				f, said = measured(t, o)
			}
			for _, id := range p.ids {
				r := f.Row(id)
				if r == nil {
					if lacks(f, id) {
						t.Errorf("no row %s\n%s", id, said)
					}
					continue
				}
				if o.tiny && r.Runs != 1 || r.Runs == 0 || r.Unit == "" || r.Command == "" || r.How == "" || len(r.Baseline) == 0 {
					t.Errorf("row %s is not complete: %+v", id, r)
				}
			}
			if p.name == faultsPart {
				if len(f.Faults) != len(trials) {
					t.Errorf("%d faults, not %d", len(f.Faults), len(trials))
				}
				for _, x := range f.Faults {
					if !x.Recovered {
						t.Errorf("%s: %s", x.What, x.Saw)
					}
				}
			}
			if r := f.Row("cuda_programs_failed"); r != nil && (r.Value != 1 || !strings.Contains(r.How, "failed: bad")) {
				t.Errorf("one of two programs fails: %+v", r)
			}
			if page := f.Page("h100.json"); !strings.Contains(page, f.GPU) {
				t.Error("a page without the GPU's name")
			}
		})
	}
}

// measured measures as o says and returns what was found, and what the parts have said.
func measured(t *testing.T, o options) (report.File, string) {
	t.Helper()
	var progress bytes.Buffer
	o.out, o.progress = filepath.Join(t.TempDir(), "soft.json"), &progress
	if err := measure(t.Context(), &o); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	f, err := report.Read(o.out)
	if err != nil {
		t.Fatal(err)
	}
	return f, progress.String()
}

// standIns writes what bundle.sh --cuda builds: programs that look for the virtual GPU's socket, of
// which one ends badly, and one that tells how long a launch takes.
func standIns(t *testing.T, dir string) {
	t.Helper()
	const looks = "#!/bin/sh\ntest -S \"$VGPU_VFIO_USER\" && "
	for name, script := range map[string]string{"checks/good": looks + "exit 0\n", "checks/bad": looks + "exit 3\n", "launchtime": looks + "echo 500 400\n"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPartsMakeEveryRow holds that the parts' rows are all that there are to be, each in one part.
func TestPartsMakeEveryRow(t *testing.T) {
	made := make(map[string]int)
	for _, p := range parts {
		for _, id := range p.ids {
			made[id]++
		}
	}
	for _, target := range report.Targets() {
		if made[target.ID] != 1 {
			t.Errorf("row %s is made by %d parts", target.ID, made[target.ID])
		}
		delete(made, target.ID)
	}
	for id := range made {
		t.Errorf("row %s has no target", id)
	}
}

// TestFaultsAreDoneOnceEachWasTried has a file with faults that are not tried any more.
func TestFaultsAreDoneOnceEachWasTried(t *testing.T) {
	all, err := choose(faultsPart)
	if err != nil {
		t.Fatal(err)
	}
	var f report.File
	for i := range trials {
		f.Faults = append(f.Faults, report.Fault{What: fmt.Sprintf("an old one, %d", i)})
	}
	for _, x := range trials {
		if all[0].done(&f) {
			t.Errorf("done without %q", x.what)
		}
		f.Faults = append(f.Faults, report.Fault{What: x.what})
	}
	if !all[0].done(&f) {
		t.Error("not done with all")
	}
}

func TestChoose(t *testing.T) {
	all, err := choose("")
	if err != nil || len(all) != len(parts)-apart() || slices.ContainsFunc(all, func(p part) bool { return p.apart }) {
		t.Errorf("%d parts, %v", len(all), err)
	}
	if long, err := choose("soak"); err != nil || len(long) != 1 || !long[0].apart {
		t.Errorf("the soak by its name: %v, %v", long, err)
	}
	two, err := choose("fair,launch")
	if err != nil || len(two) != 2 || two[0].name != "fair" {
		t.Errorf("%v, %v", two, err)
	}
	if _, err := choose("speed"); err == nil || !strings.Contains(err.Error(), "launch") {
		t.Errorf("an unknown part: %v", err)
	}
}

// apart returns how many parts run only if they are named.
func apart() (n int) {
	for _, p := range parts {
		if p.apart {
			n++
		}
	}
	return n
}

// TestGridGoesThroughEverything holds what the grid of loads is to cover.
func TestGridGoesThroughEverything(t *testing.T) {
	points := grid()
	if len(points) != 16 {
		t.Fatalf("%d points", len(points))
	}
	loads := make(map[float64]int)
	for _, p := range points {
		loads[p.load]++
		k := gridKernels[p.kernel]
		if got := float64(k) / float64(k+p.pause()); got < p.load-0.001 || got > p.load+0.001 {
			t.Errorf("%v: the pause %v makes a load of %v", p, p.pause(), got)
		}
	}
	for _, l := range gridLoads {
		if loads[l] != 4 {
			t.Errorf("load %v at %d points", l, loads[l])
		}
	}
}

func TestUnknownPartIsNamed(t *testing.T) {
	o := &options{part: "speed", kind: "soft", progress: &bytes.Buffer{}}
	if err := measure(context.Background(), o); err == nil {
		t.Error("no error")
	}
}
