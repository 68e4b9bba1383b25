// Package plot draws the redone figures of papers: as a table for terminals and as an SVG drawing,
// with the paper's numbers beside the new ones.
package plot

import (
	"encoding/json"
	"math"
)

// Figure is one figure, redone.
type Figure struct {
	Number  string   `json:"number"` // "7a"
	Title   string   `json:"title"`
	Paper   string   `json:"paper"`          // what the paper's text gives, and where
	Ours    string   `json:"ours,omitempty"` // the same of ours
	Lines   bool     `json:"-"`              // drawn as lines over x, else as bars
	XLabel  string   `json:"x_label,omitempty"`
	YLabel  string   `json:"y_label,omitempty"`
	Columns []string `json:"columns"` // of the table, the first being the rows'
	Rows    []Row    `json:"rows"`
	// Log draws the values on a logarithmic axis; those must be above 0.
	Log bool `json:"-"`
}

// Row is a row of the table: a group of bars, or an x with a point of each line.
type Row struct {
	Name   string    `json:"name"`
	Values []float64 `json:"values"`
	// Spread, if set, is each value's standard deviation.
	Spread []float64 `json:"spread,omitempty"`
}

// spread returns a value's standard deviation, and reports whether it is known.
func (r *Row) spread(column int) (d float64, ok bool) {
	if column >= len(r.Spread) || math.IsNaN(r.Values[column]) || math.IsNaN(r.Spread[column]) {
		return 0, false
	}
	return r.Spread[column], true
}

// MarshalJSON writes what is not a number as null.
func (r Row) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Name   string `json:"name"`
		Values []any  `json:"values"`
		Spread []any  `json:"spread,omitempty"`
	}{r.Name, numbers(r.Values), numbers(r.Spread)})
}

// numbers are values, null in the place of what is not a number.
func numbers(values []float64) []any {
	all := make([]any, len(values))
	for i, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			all[i] = v
		}
	}
	return all
}
