package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"vgpud/e2e/papers/plot"
)

// conclusion is a claim about the figures, and whether they support it.
type conclusion struct {
	Text  string
	Holds bool
}

// figure returns the figure with the given number, or an empty one if there is none.
func (r *report) figure(number string) *plot.Figure {
	for i := range r.Figures {
		if r.Figures[i].Number == number {
			return &r.Figures[i]
		}
	}
	return &plot.Figure{Number: number}
}

// column returns a column of a figure without the rows that are means of other rows.
func (r *report) column(number string, c int) (v []float64) {
	for _, row := range r.figure(number).Rows {
		if !strings.HasPrefix(row.Name, "(") && c < len(row.Values) && !math.IsNaN(row.Values[c]) {
			v = append(v, row.Values[c])
		}
	}
	return v
}

func average(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	var sum float64
	for _, x := range v {
		sum += x / float64(len(v))
	}
	return sum
}

// most and least return the extremes of v. Like average they return NaN if v is empty.
func most(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	return slices.Max(v)
}

func least(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	return slices.Min(v)
}

// near reports whether a value is within a quarter of the paper's.
func near(here, there float64) bool { return math.Abs(here/there-1) <= 0.25 }

// falls reports whether each value is at most the one before it.
func falls(v []float64) bool {
	return slices.IsSortedFunc(v, func(a, b float64) int { return cmp.Compare(b, a) })
}

