package main

import (
	"strings"
	"testing"
	"time"

	"vgpud/e2e/papers/plot"
	"vgpud/gpu/soft/machine/blocks"
)

// TestConclusions tests that the page's conclusions follow from its figures.
func TestConclusions(t *testing.T) {
	find := func(speedup float64) conclusion {
		r := &report{Figures: []plot.Figure{{Number: "FLEP 8", Columns: []string{"pair", "hpf"}, Rows: []plot.Row{
			{Name: "a", Values: []float64{speedup - 1}}, {Name: "b", Values: []float64{speedup + 1}},
		}}}}
		for _, c := range r.conclude() {
			if strings.Contains(c.Text, "FLEP 8") {
				return c
			}
		}
		t.Fatal("nothing is said of FLEP 8")
		return conclusion{}
	}
	if c := find(11); !c.Holds || !strings.Contains(c.Text, "11.0 times on average and 12.0 at most") {
		t.Errorf("%+v", c)
	}
	if c := find(30); c.Holds || !strings.Contains(c.Text, "30.0 times") {
		t.Errorf("%+v", c)
	}
	// Without figures no conclusion holds.
	for _, c := range new(report).conclude() {
		if c.Holds {
			t.Errorf("without figures: %+v", c)
		}
	}
}

// TestUnfitted compares the notes' matrix product, to which nothing was fitted, with the model, and
// tests that a wrong model misses the targets.
func TestUnfitted(t *testing.T) {
	figures, unfitted := notesFigures(5)
	if f := figures[len(figures)-1]; f.Number != "0, matrix product" || unfitted.pairs < 30 || unfitted.latencies < 5 {
		t.Errorf("the last figure is %s, with %+v", f.Number, unfitted)
	}
	k := product()
	if original, _ := k.compare(1); original < 0.97*k.original || original > 1.03*k.original {
		t.Errorf("the original takes %.0f µs, and %.0f on an H100", original, k.original)
	}
	for _, target := range unfittedTargets("it", unfitted) {
		if !target.passed() {
			t.Errorf("%s: %.2f %s, at most %g", target.Name, target.Reached, target.Unit, target.Limit)
		}
	}
	for _, target := range unfittedTargets("a wrong model", agreement{pairs: 10, misordered: 5, latencies: 10, off: 3}) {
		if target.passed() {
			t.Errorf("%s: passed with %.2f %s", target.Name, target.Reached, target.Unit)
		}
	}
}

// TestUrgentTargetCanFail tests that kernels that take longer to leave than wanted miss the target
// of urgent kernels.
func TestUrgentTargetCanFail(t *testing.T) {
	for latency, passes := range map[time.Duration]bool{100 * time.Microsecond: true, 2 * time.Millisecond: false} {
		f := &flep{}
		for _, b := range table1 {
			f.large = append(f.large, fixed(b.name, 20*time.Millisecond, latency))
			f.small = append(f.small, fixed(b.name, time.Millisecond, latency))
		}
		target, err := f.urgentTarget([][2]int{{0, 1}, {1, 2}}, 5)
		if err != nil {
			t.Fatal(err)
		}
		if target.passed() != passes {
			t.Errorf("kernels that leave in %v: %.0f µs, at most %g", latency, target.Reached, target.Limit)
		}
	}
}

// TestHostTime tests that the cost of a form includes the host's time for each launch, for the
// tuner as in the figures.
func TestHostTime(t *testing.T) {
	all, err := studies("vecadd")
	if err != nil {
		t.Fatal(err)
	}
	s := all["vecadd"]
	k := lasting(s.model, 1e7)
	chosen := choose(k, s.threads, s.added, wanted)
	alone := blocks.Duration(blocks.H100, k, chosen.form)
	if host := chosen.length - alone; chosen.choice.Form == 0 || host < 49e3 || host > 51e3 {
		t.Errorf("%v takes %.0f ns alone, and %.0f in all", chosen.choice, alone, chosen.length)
	}
	// For a kernel of half a millisecond the host's time costs too much.
	short := choose(lasting(s.model, 5e5), s.threads, s.added, wanted)
	if short.choice.Form != 0 {
		t.Errorf("a kernel of half a millisecond gets %v", short.choice)
	}
}
