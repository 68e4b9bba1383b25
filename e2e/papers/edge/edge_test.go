package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWrittenResultsAreComplete: docs/results has a row for each goal, and a reason for each that is
// missed.
func TestWrittenResultsAreComplete(t *testing.T) {
	if err := goalSet.Check(&bytes.Buffer{}, "../../../docs/results"); err != nil {
		t.Error(err)
	}
}

// TestReport: small cases give each row of the model, figure and table, the same each time.
func TestReport(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	dirs := [2]string{t.TempDir(), t.TempDir()}
	for _, dir := range dirs {
		r, err := everything(extent{runs: 1, samples: 10, alone: 4, small: true})
		if err != nil {
			t.Fatal(err)
		}
		have := make(map[string]bool)
		for _, row := range r.Rows {
			have[row.ID] = true
		}
		for _, g := range goalSet.Goals {
			if have[g.ID] == g.Live {
				t.Errorf("row %s: %v", g.ID, have[g.ID])
			}
		}
		if err := r.write(dir); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"edge.json", "edge.md", "edge.svg"} {
		a, err := os.ReadFile(filepath.Join(dirs[0], name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dirs[1], name))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(a), string(b)); d != "" {
			t.Errorf("%s differs: -first +second\n%s", name, d)
		}
		if name != "edge.md" {
			continue
		}
		for _, want := range []string{"| `preempt_oldest` |", "Figure 11a", "Figure 11b, newest", "Figure 12", "Figure 13, high, events", "IPSec, BFS"} {
			if !strings.Contains(string(a), want) {
				t.Errorf("the page lacks %q", want)
			}
		}
	}
}

// TestLaunchEstimate is the paper's: 5 µs to 1.1, 4.4 times.
func TestLaunchEstimate(t *testing.T) {
	if gain := launchNative / launchEdge(); gain < 4.3 || gain > 4.5 {
		t.Errorf("%.2f µs to %.2f: %.2f times", launchNative, launchEdge(), gain)
	}
}
