package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"vgpud/e2e/papers/goals"
)

// pages writes rows to a directory, as everything but live rows has them, after change.
func pages(t *testing.T, change func(rows map[string]*goals.Row)) string {
	t.Helper()
	byID := make(map[string]*goals.Row)
	for _, g := range goalSet.Goals {
		if !g.Live {
			r := measured(g.ID, stat{mean: g.Limit}, 1)
			byID[g.ID] = &r
		}
	}
	change(byID)
	var page struct {
		Rows []goals.Row `json:"rows"`
	}
	for _, g := range goalSet.Goals {
		if r := byID[g.ID]; r != nil {
			page.Rows = append(page.Rows, *r)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "case.md"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(page)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "case.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestCheck: each goal has a line, and what is missed or absent without a reason is an error.
func TestCheck(t *testing.T) {
	no := false
	for _, c := range []struct {
		name   string
		change func(rows map[string]*goals.Row)
		counts string
		err    string
	}{
		{"all met", func(map[string]*goals.Row) {}, `{"met":24,"missed":0,"unmeasured":8}`, ""},
		{"absent", func(rows map[string]*goals.Row) { delete(rows, "oom") }, `{"met":23,"missed":0,"unmeasured":8}`, "oom is absent"},
		{"missed", func(rows map[string]*goals.Row) { rows["sa_2gpu"].Met = &no }, `{"met":23,"missed":1,"unmeasured":8}`, "sa_2gpu is missed"},
		{"explained", func(rows map[string]*goals.Row) {
			rows["sa_2gpu"].Met, rows["sa_2gpu"].Why = &no, "see docs/results/case.md"
		}, `{"met":23,"missed":1,"unmeasured":8}`, ""},
		{"explained by a page that is not there", func(rows map[string]*goals.Row) {
			rows["sa_2gpu"].Met, rows["sa_2gpu"].Why = &no, "see docs/results/other.md"
		}, `{"met":23,"missed":1,"unmeasured":8}`, "sa_2gpu is missed"},
		{"not measured", func(rows map[string]*goals.Row) { rows["pass_us"].Met = nil }, `{"met":23,"missed":0,"unmeasured":9}`, "pass_us is not measured"},
	} {
		var out bytes.Buffer
		err := goalSet.Check(&out, pages(t, c.change))
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if got := lines[len(lines)-1]; got != c.counts {
			t.Errorf("%s: %s, want %s", c.name, got, c.counts)
		}
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.err)
		}
		for _, line := range lines[:len(lines)-1] {
			var r goals.Row
			if err := json.Unmarshal([]byte(line), &r); err != nil || goalSet.Of(r.ID) == nil {
				t.Errorf("%s: %s: %v", c.name, line, err)
			}
		}
	}
}

// TestGoalsHoldAtOtherHostWork: a row that gives values at half and at double host work is met only
// if those reach the goal.
func TestGoalsHoldAtOtherHostWork(t *testing.T) {
	for _, c := range []struct {
		also []float64
		met  bool
	}{{nil, true}, {[]float64{2.3, 2.4}, true}, {[]float64{2.1, 2.4}, false}, {[]float64{2.3, 2.1}, false}} {
		if r := measured("sa_2gpu", stat{mean: 2.3}, 1, c.also...); *r.Met != c.met {
			t.Errorf("with %v: met is %v", c.also, *r.Met)
		}
	}
	if r := measured("slow_mean", stat{mean: 2.6}, 1); *r.Met {
		t.Error("a slowdown above its limit is met")
	}
}

// TestWrittenResultsAreComplete: docs/results has a row for each goal, and a reason for each that is
// missed.
func TestWrittenResultsAreComplete(t *testing.T) {
	if err := goalSet.Check(&bytes.Buffer{}, "../../../docs/results"); err != nil {
		t.Error(err)
	}
}

// TestReport: a few seeds give each row, figure and table.
func TestReport(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	r, err := everything(extent{seeds: 1, mixes: 20, shares: 1})
	if err != nil {
		t.Fatal(err)
	}
	have := make(map[string]bool)
	for _, row := range r.Rows {
		have[row.ID] = true
	}
	for _, g := range goalSet.Goals {
		if timed := g.ID == "decide_us" || g.ID == "pass_us"; have[g.ID] == (g.Live || timed) {
			t.Errorf("row %s: %v", g.ID, have[g.ID])
		}
	}
	dir := t.TempDir()
	if err := r.write(dir); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "case.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| `sa_2gpu` |", "Figure 6b", "Figure T3", "Figure S1", "| lavaMD 1728000 |"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}
