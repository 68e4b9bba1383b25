package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"vgpud/e2e/kernels"
)

// interpreted is the corpus, once for all tests.
var interpreted = sync.OnceValues(func() ([]application, error) { return interpret(kernels.Trivial) })

func corpus(t *testing.T) []application {
	t.Helper()
	apps, err := interpreted()
	if err != nil {
		t.Fatal(err)
	}
	return apps
}

// Every kernel of the corpus has a length that a GPU's kernels have.
func TestInterpret(t *testing.T) {
	for _, a := range corpus(t) {
		for _, d := range a.lengths {
			if d < 10*time.Microsecond || d > 100*time.Millisecond {
				t.Errorf("%s: a launch of %v", a.name, d)
			}
		}
	}
}

// Accounting and fair queueing reach what they are held to, and the printed rule
// does not.
func TestTargets(t *testing.T) {
	counts, seeds := []int{1, 2, 4, 12}, 1
	if testing.Short() {
		counts, seeds = []int{3}, 1
	}
	reached, err := targets(scenarios(corpus(t), counts, seeds), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reached {
		if r.fails == r.passed() {
			t.Errorf("%s, limit %s: worst %.3f %s, over the limit in %d of %d runs (%s)", r.name, r.limit, r.worst, r.unit, r.over, r.runs, r.where)
		}
	}
}

// The shape of each figure is the paper's.
func TestFigures(t *testing.T) {
	apps := corpus(t)
	few := apps[:3]
	t.Run("7", func(t *testing.T) {
		f, err := overhead(few, "7a", 10*time.Microsecond, 2*time.Second, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range f.Rows {
			if off := r.Values[0] - 1; off < -0.01 || off > 0.01 || r.Values[1] < 1.05 || r.Values[1] > 1.3 {
				t.Errorf("%s: LoGA %.3f, NEON %.3f; want 1 and some more", r.Name, r.Values[0], r.Values[1])
			}
		}
	})
	t.Run("8", func(t *testing.T) {
		f, err := byThrottles(apps, []int{1, 8}, 2*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if first, last := f.Rows[0].Values, f.Rows[len(f.Rows)-1].Values; last[0] <= first[0] || last[len(last)-1] > 1.01 {
			t.Errorf("with 1 throttle %.3f, with 8 %.3f; want NEON's overhead to grow and LoGA's not", first, last)
		}
	})
	t.Run("9", func(t *testing.T) {
		f, err := kernelLength(time.Second)
		if err != nil {
			t.Fatal(err)
		}
		r := f.Rows[0].Values
		if r[0] < -0.1 || r[0] > 0.1 || r[3] > -5 || r[3] < -7 {
			t.Errorf("kernels of 100 µs: %.2f %% off without skew, %.2f %% with; want 0 and about -6", r[0], r[3])
		}
	})
	t.Run("10", func(t *testing.T) {
		f, err := load(time.Second)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range f.Rows {
			for _, v := range r.Values {
				if want := 10 * float64(i+1); v < want-2.5 || v > want+2.5 {
					t.Errorf("load of %.0f %% measured as %.2f", want, v)
				}
			}
		}
	})
	t.Run("11", func(t *testing.T) {
		f, err := scheduling(few, 2*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range f.Rows {
			// The fair value takes the program to saturate the GPU while it works
			// on the host, too, so it is a bit too large, as the paper says.
			fair, none, dfq := r.Values[0], r.Values[1], r.Values[5]
			if dfq < none || dfq > 1.35*fair || fair/dfq > 0.75*fair/none {
				t.Errorf("%s: fair %.2f, without scheduling %.2f, dfq %.2f", r.Name, fair, none, dfq)
			}
		}
	})
}

// A run is the same each time: loads, jitter and order of computing.
func TestDeterministic(t *testing.T) {
	s := scenarios(corpus(t), []int{4}, 1)
	a, err := targets(s, 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	b, err := targets(s, 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if targetText(a) != targetText(b) {
		t.Errorf("two runs differ:\n%s\n%s", targetText(a), targetText(b))
	}
}

// The report names each figure, and the drawings are well-formed.
func TestWrite(t *testing.T) {
	f, err := load(100 * time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	bars := f
	bars.Lines, bars.Number = false, "11"
	dir := t.TempDir()
	if err := write(dir, []figure{f, bars}, []target{{name: "a target", runs: 1}}); err != nil {
		t.Fatal(err)
	}
	report, err := os.ReadFile(filepath.Join(dir, "loga.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"## Figure 10", "## Figure 11", "a target", "loga-figure10.svg", "paper:"} {
		if !strings.Contains(string(report), want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	for _, name := range []string{"loga-figure10.svg", "loga-figure11.svg"} {
		file, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		for d := xml.NewDecoder(file); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
}
