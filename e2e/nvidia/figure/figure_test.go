package figure

import (
	"math"
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
		"spread":                        {Spread([]float64{4, 1, 9}), 8},
		"spread of one":                 {Spread([]float64{4}), 0},
		"quantile: half of three":       {Quantile([]float64{3, 1, 2}, 0.5), 2},
		"quantile: 99 of 100":           {Quantile(count(100), 0.99), 99},
		"quantile: all":                 {Quantile(count(100), 1), 100},
		"quantile: none":                {Quantile(count(100), 0), 1},
		"geometric mean":                {GeoMean([]float64{2, 8}), 4},
		"geometric mean of opposites":   {GeoMean([]float64{0.5, 2}), 1},
		"geometric mean of overheads":   {GeoMeanOverhead([]float64{1, -0.5}), 0},
		"overhead below 0":              {Overheads([]float64{90}, []float64{100})[0], -0.1},
		"share error: as entitled":      {ShareError([]time.Duration{1 * ms, 2 * ms, 4 * ms}, []float64{1, 2, 4}), 0},
		"share error: equal for 1:3":    {ShareError([]time.Duration{ms, ms}, []float64{1, 3}), 0.25},
		"share error: nobody ran":       {ShareError([]time.Duration{0, 0}, []float64{1, 3}), nan},
		"accounting error, too little":  {AccountingError(90*ms, 100*ms, time.Second), 0.01},
		"accounting error, too much":    {AccountingError(110*ms, 100*ms, time.Second), 0.01},
		"relative error":                {RelativeError(90*ms, 100*ms), 0.1},
		"fair already":                  {float64(Fair(100*ms, 10*ms, []time.Duration{10 * ms, 10 * ms})), float64(100 * ms)},
		"fair: it got twice its part":   {float64(Fair(100*ms, 20*ms, []time.Duration{5 * ms, 5 * ms})), float64(200 * ms)},
		"fair: it got half its part":    {float64(Fair(100*ms, 5*ms, []time.Duration{15 * ms})), float64(50 * ms)},
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

func TestStandstill(t *testing.T) {
	for name, c := range map[string]struct {
		blocks []Gap
		want   Gap
		ok     bool
	}{
		"all stop and go on":         {[]Gap{{10, 100}, {12, 99}, {11, 104}}, Gap{12, 104}, true},
		"one went on":                {[]Gap{{10, 100}, {12, 99}, {200, 201}}, Gap{}, false},
		"one had its gap before":     {[]Gap{{10, 100}, {12, 99}, {1, 3}}, Gap{}, false},
		"nobody says anything of it": {nil, Gap{}, false},
	} {
		g, ok := Standstill(c.blocks)
		if ok != c.ok || ok && g != c.want {
			t.Errorf("%s: %v %v, want %v %v", name, g, ok, c.want, c.ok)
		}
	}
}
