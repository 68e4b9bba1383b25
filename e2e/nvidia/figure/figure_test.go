package figure

import (
	"math"
	"slices"
	"testing"
	"time"
)

const ms = time.Millisecond

func near(a, b float64) bool {
	return a == b || math.Abs(a-b) < 1e-9 || math.IsNaN(a) && math.IsNaN(b)
}

func TestNumbers(t *testing.T) {
	nan := math.NaN()
	for name, c := range map[string]struct{ got, want float64 }{
		"median of an odd number":       {Median([]float64{9, 1, 2}), 2},
		"median of an even number":      {Median([]float64{4, 1, 2, 9}), 3},
		"median of nothing":             {Median(nil), nan},
		"median with one unknown":       {Median([]float64{4, nan, 2}), nan},
		"spread with one unknown":       {Spread([]float64{4, nan, 2}), nan},
		"mean":                          {Mean([]float64{4, 1, 10}), 5},
		"mean of nothing":               {Mean(nil), nan},
		"spread":                        {Spread([]float64{4, 1, 9}), 8},
		"spread of one":                 {Spread([]float64{4}), 0},
		"quantile: half of three":       {Quantile([]float64{3, 1, 2}, 0.5), 2},
		"quantile: 99 of 100":           {Quantile(count(100), 0.99), 99},
		"quantile: all":                 {Quantile(count(100), 1), 100},
		"quantile: none":                {Quantile(count(100), 0), 1},
		"geometric mean":                {GeoMean([]float64{2, 8}), 4},
		"geometric mean of opposites":   {GeoMean([]float64{0.5, 2}), 1},
		"geometric mean of overheads":   {GeoMeanOverhead([]float64{1, -0.5}), 0},
		"geometric mean of losses":      {GeoMeanLoss([]float64{3, -0.5}), 1},
		"overhead below 0":              {Overheads([]float64{90}, []float64{100})[0], -0.1},
		"share error: as entitled":      {ShareError([]time.Duration{1 * ms, 2 * ms, 4 * ms}, []float64{1, 2, 4}), 0},
		"share error: equal for 1:3":    {ShareError([]time.Duration{ms, ms}, []float64{1, 3}), 0.25},
		"share error: nobody ran":       {ShareError([]time.Duration{0, 0}, []float64{1, 3}), nan},
		"accounting error, too little":  {AccountingError(90*ms, 100*ms, time.Second), 0.01},
		"accounting error, too much":    {AccountingError(110*ms, 100*ms, time.Second), 0.01},
		"relative error":                {RelativeError(90*ms, 100*ms), 0.1},
		"fair already":                  {float64(Fair(10*ms, 100*ms, 10*ms, []time.Duration{10 * ms, 10 * ms})), float64(100 * ms)},
		"fair: it got twice its part":   {float64(Fair(10*ms, 100*ms, 20*ms, []time.Duration{5 * ms, 5 * ms})), float64(200 * ms)},
		"fair: it got half its part":    {float64(Fair(10*ms, 100*ms, 5*ms, []time.Duration{15 * ms})), float64(50 * ms)},
		"fair: not faster than alone":   {float64(Fair(60*ms, 100*ms, 5*ms, []time.Duration{15 * ms})), float64(60 * ms)},
		"distance: fair":                {Distance([]time.Duration{ms, 2 * ms}, []time.Duration{ms, 2 * ms}), 1},
		"distance: too fast, too slow":  {Distance([]time.Duration{ms, 2 * ms}, []time.Duration{2 * ms, ms}), 2},
		"distance: of two, one is fair": {Distance([]time.Duration{ms, 4 * ms}, []time.Duration{ms, ms}), 2},
	} {
		if !near(c.got, c.want) {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
}

func count(n int) (v []float64) {
	for i := range n {
		v = append(v, float64(n-i))
	}
	return v
}

func TestMicros(t *testing.T) {
	if got := Micros([]time.Duration{1500}); len(got) != 1 || got[0] != 1.5 {
		t.Errorf("1500 ns are %v µs", got)
	}
}

// TestTogetherHasMediansOfProgramsAndRuns has programs whose medians are as expected although no
// run has the expected time for two of them.
func TestTogetherHasMediansOfProgramsAndRuns(t *testing.T) {
	one, two, none := Pair{[]float64{2, 4, 8}, []float64{4, 4, 4}}, Pair{[]float64{3, 6, 3}, []float64{3, 2, 6}}, Pair{nil, []float64{1, 1, 1}}
	overhead := func(took, with []float64) float64 { return GeoMeanOverhead(Overheads(took, with)) }
	for name, c := range map[string]struct {
		programs []Pair
		number   func(took, with []float64) float64
		all      float64
		runs     []float64
	}{
		"distances":                   {[]Pair{one, none, two}, Distance[float64], 1, []float64{math.Sqrt2, math.Sqrt(3), 2}},
		"overheads":                   {[]Pair{one, none, two}, overhead, 0, []float64{math.Sqrt(0.5) - 1, math.Sqrt(3) - 1, 0}},
		"one run, compared with more": {[]Pair{{[]float64{12}, []float64{3, 4, 5}}}, Distance[float64], 3, []float64{4}},
		"one has a run less":          {[]Pair{one, {[]float64{2, 1}, []float64{1, 1}}}, Distance[float64], math.Sqrt(1.5), []float64{2, 1}},
		"nothing of anybody":          {[]Pair{none}, Distance[float64], math.NaN(), nil},
		"nobody":                      {nil, overhead, math.NaN(), nil},
	} {
		all, runs := Together(c.programs, c.number)
		if !near(all, c.all) || !slices.EqualFunc(runs, c.runs, near) {
			t.Errorf("%s: %v, by run %v; want %v, %v", name, all, runs, c.all, c.runs)
		}
	}
}

func TestStandstill(t *testing.T) {
	for name, c := range map[string]struct {
		blocks []Gap
		want   Still
		ok     bool
	}{
		"all stop and go on":         {[]Gap{{10, 100}, {12, 99}, {11, 104}}, Still{12, 99, 104}, true},
		"of one block":               {[]Gap{{10, 100}}, Still{10, 100, 100}, true},
		"one went on":                {[]Gap{{10, 100}, {12, 99}, {200, 201}}, Still{}, false},
		"one had its gap before":     {[]Gap{{10, 100}, {12, 99}, {1, 3}}, Still{}, false},
		"nobody says anything of it": {nil, Still{}, false},
	} {
		g, ok := Standstill(c.blocks)
		if ok != c.ok || ok && g != c.want {
			t.Errorf("%s: %v %v, want %v %v", name, g, ok, c.want, c.ok)
		}
	}
}
