package main

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestFrontier tests that the GPU is the less idle the more GPU time the program gets, and that dfq
// is near what suspending the program alone comes to.
func TestFrontier(t *testing.T) {
	few := applications(t)[:4]
	f, err := gate(few, 5*time.Second, 1)
	if err != nil {
		t.Fatal(err)
	}
	c, err := compete(few, schemes[len(schemes)-1:], 5*time.Second, cudaChannels, 1)
	if err != nil {
		t.Fatal(err)
	}
	last := math.Inf(1)
	for _, distance := range []float64{-1, 0, 0.2, 0.5} {
		if idle := f.idleAt(distance); idle >= last || idle <= 0 {
			t.Errorf("idle for %.4f at a distance of %v, and for %.4f nearer", idle, distance, last)
		} else {
			last = idle
		}
	}
	// Each program has the same distance here, and each its own there.
	var idle float64
	for i := range few {
		r := c.results[i][1]
		idle += f[i:i+1].idleAt(math.Log2(r.gpu)) / float64(len(few))
	}
	if dfq, _ := c.each(1, func(r fairness) float64 { return r.idle }); math.Abs(dfq-idle) > 0.005 {
		t.Errorf("dfq leaves the GPU idle for %.4f, and suspending the program alone for %.4f", dfq, idle)
	}
}

// TestFrontierText tests that the conclusion follows from the numbers.
func TestFrontierText(t *testing.T) {
	f := frontier{{{gpu: 1, idle: 0.14}, {gpu: 2, idle: 0.12}}}
	for want, idle := range map[string]float64{"can't be ahead": 12.9, "could be ahead": 13.1} {
		g := group{channels: 12, contests: []contest{{name: distanceContest}, {name: idleContest}}}
		for range schemes {
			g.contests[0].values = append(g.contests[0].values, 0.5)
			g.contests[1].values = append(g.contests[1].values, idle)
		}
		if text := f.text([]group{g}); !strings.Contains(text, want) || !strings.Contains(text, "13.000") {
			t.Errorf("published schemes idle for %v %%: want %q in\n%s", idle, want, text)
		}
	}
}

// TestFrontierTextOfGroups tests that the last conclusion joins the nearest scheme of one group with
// the busiest of another.
func TestFrontierTextOfGroups(t *testing.T) {
	f := frontier{{{gpu: 1, idle: 0.14}, {gpu: 2, idle: 0.12}}}
	var groups []group
	for _, v := range []struct{ distance, idle float64 }{{0.2, 13.7}, {0.5, 13.1}} {
		g := group{contests: []contest{{name: distanceContest}, {name: idleContest}}}
		for range schemes {
			g.contests[0].values = append(g.contests[0].values, v.distance)
			g.contests[1].values = append(g.contests[1].values, v.idle)
		}
		groups = append(groups, g)
	}
	lines := strings.Split(strings.TrimSpace(f.text(groups)), "\n")
	for i, want := range []string{"could", "could", "can't"} {
		if line := lines[len(lines)-3+i]; !strings.Contains(line, want+" be ahead in both") {
			t.Errorf("want %q in %q", want, line)
		}
	}
}

// TestReleased tests that a scheme that its authors left switched off does not count.
func TestReleased(t *testing.T) {
	c := contest{name: "x"}
	for _, s := range schemes {
		v := 2.0
		if s.off || !s.published {
			v = 1
		}
		c.values = append(c.values, v)
	}
	worse := c
	worse.values = []float64{2, 1, 2, 1, 2, 1, 1.5}
	if ahead, names := released([]contest{c, worse}); ahead != 1 || strings.Join(names, ", ") != "NEON publ., LoGA-CL publ." {
		t.Errorf("ahead in %d of two, of %v", ahead, names)
	}
}

// TestShortfalls checks that the report says where dfq is not ahead of what was published, by how much,
// and against what deviation.
func TestShortfalls(t *testing.T) {
	c := contest{name: "idle", values: make([]float64, len(schemes)), spread: make([]float64, len(schemes))}
	for i := range schemes {
		c.values[i], c.spread[i] = 9, 0.3
	}
	last := len(schemes) - 1
	c.values[last], c.spread[last] = 5, 0.4
	if got := shortfalls([]contest{c}); !strings.Contains(got, "ahead of all") {
		t.Errorf("ahead of all: %q", got)
	}
	c.values[1] = 4 // NEON, as published
	worst := contest{name: "worst", values: slices.Clone(c.values), spread: slices.Repeat([]float64{math.NaN()}, len(schemes))}
	drawn := c
	drawn.name, drawn.drawn = "drawn", true
	want := "Not ahead of NEON publ. in \"idle\": by 1.000, 2.0 times the standard deviation of both together.\n" +
		"Not ahead of NEON publ. in \"worst\": by 1.000.\n" +
		"Not ahead of NEON publ. in \"drawn\": by 1.000.\n"
	if diff := cmp.Diff(want, shortfalls([]contest{c, worst, drawn})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestSpread checks that a deviation is that of the seeds' means, not of the loads.
func TestSpread(t *testing.T) {
	if got := spread(map[uint64][]float64{0: {1, 3}, 1: {2, 2}}); got != 0 {
		t.Errorf("seeds with the same mean: %v", got)
	}
	if got := spread(map[uint64][]float64{0: {1, 3}, 1: {4}, 2: {6}}); math.Abs(got-2) > 1e-9 {
		t.Errorf("means 2, 4 and 6: %v", got)
	}
}
