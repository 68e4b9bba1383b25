package main

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"vgpud/e2e/nvidia/report"
)

// TestRepeatKeepsToItsTime has runs of a length each in parts of a length.
func TestRepeatKeepsToItsTime(t *testing.T) {
	for name, c := range map[string]struct {
		quick bool
		takes time.Duration
		part  float64
		runs  []time.Duration // the last for all that follow
		want  int
	}{
		"there is time":                    {false, time.Minute, 1, []time.Duration{10 * time.Second}, 5},
		"for four":                         {false, 49 * time.Second, 1, []time.Duration{10 * time.Second}, 4},
		"for four in half of it":           {false, 98 * time.Second, 0.5, []time.Duration{10 * time.Second}, 4},
		"not for as many as there must be": {false, 5 * time.Second, 1, []time.Duration{10 * time.Second}, 3},
		"the first takes longest":          {false, time.Minute, 1, []time.Duration{20 * time.Second, 10 * time.Second}, 5},
		"it takes longer each time":        {false, time.Minute, 1, []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second}, 4},
		"quick":                            {true, time.Minute, 1, []time.Duration{time.Second}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &bench{options: &options{quick: c.quick, progress: t.Output()}, begin: time.Now(), takes: c.takes}
				ran := 0
				err := b.repeat(c.part, func(i int) error {
					if i != ran {
						t.Errorf("run %d is said to be run %d", ran, i)
					}
					ran++
					time.Sleep(c.runs[min(i, len(c.runs)-1)])
					return nil
				})
				if ran != c.want || err != nil {
					t.Errorf("%d runs, %v; want %d", ran, err, c.want)
				}
			})
		})
	}
	b := &bench{options: &options{progress: t.Output()}, begin: time.Now(), takes: time.Minute}
	broken := errors.New("broken")
	if err := b.repeat(1, func(int) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("a run that failed: %v", err)
	}
}

// TestAllPartsFitTheirTime holds how long everything may take.
func TestAllPartsFitTheirTime(t *testing.T) {
	const all = 25 * time.Minute
	var sum time.Duration
	chosen, err := choose("")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range chosen {
		if sum += p.takes; p.takes <= 0 || p.takes > partLimit {
			t.Errorf("part %s may take %v", p.name, p.takes)
		}
	}
	if sum > all {
		t.Errorf("all parts may take %v", sum)
	}
}

// TestPartsAreDoneWhenTheirRowsAreThere is what a run that was cut goes on by.
func TestPartsAreDoneWhenTheirRowsAreThere(t *testing.T) {
	var f report.File
	for _, p := range parts {
		if p.done(&f) {
			t.Errorf("part %s is done in an empty file", p.name)
		}
		for _, id := range p.ids {
			f.Rows = append(f.Rows, report.NewRow(id, []float64{1}))
		}
		if p.name == faultsPart {
			for _, x := range trials {
				f.Faults = append(f.Faults, report.Fault{What: x.what})
			}
		}
		if !p.done(&f) {
			t.Errorf("part %s is not done", p.name)
		}
	}
}

// TestPartsThatMayNotFitArePutOff has less time than any part may take, and more than one that is
// there already does.
func TestPartsThatMayNotFitArePutOff(t *testing.T) {
	var progress strings.Builder
	out := filepath.Join(t.TempDir(), "soft.json")
	o := &options{out: out, kind: "soft", within: time.Second, progress: &progress}
	about, err := ask(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	first := parts[0]
	for _, id := range first.ids {
		about.Rows = append(about.Rows, report.NewRow(id, []float64{1}))
	}
	if err := about.Write(out); err != nil {
		t.Fatal(err)
	}
	if err := measure(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	said := progress.String()
	if n := strings.Count(said, "put off"); n != len(parts)-1-apart() || !strings.Contains(said, "part "+first.name+": done before") {
		t.Errorf("of %d parts %d are put off:\n%s", len(parts), n, said)
	}
}

// TestResultsOfAnotherGPUAreNotAddedTo holds that this is found out before anything is measured.
func TestResultsOfAnotherGPUAreNotAddedTo(t *testing.T) {
	out := filepath.Join(t.TempDir(), "h100.json")
	other := report.File{GPU: "NVIDIA H100", Driver: "580", Rows: []report.Row{report.NewRow("share_error", []float64{0.01})}}
	if err := other.Write(out); err != nil {
		t.Fatal(err)
	}
	o := &options{part: "shares", out: out, kind: "soft", progress: t.Output()}
	if err := measure(t.Context(), o); err == nil || !strings.Contains(err.Error(), "NVIDIA H100") {
		t.Errorf("measured on another GPU: %v", err)
	}
}
