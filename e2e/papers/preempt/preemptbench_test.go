package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vgpud/e2e/papers/plot"
	"vgpud/gpu/soft/machine"
	"vgpud/gpu/soft/machine/blocks"
	"vgpud/mediator/vgpu/abi"
)

// TestNotes tests that the model orders the forms as an H100 does and predicts their eviction
// latencies within a factor of two. The cost of checks over the bus, the largest of all, must agree
// within a few points.
func TestNotes(t *testing.T) {
	for _, k := range notes() {
		t.Run(k.name, func(t *testing.T) {
			original, all := k.compare(5)
			if off := original/k.original - 1; off < -0.03 || off > 0.03 {
				t.Errorf("the original takes %.0f µs, and %.0f on an H100", original, k.original)
			}
			for _, h := range all {
				t.Logf("%-45s %+9.1f %% (H100 %+9.1f)   %8.1f µs (%8.1f)", h.name, h.overheadModel, h.overhead, h.latencyModel, h.latency)
			}
			for _, h := range all {
				if r := (100 + h.overheadModel) / (100 + h.overhead); h.form.Word == blocks.HostMemory && math.Abs(r-1) > 0.08 {
					t.Errorf("%s: %+.1f %%, and %+.1f %% on an H100", h.name, h.overheadModel, h.overhead)
				}
			}
			for _, p := range misordered(all) {
				t.Error(p)
			}
			for _, l := range slow(all) {
				t.Error(l)
			}
		})
	}
}

// TestComparisons tests that the comparisons detect a wrong model.
func TestComparisons(t *testing.T) {
	all := []comparison{
		{measured{name: "a", overhead: 10, latency: 10}, 20, 19},
		{measured{name: "b", overhead: 11, latency: 10}, 15, 21},
		{measured{name: "c", overhead: 30, latency: 10}, 18, 4},
	}
	if got := misordered(all); len(got) != 1 || !strings.Contains(got[0], "a +10.0 % and c +30.0 %") {
		t.Errorf("%q", got)
	}
	if got := slow(all); len(got) != 2 || !strings.HasPrefix(got[0], "b") || !strings.HasPrefix(got[1], "c") {
		t.Errorf("%q", got)
	}
}

