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

var figures = []Figure{
	{Number: "1", Title: "bars & so on", Columns: []string{"what", "a", "b"}, Rows: []Row{
		{"first", []float64{1, math.NaN()}}, {"a name that is a good deal longer than the others", []float64{-2, 3}},
	}},
	{Number: "2", Title: "lines", Lines: true, Columns: []string{"x", "y"}, Rows: []Row{{"1", []float64{2}}, {"10", []float64{1000}}}, Log: true},
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

// What is not a number is null, and "-" in the table.
func TestNotANumber(t *testing.T) {
	data, err := json.Marshal(figures[0].Rows[0])
	if err != nil || string(data) != `{"name":"first","values":[1,null]}` {
		t.Errorf("%s, %v", data, err)
	}
	if text := figures[0].Text(); !strings.Contains(text, "first    1.000       -") {
		t.Error(text)
	}
}
