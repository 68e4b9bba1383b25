package plot

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
)

// A value's standard deviation stands beside it, and is drawn.
func TestSpread(t *testing.T) {
	f := Figure{Number: "3", Columns: []string{"what", "a", "b"}, Rows: []Row{{Name: "first", Values: []float64{1, 2}, Spread: []float64{0.25, 0}}}}
	if text := f.Text(); !strings.Contains(text, "1.000 ±0.250   2.000 ±0.000") {
		t.Error(text)
	}
	if lines := strings.Count(f.SVG(), `stroke="#444"`); lines != 1 {
		t.Errorf("%d spreads are drawn, want 1", lines)
	}
	data, err := json.Marshal(f.Rows[0])
	if err != nil || string(data) != `{"name":"first","values":[1,2],"spread":[0.25,0]}` {
		t.Errorf("%s, %v", data, err)
	}
}

var figures = []Figure{
	{Number: "1", Title: "bars & so on", Columns: []string{"what", "a", "b"}, Rows: []Row{
		{Name: "first", Values: []float64{1, math.NaN()}}, {Name: "a name that is a good deal longer than the others", Values: []float64{-2, 3}},
	}},
	{Number: "2", Title: "lines", Lines: true, Columns: []string{"x", "y"}, Rows: []Row{{Name: "1", Values: []float64{2}}, {Name: "10", Values: []float64{1000}}}, Log: true},
}

// A page is one drawing of well-formed XML, in which each figure has its room.
func TestPage(t *testing.T) {
	page := Page(figures)
	for d := xml.NewDecoder(strings.NewReader(page)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"bars &amp; so on", "translate(0 0)", fmt.Sprintf("translate(0 %d)", figures[0].height()), "polyline"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "NaN") {
		t.Error("what was not measured is drawn")
	}
	if a, b := figures[0].height(), figures[1].height(); a <= b {
		t.Errorf("%d pixels for long names, %d for none", a, b)
	}
}

// On a logarithmic axis each decade has the same room.
func TestDecades(t *testing.T) {
	ticks, low, high := figures[1].decades()
	if low != 1 || high != 1000 || len(ticks) != 4 {
		t.Errorf("%v from %v to %v", ticks, low, high)
	}
}

// TestNotANumber: a value that is not a number is null, and "-" in the table.
func TestNotANumber(t *testing.T) {
	data, err := json.Marshal(figures[0].Rows[0])
	if err != nil || string(data) != `{"name":"first","values":[1,null]}` {
		t.Errorf("%s, %v", data, err)
	}
	if text := figures[0].Text(); !strings.Contains(text, "first    1.000       -") {
		t.Error(text)
	}
}
