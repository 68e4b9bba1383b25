// Package goals compares the rows of written results with what they are to reach, for the programs
// that redo the papers' figures.
package goals

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"vgpud/e2e/nvidia/report"
)

// Row is a line of the results: a number beside the goal and the paper's.
type Row struct {
	ID string `json:"id"`
	// Value is nil if it was not measured.
	Value *float64 `json:"value"`
	Unit  string   `json:"unit"`
	Goal  string   `json:"goal"`
	// Met is nil if it was not measured.
	Met   *bool  `json:"met"`
	Paper string `json:"paper"`
	// Runs is how many runs the value is from, and Spread its standard deviation over seeds.
	Runs   int     `json:"runs"`
	Spread float64 `json:"spread"`
	// Half and Double are the value under other assumptions, at half and at double of what the
	// program says, where the goal is to hold for them too.
	Half   *float64 `json:"half,omitempty"`
	Double *float64 `json:"double,omitempty"`
	Beside string   `json:"beside,omitempty"`
	// Baseline and Detail are what was measured in the same run on a GPU.
	Baseline map[string]float64 `json:"baseline,omitempty"`
	Detail   *report.Table      `json:"detail,omitempty"`
	Command  string             `json:"command"`
	// Why is why a goal was missed, or a value not measured.
	Why string `json:"why"`
}

// Missed reports whether a row was measured and does not reach its goal.
func (r *Row) Missed() bool { return r.Met != nil && !*r.Met }

// Goal is what a row must reach.
type Goal struct {
	ID, Unit string
	Limit    float64
	AtMost   bool
	// Says is the goal in words, if that is more than the limit.
	Says  string
	Paper string
	// From is the id that e2e/nvidia gives to the row, if it is another.
	From string
	// Live is set for what is measured with processes or on real GPUs, and may not have been yet.
	Live bool
}

// String returns the goal as it is written.
func (g *Goal) String() string {
	switch {
	case g.Says != "":
		return g.Says
	case g.AtMost:
		return "<= " + number(g.Limit)
	}
	return ">= " + number(g.Limit)
}

// Holds reports whether a value reaches the goal.
func (g *Goal) Holds(v float64) bool {
	if g.AtMost {
		return v <= g.Limit
	}
	return v >= g.Limit
}

// Row returns the row of a value over runs. A value that is not a number was not measured.
func (g *Goal) Row(value, spread float64, runs int, command string) Row {
	r := Row{ID: g.ID, Unit: g.Unit, Goal: g.String(), Paper: g.Paper, Runs: runs, Spread: Round(spread), Command: command}
	if !math.IsNaN(value) && !math.IsInf(value, 0) {
		v, met := Round(value), g.Holds(value)
		r.Value, r.Met = &v, &met
	}
	return r
}

// Set is the goals of a program in order, the files that their rows are in, and the pages that
// explain what is missed: the file "case.json" of a directory, and "docs/results/case.md".
type Set struct {
	Goals           []Goal
	Files, Profiles []string
}

// Of returns the goal of a row, or nil.
func (s *Set) Of(id string) *Goal {
	for i := range s.Goals {
		if s.Goals[i].ID == id {
			return &s.Goals[i]
		}
	}
	return nil
}

// read returns the rows of the files in a directory. A file may be absent.
func (s *Set) read(dir string) (map[string]Row, error) {
	rows := make(map[string]Row)
	for _, name := range s.Files {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		var page struct {
			Rows []Row `json:"rows"`
		}
		if err := json.Unmarshal(data, &page); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, r := range page.Rows {
			rows[r.ID] = r
		}
	}
	return rows, nil
}

// Check prints the rows of written results, one a line, and how many goals are met, missed and
// unmeasured. It returns an error if a row is absent, or missed without a why that names a profile.
func (s *Set) Check(w io.Writer, dir string) error {
	rows, err := s.read(dir)
	if err != nil {
		return err
	}
	var met, missed, unmeasured int
	var wrong []string
	for i := range s.Goals {
		g := &s.Goals[i]
		r, ok := rows[g.ID]
		switch {
		case !ok && g.Live:
			r = Row{ID: g.ID, Unit: g.Unit, Goal: g.String(), Paper: g.Paper, Why: "not measured yet"}
		case !ok:
			wrong = append(wrong, g.ID+" is absent")
			continue
		}
		line := json.NewEncoder(w)
		line.SetEscapeHTML(false)
		if err := line.Encode(r); err != nil {
			return err
		}
		switch {
		case r.Met == nil:
			unmeasured++
			if r.Why == "" {
				wrong = append(wrong, g.ID+" is not measured, without a why")
			}
		case *r.Met:
			met++
		default:
			missed++
			if !s.explained(r.Why, dir) {
				wrong = append(wrong, g.ID+" is missed, without a why that names a profile")
			}
		}
	}
	fmt.Fprintf(w, `{"met":%d,"missed":%d,"unmeasured":%d}`+"\n", met, missed, unmeasured)
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	return nil
}

// explained reports whether a why names a profile that is in the directory.
func (s *Set) explained(why, dir string) bool {
	for _, p := range s.Profiles {
		if _, err := os.Stat(filepath.Join(dir, path.Base(p))); err == nil && strings.Contains(why, p) {
			return true
		}
	}
	return false
}

// Round drops what is beyond the fourth digit after the point.
func Round(v float64) float64 { return math.Round(v*1e4) / 1e4 }

// number writes a number as short as it is.
func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// Misses tells for each row that misses its goal why it does, for a page.
func Misses(rows []Row) string {
	var b strings.Builder
	for _, row := range rows {
		if row.Missed() {
			fmt.Fprintf(&b, "\n`%s` is missed: %s\n", row.ID, row.Why)
		}
	}
	return b.String()
}

// Write writes results to a file.
func Write(path string, results any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(results); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}
