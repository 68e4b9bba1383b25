// Package report holds the results of the measurements on a real GPU: a JSON file, to which each
// part adds its rows, and the page made from it.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
)

// File is a file of results. All of them are from one GPU and one driver.
type File struct {
	GPU    string `json:"gpu"`
	Driver string `json:"driver"`
	// Date is the date of the newest row, as 2006-01-02.
	Date string `json:"date"`
	Rows []Row  `json:"rows"`
	// Faults are the faults injected into guests, processes and the driver.
	Faults []Fault `json:"faults,omitempty"`
}

// Row is one measurement. Ratios, shares and errors are fractions of 1.
type Row struct {
	ID    string  `json:"id"`
	Value float64 `json:"value"` // the median of the runs, or the value over all runs, as How says
	Unit  string  `json:"unit"`
	Goal  float64 `json:"goal"`
	Met   bool    `json:"met"`
	// Baseline holds the values to compare with, by name. They are measured in the same run unless
	// the name gives another source.
	Baseline map[string]float64 `json:"baseline"`
	Runs     int                `json:"runs"`
	// Spread is the largest value of a run minus the smallest.
	Spread  float64 `json:"spread"`
	Command string  `json:"command"`
	// Build identifies a build of the daemon: the beginning of its file's SHA-256.
	Build string `json:"build,omitempty"`
	// Why is the reason why the goal was missed, as found by profiling; see [File.Explain].
	Why string `json:"why,omitempty"`
	// Caveat describes what is not reached, or was not measured, although the goal is met.
	Caveat string `json:"caveat,omitempty"`
	// How describes what was measured and how. Detail holds the numbers behind the value.
	How    string `json:"how,omitempty"`
	Detail *Table `json:"detail,omitempty"`
}

// Table is a table of numbers.
type Table struct {
	Columns []string `json:"columns"` // the names of Values
	Lines   []Line   `json:"lines"`
}

// Line is a line of a table.
type Line struct {
	Name   string   `json:"name"`
	Values []Number `json:"values"`
}

// Number is a number in a table. A value that does not exist, such as the median of nothing, is NaN
// here and null in JSON.
type Number float64

// MarshalJSON implements [json.Marshaler].
func (n Number) MarshalJSON() ([]byte, error) {
	if v := float64(n); !math.IsNaN(v) && !math.IsInf(v, 0) {
		return json.Marshal(v)
	}
	return []byte("null"), nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (n *Number) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*n = Number(math.NaN())
		return nil
	}
	return json.Unmarshal(b, (*float64)(n))
}

// Add adds a line.
func (t *Table) Add(name string, values ...float64) {
	l := Line{Name: name}
	for _, v := range values {
		l.Values = append(l.Values, Number(v))
	}
	t.Lines = append(t.Lines, l)
}

// Fault is a fault that was tried.
type Fault struct {
	What string `json:"what"`
	// Saw describes what the guest and the daemon reported. Recovered reports whether everything
	// worked afterwards.
	Saw       string `json:"saw"`
	Recovered bool   `json:"recovered"`
}

// Read reads a file. It returns an empty File if there is none.
func Read(path string) (File, error) {
	var f File
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &f)
	}
	if err != nil {
		return f, fmt.Errorf("read results: %w", err)
	}
	return f, nil
}

// Merge adds the rows and faults of another run, in place of older ones of the same id or kind. A
// row keeps the older one's reason for missing its goal as long as the goal is missed and the newer
// row has no reason of its own. Merge returns an error if the results are from another GPU or
// driver.
func (f *File) Merge(from File) error {
	if len(f.Rows)+len(f.Faults) > 0 && (f.GPU != from.GPU || f.Driver != from.Driver) {
		return fmt.Errorf("the results there are of %s, driver %s, and these of %s, driver %s: give another file",
			f.GPU, f.Driver, from.GPU, from.Driver)
	}
	f.GPU, f.Driver, f.Date = from.GPU, from.Driver, from.Date
	for _, r := range from.Rows {
		if i := slices.IndexFunc(f.Rows, func(o Row) bool { return o.ID == r.ID }); i >= 0 {
			if !r.Met && r.Why == "" {
				r.Why = f.Rows[i].Why
			}
			f.Rows[i] = r
		} else {
			f.Rows = append(f.Rows, r)
		}
	}
	slices.SortFunc(f.Rows, func(a, b Row) int { return place(a.ID) - place(b.ID) })
	for _, x := range from.Faults {
		if i := slices.IndexFunc(f.Faults, func(o Fault) bool { return o.What == x.What }); i >= 0 {
			f.Faults[i] = x
		} else {
			f.Faults = append(f.Faults, x)
		}
	}
	return nil
}

// Explain records why a row's goal was missed. No program can find that out.
func (f *File) Explain(id, reason string) error {
	switch r := f.Row(id); {
	case r == nil:
		return fmt.Errorf("there is no row %q", id)
	case r.Met:
		return fmt.Errorf("row %s met its goal: %g, goal %g", id, r.Value, r.Goal)
	default:
		r.Why = reason
		return nil
	}
}

// Has reports whether there is a row of each id.
func (f *File) Has(ids []string) bool {
	for _, id := range ids {
		if f.Row(id) == nil {
			return false
		}
	}
	return true
}

// Row returns the row of an id, or nil.
func (f *File) Row(id string) *Row {
	i := slices.IndexFunc(f.Rows, func(r Row) bool { return r.ID == id })
	if i < 0 {
		return nil
	}
	return &f.Rows[i]
}

// Write replaces the file atomically.
func (f *File) Write(path string) error {
	b, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	t, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	_, err = t.Write(append(b, '\n'))
	err = errors.Join(err, t.Chmod(0o644), t.Close())
	if err == nil {
		err = os.Rename(t.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write results: %w", errors.Join(err, os.Remove(t.Name())))
	}
	return nil
}