// TestChosenForms tests that transformed kernels run hardly longer than the originals in the forms
// that the tuner chooses, unlike slices of the same latency.
func TestChosenForms(t *testing.T) {
	all, err := studies("bfs", "euler", "triad", "vecadd")
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range all {
		for form, n := range s.added {
			// Checking and looping issue some tens of instructions a warp, not hundreds.
			if each := (n.unit + n.task) / float64(s.model.Warps); each < 10 || each > 100 {
				t.Errorf("%s, %v: %.0f cycles a warp more", name, form, each)
			}
		}
		if atomic := s.added[abi.PreemptPersistent]; name == "vecadd" && (len(s.added) != 3 || atomic.unit <= 0) {
			t.Errorf("%s: %+v", name, s.added)
		}
	}
	f, err := overheads(all, 10*time.Millisecond, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range overheadTargets(&f) {
		if !target.passed() {
			t.Errorf("%s: %.2f %s, at most %g (%s)", target.Name, target.Reached, target.Unit, target.Limit, target.Where)
		}
	}
	for _, r := range f.Rows {
		if r.Values[1] <= r.Values[0] {
			t.Errorf("%s: %.4f of the original's length, and slices %.4f", r.Name, r.Values[0], r.Values[1])
		}
	}
	papers := all["vecadd"]
	k := lasting(papers.model, 2e6)
	if _, length := papers.added.amortized(k); length < 1.1*blocks.Duration(blocks.H100, k, blocks.Form{}) {
		t.Error("a word in host memory costs nothing")
	}
}

// TestUrgentAndFair tests that an urgent kernel waits only for the eviction and a context switch,
// and that guests of weights 2 and 1 share the GPU 2:1.
func TestUrgentAndFair(t *testing.T) {
	all, err := studies("nearest", "matmul")
	if err != nil {
		t.Fatal(err)
	}
	f, err := newFLEP(all, 1)
	if err != nil {
		t.Fatal(err)
	}
	low, high := index("NN"), index("MM")
	urgent, err := f.urgentTarget([][2]int{{low, high}}, 5)
	if err != nil {
		t.Fatal(err)
	}
	s, err := f.weighted(low, high, time.Second, 0.1)
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range append(fairTargets([]share{s}), urgent) {
		if !target.passed() {
			t.Errorf("%s: %.2f %s, at most %g (%s)", target.Name, target.Reached, target.Unit, target.Limit, target.Where)
		}
	}
	if s.evictionCount == 0 || s.lost > 0.13 {
		t.Errorf("%d evictions, %.1f %% lost", s.evictionCount, 100*s.lost)
	}
	u, err := f.figure8Run(low, high, soon)
	if err != nil {
		t.Fatal(err)
	}
	if u.speedup < 5 || u.latency > u.bound+time.Microsecond {
		t.Errorf("%+v", u)
	}
	if late, err := f.figure8Run(low, high, 20*time.Millisecond); err != nil || late.speedup < 0.95 || late.speedup > 1.05 {
		t.Errorf("%+v, %v", late, err)
	}
	hpf, _, err := f.equal("hpf", low, high)
	if err != nil {
		t.Fatal(err)
	}
	reorder, _, err := f.equal("reorder", low, high)
	if err != nil || hpf < 2 || reorder > 1.05 {
		t.Errorf("ANTT is better by %.2f with hpf, by %.2f with reordering, %v", hpf, reorder, err)
	}
}

// fixed returns a program whose evictions are all alike.
func fixed(name string, length, latency time.Duration) *program {
	p := &program{
		name: name, kernel: blocks.Kernel{Tasks: 1000, PerSM: 8}, form: blocks.Form{Kind: blocks.EarlyExit, Group: 1},
		alone: length, length: length, cost: latency,
	}
	for i := range p.evictions {
		p.evictions[i] = []eviction{{latency: latency}}
	}
	return p
}

// TestWorld tests that an evicted kernel does the rest of its work later, and no more than that.
func TestWorld(t *testing.T) {
	const ms = time.Millisecond
	w, err := newWorld(2, options{policy: "piv", switching: contextSwitch})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	long, short := fixed("long", 10*ms, 100*time.Microsecond), fixed("short", ms, 0)
	batch := &job{guest: 0, program: long, priority: 1}
	urgent := &job{guest: 1, program: short, priority: 2}
	w.arrive(0, batch)
	w.arrive(3*ms, urgent)
	w.run(machine.Never)
	if want := react + long.cost + contextSwitch + short.length; urgent.turnaround() != want {
		t.Errorf("the urgent kernel takes %v, want %v", urgent.turnaround(), want)
	}
	// The kernel does no work while it leaves, and the rest is launched anew.
	lost := long.cost + time.Duration(blocks.H100.Launch)
	if got := batch.used - long.length; batch.evictions != 1 || got < lost-2*time.Microsecond || got > lost+2*time.Microsecond {
		t.Errorf("%d evictions, and executed for %v more than alone, want %v", batch.evictions, got, lost)
	}
	busy := w.guests[0].group.Usage().Busy
	if batch.used != busy || w.guests[0].group.Usage().Evictions != 1 {
		t.Errorf("executed %v, the machine says %v", batch.used, busy)
	}
}

// TestWrite tests that the report names each figure and target, that the page is well-formed, and
// that the JSON can be read back.
func TestWrite(t *testing.T) {
	r := &report{
		Model:   "a model",
		Targets: []target{{Name: "something small", Limit: 1, Reached: 0.5, Unit: "%"}},
		Figures: []plot.Figure{{
			Number: "0, vector add", Title: "bars", Log: true, Columns: []string{"form", "H100", "model"},
			Rows: []plot.Row{{Name: "a form *", Values: []float64{math.NaN(), 880}}},
		}, {
			Number: "2", Title: "lines & more", Lines: true, Columns: []string{"x", "y"},
			Rows: []plot.Row{{Name: "1", Values: []float64{2}}, {Name: "2", Values: []float64{3}}},
		}},
	}
	dir := t.TempDir()
	if err := r.write(dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "preempt.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Figure 0, vector add", "Figure 2", "something small", "preempt.svg", "paper:", "model"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, "preempt.json"))
	if err != nil {
		t.Fatal(err)
	}
	var back struct {
		Targets []target `json:"targets"`
		Figures []struct {
			Rows []struct{ Values []*float64 } `json:"rows"`
		} `json:"figures"`
	}
	if err := json.Unmarshal(data, &back); err != nil || len(back.Targets) != 1 || len(back.Figures) != 2 || *back.Figures[1].Rows[1].Values[0] != 3 {
		t.Errorf("%v: %+v", err, back)
	}
	page, err := os.Open(filepath.Join(dir, "preempt.svg"))
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	for d := xml.NewDecoder(page); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
