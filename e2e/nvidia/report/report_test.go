package report

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRowsAreHeldToTheirGoals(t *testing.T) {
	for name, c := range map[string]struct {
		id   string
		runs []float64
		met  bool
	}{
		"at most: below":        {"share_error", []float64{0.03, 0.01, 0.015}, true}, // held by the median
		"at most: the goal":     {"share_error", []float64{0.02}, true},
		"at most: above":        {"share_error", []float64{0.021}, false},
		"at least: above":       {"throughput_kept", []float64{0.99}, true},
		"at least: below":       {"throughput_kept", []float64{0.97}, false},
		"what was not measured": {"throughput_kept", nil, false},
	} {
		if r := NewRow(c.id, c.runs); r.Met != c.met || r.Runs != len(c.runs) {
			t.Errorf("%s: %+v", name, r)
		}
	}
	r := NewRow("evict_us_p50", []float64{40, 50, 70})
	if r.Hold(60); !r.Met || r.Goal != 60 || r.Value != 50 || r.Spread != 30 {
		t.Errorf("with a goal of its own: %+v", r)
	}
	r = NewRowOf("share_error", 0.019, []float64{0.25, 0.75, 0.75})
	if !r.Met || r.Value != 0.019 || r.Runs != 3 || r.Spread != 0.5 {
		t.Errorf("with a value of all runs together: %+v", r)
	}
}

// TestRowsAreHeldToNewGoals merges rows from a time when the goals were others.
func TestRowsAreHeldToNewGoals(t *testing.T) {
	for name, c := range map[string]struct {
		row  Row
		goal float64
		met  bool
	}{
		"met then, and now":                 {Row{ID: "share_error", Value: 0.01, Goal: 0.05, Met: true}, 0.02, true},
		"met then only":                     {Row{ID: "share_error", Value: 0.03, Goal: 0.05, Met: true}, 0.02, false},
		"met now only":                      {Row{ID: "share_error", Value: 0.015, Goal: 0.01}, 0.02, true},
		"missed for another reason":         {Row{ID: "share_error", Value: 0.01, Goal: 0.05}, 0.02, false},
		"the goal is of the measurement":    {Row{ID: "evict_us_p50", Value: 50, Goal: 60, Met: true}, 60, true},
		"nobody knows of it any more":       {Row{ID: "what", Value: 50, Goal: 60, Met: true}, 60, true},
		"it is the same, and was not met":   {Row{ID: "share_error", Value: 0.03, Goal: 0.02}, 0.02, false},
		"at least: met then, and not today": {Row{ID: "throughput_kept", Value: 0.97, Goal: 0.9, Met: true}, 0.98, false},
	} {
		f := File{Rows: []Row{c.row}}
		if f.Hold(); f.Rows[0].Goal != c.goal || f.Rows[0].Met != c.met {
			t.Errorf("%s: %+v", name, f.Rows[0])
		}
	}
}

