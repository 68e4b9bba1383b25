// Package report is what the measurements on a real GPU come to: a file of JSON that
// each part adds its rows to, and the page that is made of it.
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

// File is a file of results. All of it is from one GPU and one driver.
type File struct {
	GPU    string `json:"gpu"`
	Driver string `json:"driver"`
	// Date is of the newest row: 2006-01-02.
	Date string `json:"date"`
	Rows []Row  `json:"rows"`
	// Faults are what was done to guests, processes and the driver on purpose.
	Faults []Fault `json:"faults,omitempty"`
}

// Row is one measurement. Ratios, shares and errors are fractions of 1.
type Row struct {
	ID    string  `json:"id"`
	Value float64 `json:"value"` // the median of the runs, or of all together, as How says
	Unit  string  `json:"unit"`
	Goal  float64 `json:"goal"`
	Met   bool    `json:"met"`
	// Baseline is what Value is to be compared with, by name, measured in the same
	// run unless the name says where it is from.
	Baseline map[string]float64 `json:"baseline"`
	Runs     int                `json:"runs"`
	// Spread is the largest of what the runs come to each less the smallest.
	Spread  float64 `json:"spread"`
	Command string  `json:"command"`
	// Build tells builds of the daemon apart: the beginning of its file's SHA-256.
	Build string `json:"build,omitempty"`
	// Why says why the goal was missed, as profiling found it; see [File.Explain].
	Why string `json:"why,omitempty"`
	// Caveat is what is not met, or was not measured, though the goal is met.
	Caveat string `json:"caveat,omitempty"`
	// How says what was measured and how, and Detail what lies behind the value.
	How    string `json:"how,omitempty"`
	Detail *Table `json:"detail,omitempty"`
}

// Table is numbers by name.
type Table struct {
	Columns []string `json:"columns"` // of Values
	Lines   []Line   `json:"lines"`
}

// Line is a line of a table.
type Line struct {
	Name   string   `json:"name"`
	Values []Number `json:"values"`
}

// Number is a number in a table. What is none, such as the median of nothing, is NaN
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

// Fault is one that was tried.
type Fault struct {
	What string `json:"what"`
	// Saw is what the guest and the daemon said, and Recovered whether everything
	// went on afterwards as it should.
	Saw       string `json:"saw"`
	Recovered bool   `json:"recovered"`
}

// Read reads a file; one that there is not is empty.
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

// Merge takes rows and faults of another run in, in place of older ones of the same
// id or kind. The reason why an older one missed its goal stays as long as the goal is
// missed and nothing else is said. Results of another GPU or driver can't be merged.
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

// Explain notes why a row's goal was missed, which no program finds out.
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

// Row is the row of an id, or nil.
func (f *File) Row(id string) *Row {
	i := slices.IndexFunc(f.Rows, func(r Row) bool { return r.ID == id })
	if i < 0 {
		return nil
	}
	return &f.Rows[i]
}

// Write writes the file, which is there as a whole or as it was before.
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
