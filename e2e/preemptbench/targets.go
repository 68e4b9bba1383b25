package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"vgpud/e2e/parallel"
	"vgpud/e2e/plot"
	"vgpud/gpu/soft/machine"
	"vgpud/gpu/soft/machine/blocks"
	"vgpud/mediator/vgpu/abi"
)

// target is something that must be reached, and what was.
type target struct {
	Name    string  `json:"name"`
	Limit   float64 `json:"limit"`
	Reached float64 `json:"reached"` // at most Limit
	Unit    string  `json:"unit"`
	Where   string  `json:"where,omitempty"`
	Beside  string  `json:"beside,omitempty"` // what others reach
}

func (t *target) passed() bool { return t.Reached <= t.Limit }

// leftAlone marks a kernel for which the tuner finds no form; how much the cheapest
// would cost stands behind it.
const leftAlone = ", left as it is"

// evictable are the rows of kernels that are not left as they are.
func evictable(rows []plot.Row) []plot.Row {
	return slices.DeleteFunc(slices.Clone(rows), func(r plot.Row) bool { return strings.Contains(r.Name, leftAlone) })
}

// overheads are the corpus' kernels in the forms that the tuner chose, in slices, and
// in the papers' own forms if asked for.
func overheads(all map[string]subject, length time.Duration, papers bool) (plot.Figure, error) {
	f := plot.Figure{
		Number: "0, corpus", Log: true, YLabel: "relative length",
		Title:   fmt.Sprintf("What it costs the corpus' kernels to be evictable: grids of %v, relative to the original", length),
		Paper:   "EffiSha §8.3: 4 % on average and 8 % at worst; FLEP §6.5: 2.5 % on average",
		Columns: []string{"kernel", "chosen form", "slicing, equal latency", "FLEP's form, tuned L", "EffiSha, all optimisations", "chosen: µs to leave"},
	}
	names := make([]string, 0, len(all))
	for name, s := range all {
		if len(s.added) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	rows, err := parallel.Map(len(names), func(i int) (plot.Row, error) {
		s := all[names[i]]
		k := lasting(s.model, float64(length))
		original := blocks.Duration(blocks.H100, k, blocks.Form{})
		t := choose(k, s.threads, s.added, wanted)
		latency := p50(k, t.form)
		sliced, _ := slicing(k, latency)
		flep, adaptive := math.NaN(), math.NaN()
		if _, ok := s.added[abi.PreemptPersistent]; ok && papers {
			_, l := s.added.amortized(k)
			flep = l / original
			adaptive = blocks.Duration(blocks.H100, k, s.added.adaptive(k, time.Millisecond)) / original
		}
		name := fmt.Sprintf("%s, %v %d", s.name, t.choice.Form, t.choice.Group)
		if t.choice.Form == 0 {
			name = s.name + leftAlone
			if any := chooseWithin(k, s.threads, s.added, wanted, 100); any.choice.Form != 0 {
				name += fmt.Sprintf(" (%v %d: %+.0f %%)", any.choice.Form, any.choice.Group, percent(any.length/original))
			}
		}
		return plot.Row{Name: name, Values: []float64{
			t.length / original, sliced / original, flep, adaptive, latency / 1000,
		}}, nil
	})
	f.Rows = rows
	return f, err
}

// overheadTargets are what the corpus' figure must show. Kernels that are left as
// they are cost nothing, and don't count.
func overheadTargets(f *plot.Figure) []target {
	rows := evictable(f.Rows)
	known := slices.DeleteFunc(slices.Clone(rows), func(r plot.Row) bool { return math.IsNaN(r.Values[2]) })
	beside := func(of func(rows []plot.Row, column int) float64) string {
		return fmt.Sprintf("slicing %+.1f, FLEP's form %+.1f, EffiSha's %+.1f", of(rows, 1), of(known, 2), of(known, 3))
	}
	mean := func(rows []plot.Row, c int) float64 { return percent(geomean(rows, c)) }
	most := func(rows []plot.Row, c int) float64 {
		v, _ := worst(rows, c)
		return percent(v)
	}
	v, where := worst(rows, 0)
	var better []string
	for _, r := range rows {
		if r.Values[1] <= r.Values[0] {
			better = append(better, r.Name)
		}
	}
	few := fmt.Sprintf("overhead of the chosen forms (%d of %d kernels, the others left as they are)", len(rows), len(f.Rows))
	f.Ours = fmt.Sprintf("%d kernels, of which %d are left as they are; the others: geometric mean %+.2f %% (%s), worst %+.2f %% (%s; %s); slices are better for %d (%s)",
		len(f.Rows), len(f.Rows)-len(rows), mean(rows, 0), beside(mean), percent(v), where, beside(most), len(better), strings.Join(better, "; "))
	return []target{
		{few + ", geometric mean", 1, mean(rows, 0), "%", "", beside(mean)},
		{few + ", worst", 5, percent(v), "%", where, beside(most)},
		{"the same less slicing's at equal latency, geometric mean", 0, mean(rows, 0) - mean(rows, 1), "points", "", ""},
	}
}

// urgentTarget is FLEP's pairs, but of two contexts: the urgent kernel's latency is
// at most what it takes alone, one context switch and the eviction. Alone is without
// a switch, but with the verdict that lets it run. The same verdict has the other
// evicted, so the eviction counts from when that was carried out.
func (f *flep) urgentTarget(pairs [][2]int, seeds int) (target, error) {
	t := target{Name: "urgent latency beyond alone + context switch + eviction, worst", Limit: 1, Unit: "µs"}
	t.Reached = math.Inf(-1)
	type result struct {
		beyond time.Duration
		where  string
	}
	runs, err := parallel.Map(len(pairs)*seeds, func(i int) (result, error) {
		low, high := pairs[i/seeds][0], pairs[i/seeds][1]
		delay := time.Duration(float64(f.large[low].length) * (float64(i%seeds) + 0.5) / float64(seeds+1))
		run := func(with bool, switching time.Duration) (urgent, batch *job, err error) {
			w, err := newWorld(2, options{policy: "piv", switching: switching, seed: uint64(i)})
			if err != nil {
				return nil, nil, err
			}
			batch = &job{guest: 0, program: f.large[low]}
			urgent = &job{guest: 1, program: f.small[high], priority: 9}
			if with {
				w.arrive(0, batch)
			}
			w.arrive(delay, urgent)
			w.run(machine.Never)
			return urgent, batch, nil
		}
		with, batch, err := run(true, contextSwitch)
		if err != nil {
			return result{}, err
		}
		alone, _, err := run(false, 0)
		if err != nil {
			return result{}, err
		}
		eviction := time.Duration(0)
		for _, e := range batch.gone {
			eviction = max(eviction, e-react)
		}
		return result{with.turnaround() - (alone.turnaround() + contextSwitch + eviction),
			fmt.Sprintf("%s beside %s after %v", with.program.name, batch.program.name, delay)}, nil
	})
	if err != nil {
		return t, err
	}
	for _, r := range runs {
		if us := float64(r.beyond) / 1000; us > t.Reached {
			t.Reached, t.Where = us, r.where
		}
	}
	return t, nil
}

// fairTarget is how far from 2:1 ffs was in any pair.
func fairTarget(shares []share) target {
	t := target{Name: "ffs with weights 2:1, share from 2/3, worst", Limit: 2, Unit: "points"}
	for _, s := range shares {
		if off := 100 * math.Abs(s.whole-2.0/3); off > t.Reached {
			t.Reached, t.Where = off, s.pair
		}
	}
	return t
}

// notesTargets hold the model against the notes.
func notesTargets(evictions int) []target {
	order := target{Name: "pairs of forms in another order than on an H100", Unit: "pairs"}
	latency := target{Name: "eviction latencies off by more than a factor of two", Unit: "forms"}
	for _, k := range notes() {
		_, all := k.hold(evictions)
		for _, p := range misordered(all) {
			order.Reached++
			order.Where += k.name + ": " + p + ". "
		}
		for _, l := range slow(all) {
			latency.Reached++
			latency.Where += k.name + ": " + l + ". "
		}
	}
	return []target{order, latency}
}

// targetText is the table of targets.
func targetText(all []target) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "WHAT\tAT MOST\tREACHED\tRESULT\tWHERE\tBESIDE")
	for _, t := range all {
		result := "reached"
		if !t.passed() {
			result = "missed"
		}
		fmt.Fprintf(w, "%s\t%g %s\t%.2f\t%s\t%s\t%s\n", t.Name, t.Limit, t.Unit, t.Reached, result, t.Where, t.Beside)
	}
	w.Flush()
	return b.String()
}