func TestFileIsAsItIsToBe(t *testing.T) {
	f := File{GPU: "NVIDIA H100", Driver: "580.159.04", Date: "2026-01-02"}
	r := NewRow("launch_added_us", []float64{10, 12, 11})
	r.Command = "e2e/nvidia/run --part launch"
	r.Baseline["native_us_p50"] = 8
	f.Rows = append(f.Rows, r)
	path := filepath.Join(t.TempDir(), "h100.json")
	if err := f.Write(path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"gpu": "NVIDIA H100", "driver": "580.159.04", "date": "2026-01-02",
		"rows": []any{map[string]any{
			"id": "launch_added_us", "value": 11.0, "unit": "µs", "goal": 15.0, "met": true,
			"baseline": map[string]any{"native_us_p50": 8.0}, "runs": 3.0, "spread": 2.0,
			"command": "e2e/nvidia/run --part launch",
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the file (-want +got):\n%s", diff)
	}
	back, err := Read(path)
	if diff := cmp.Diff(f, back); diff != "" || err != nil {
		t.Errorf("read back: %v (-want +got):\n%s", err, diff)
	}
}

func TestMergeReplacesAndOrders(t *testing.T) {
	old := File{GPU: "g", Driver: "1", Date: "2026-01-01", Rows: []Row{{ID: "copy_up_ratio", Value: 1}, {ID: "share_error", Value: 1}},
		Faults: []Fault{{What: "a"}, {What: "b"}}}
	err := old.Merge(File{GPU: "g", Driver: "1", Date: "2026-01-02", Rows: []Row{{ID: "accounting_error", Value: 2}, {ID: "copy_up_ratio", Value: 2}},
		Faults: []Fault{{What: "b", Recovered: true}}})
	want := File{GPU: "g", Driver: "1", Date: "2026-01-02",
		Rows:   []Row{{ID: "accounting_error", Value: 2}, {ID: "share_error", Value: 1}, {ID: "copy_up_ratio", Value: 2}},
		Faults: []Fault{{What: "a"}, {What: "b", Recovered: true}}}
	if diff := cmp.Diff(want, old); diff != "" || err != nil {
		t.Errorf("merged: %v (-want +got):\n%s", err, diff)
	}
	if err := old.Merge(File{GPU: "another", Driver: "1"}); err == nil {
		t.Error("results of another GPU are merged")
	}
	if !old.Has([]string{"share_error"}) || old.Has([]string{"share_error", "host_cpu"}) {
		t.Error("which rows there are")
	}
}

// TestReasonsStayAsLongAsTheGoalIsMissed measures parts again after the reasons for missed goals
// were recorded.
func TestReasonsStayAsLongAsTheGoalIsMissed(t *testing.T) {
	const found = "the driver sleeps"
	row := func(value float64) File {
		return File{GPU: "g", Driver: "1", Rows: []Row{NewRow("share_error", []float64{value})}}
	}
	f := row(0.05)
	if err := f.Explain("share_error", found); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		value float64
		why   string
	}{{0.04, found}, {0.01, ""}, {0.03, ""}} {
		if err := f.Merge(row(step.value)); err != nil {
			t.Fatal(err)
		}
		if why := f.Row("share_error").Why; why != step.why {
			t.Errorf("measured again, %v: %q, want %q", step.value, why, step.why)
		}
	}
	other := row(0.06)
	other.Rows[0].Why = "something else"
	if err := f.Merge(other); err != nil || f.Rows[0].Why != "something else" {
		t.Errorf("what the measurement itself found: %v, %q", err, f.Rows[0].Why)
	}
	met := row(0.01)
	if met.Explain("share_error", found) == nil || met.Explain("host_cpu", found) == nil {
		t.Error("a goal that was met, or not measured, is explained")
	}
}

func TestTablesKeepWhatIsNoNumber(t *testing.T) {
	var table Table
	table.Add("line", 1.5, math.NaN())
	b, err := json.Marshal(table)
	if err != nil {
		t.Fatal(err)
	}
	var back Table
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if v := back.Lines[0].Values; len(v) != 2 || v[0] != 1.5 || !math.IsNaN(float64(v[1])) {
		t.Errorf("%s is read as %v", b, v)
	}
}

func TestPage(t *testing.T) {
	f := File{GPU: "NVIDIA H100", Driver: "580", Date: "2026-01-02"}
	met, missed := NewRow("share_error", []float64{0.01}), NewRow("throughput_kept", []float64{0.9})
	missed.Why = "switches cost more"
	met.Caveat = "of three guests"
	missed.Caveat = "of no interest"
	met.Detail = &Table{Columns: []string{"error"}}
	met.Detail.Add("3 guests", 0.0123)
	f.Rows = []Row{met, missed}
	f.Faults = []Fault{{What: "kill -9", Saw: "a | b", Recovered: true}}
	page := f.Page("h100.json")
	for _, want := range []string{
		"NVIDIA H100, driver 580, 2026-01-02", "(`share_error`) | **0.01** fraction | ≤ 0.02 | yes", "| ≥ 0.98 | **no** |",
		"`throughput_kept`: 0.9, goal ≥ 0.98. switches cost more.", "| 3 guests | 0.0123 |", `a \| b`, "## Goals met, but\n\n- `share_error`: of three guests.\n", "Not measured:", "`host_cpu`",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q:\n%s", want, page)
		}
	}
}

func TestNumbersHaveThreeDigits(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 12345.6: "12346", 123.456: "123.5", 12.3456: "12.35", 1.5: "1.5", 100: "100", 0.00123: "0.00123", 0.5: "0.5", -2.25: "-2.25", 0.000004: "4e-06", 0.999999: "1", math.Inf(1): "–",
	} {
		if got := number(v); got != want {
			t.Errorf("%v is written %q, want %q", v, got, want)
		}
	}
}

// TestPageSaysByHowManyBuilds checks that the page names the number of builds if its figures are
// from several.
func TestPageSaysByHowManyBuilds(t *testing.T) {
	for want, builds := range map[string][]string{
		"All rows are by one build of the daemon (0123456789ab)": {"0123456789ab", "0123456789ab"},
		"The rows are by 2 builds of the daemon":                 {"0123456789ab", "cdef01234567"},
		"is not known of all":                                    {"0123456789ab", ""},
	} {
		var f File
		for i, build := range builds {
			f.Rows = append(f.Rows, Row{ID: targets[i].ID, Build: build})
		}
		if page := f.Page("h200.json"); !strings.Contains(page, want) || !strings.Contains(page, "[h200.json](h200.json)") {
			t.Errorf("%v: the page does not say %q", builds, want)
		}
	}
}