// conclude compares the figures with the papers' claims.
func (r *report) conclude() (list []conclusion) {
	says := func(holds bool, format string, args ...any) {
		list = append(list, conclusion{fmt.Sprintf(format, args...), holds})
	}
	means := func(number string, c int) float64 { return percent(geomean(r.figure(number).Rows, c)) }

	plain, all, flep := r.column("EffiSha 10", 0), means("EffiSha 10", 2), average(r.column("FLEP 17", 0))
	says(least(plain) > 10 && all > 4 && flep > 2.5,
		"The papers' own forms are dearer on an H100 than on their GPUs (EffiSha 10, FLEP 17): the plain form is %.0f to %.0f times as long as the original (there 10 on average), all of EffiSha's optimisations cost %.1f %% (there 4), FLEP's amortised form %.0f %% (there 2.5).",
		least(plain), most(plain), all, flep)

	rows := evictable(r.figure("0, corpus").Rows)
	known := slices.DeleteFunc(slices.Clone(rows), func(row plot.Row) bool { return math.IsNaN(row.Values[2]) })
	chosen, sliced := percent(geomean(rows, 0)), percent(geomean(rows, 1))
	says(chosen < sliced && chosen < percent(geomean(known, 2)) && chosen < percent(geomean(known, 3)),
		"The chosen forms are cheaper than the papers' and than slices of the same latency (0, corpus): %+.1f %% with the host's part, slices %+.1f %%, FLEP's form %+.1f %%, EffiSha's %+.1f %%.",
		chosen, sliced, percent(geomean(known, 2)), percent(geomean(known, 3)))
	says(near(average(r.column("EffiSha 11", 4)), 45), "By response time slicing costs what EffiSha found, within a quarter (EffiSha 11): at 0.0625 ms %.0f %% on average (there 45), at most %.0f %% (there 98).",
		average(r.column("EffiSha 11", 4)), most(r.column("EffiSha 11", 4)))

	var sums []float64
	fewer := true
	for c := range r.figure("EffiSha 9").Columns[min(1, len(r.figure("EffiSha 9").Columns)):] {
		v := r.column("EffiSha 9", c)
		sums = append(sums, average(v)*float64(len(v)))
		fewer = fewer && len(v) > 1 && v[len(v)-1] < v[0]
	}
	says(fewer && len(sums) > 1 && falls(sums), "Launches of higher priority are evicted less, and all less at longer waits (EffiSha 9).")
	piv, dprr := r.column("EffiSha 12", 0), r.column("EffiSha 12", 1)
	says(most(append(slices.Clone(piv), dprr...)) < 5 && average(dprr) > average(piv), "Scheduling costs less than 5 %%, dprr's more than piv's (EffiSha 12): %.1f and %.1f %% on average.", average(dprr), average(piv))
	byDefault, withPIV, withDPRR := average(r.column("EffiSha 14b", 0)), average(r.column("EffiSha 14b", 1)), average(r.column("EffiSha 14b", 2))
	says(withPIV < byDefault/2 && withDPRR < byDefault/2, "With priorities by SJF turnarounds are less than half the default's on average (EffiSha 14b): %.1f under piv, %.1f under dprr, %.1f by default.", withPIV, withDPRR, byDefault)
	says(least(r.column("EffiSha 15", 1)) > most(r.column("EffiSha 15", 0)), "Throughput under piv is above the default's whatever the priorities (EffiSha 15): at least %.2f, and %.2f.", least(r.column("EffiSha 15", 1)), most(r.column("EffiSha 15", 0)))

	says(near(average(r.column("FLEP 8", 0)), 10.1), "Urgent kernels are faster by about what FLEP found, within a quarter (FLEP 8): %.1f times on average and %.1f at most (there 10.1 and 24.2).", average(r.column("FLEP 8", 0)), most(r.column("FLEP 8", 0)))
	delays := r.column("FLEP 9", 0)
	says(falls(delays) && len(delays) > 0 && math.Abs(delays[len(delays)-1]-1) < 0.05, "That falls with the delay, to 1 when the other kernel is over (FLEP 9).")
	says(near(average(r.column("FLEP 10", 0)), 8) && average(r.column("FLEP 11", 0)) < 5.4, "Pairs of equal priority have an ANTT that is better by %.1f times (there 8) for %.1f %% of the throughput (there 5.4; FLEP 10, 11).", average(r.column("FLEP 10", 0)), average(r.column("FLEP 11", 0)))
	says(near(average(r.column("FLEP 12", 0)), 6.6), "Triples have an ANTT that is better by about as much as there, within a quarter (FLEP 12): %.1f times (there 6.6); by reordering alone %+.1f %% (there 2.3).", average(r.column("FLEP 12", 0)), percent(average(r.column("FLEP 12", 1))))
	says(math.Abs(average(r.column("FLEP 13", 0))-2.0/3) < 0.01 && most(r.column("FLEP 13", 3))-least(r.column("FLEP 13", 2)) < 0.1, "Weights of 2:1 share the GPU so, in any tenth of a second (FLEP 13): %.3f on average, %.3f to %.3f.",
		average(r.column("FLEP 13", 0)), least(r.column("FLEP 13", 2)), most(r.column("FLEP 13", 3)))
	says(most(r.column("FLEP 14", 1)) <= 10 && most(r.column("FLEP 14", 3)) <= 2, "What ffs loses to evictions and to waits for the host is within its bound (FLEP 14): at most %.1f %% of 10 %%, and %.2f %% of 2 %%. With what the forms cost anyway, at most %.1f and %.1f %% of the throughput is lost.",
		most(r.column("FLEP 14", 1)), most(r.column("FLEP 14", 3)), most(r.column("FLEP 14", 0)), most(r.column("FLEP 14", 2)))
	says(average(r.column("FLEP 15", 1)) < average(r.column("FLEP 15", 0)), "Spatial eviction costs less than temporal (FLEP 15): %.2f and %.2f %% on average; the paper has 31 %% less.", average(r.column("FLEP 15", 1)), average(r.column("FLEP 15", 0)))
	says(near(max(most(r.column("FLEP 16", 0)), most(r.column("FLEP 16", 1))), 2.22), "More SMs make a small urgent kernel faster as they do there, within a quarter (FLEP 16): at most %.2f times (there 2.22).", max(most(r.column("FLEP 16", 0)), most(r.column("FLEP 16", 1))))
	says(average(r.column("FLEP 7", 0)) <= 6.9, "Durations are foreseen as well as there (FLEP 7): errors of %.1f %% on average (there 6.9).", average(r.column("FLEP 7", 0)))
	return list
}

// conclusionText lists all conclusions, each marked as holding or not.
func (r *report) conclusionText() string {
	var b strings.Builder
	b.WriteString("## What the papers found, and whether it comes out here\n\nEach line is computed from the figures below.\n\n")
	for _, c := range r.conclude() {
		holds := "yes"
		if !c.Holds {
			holds = "**no**"
		}
		fmt.Fprintf(&b, "- %s: %s\n", holds, c.Text)
	}
	b.WriteString("\n")
	return b.String()
}
