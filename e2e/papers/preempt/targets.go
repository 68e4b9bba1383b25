package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"vgpud/e2e/papers/parallel"
	"vgpud/e2e/papers/plot"
	"vgpud/gpu/soft/machine"
	"vgpud/gpu/soft/machine/blocks"
	"vgpud/mediator/vgpu/abi"
)

// target is a limit that must be met, and the value reached.
type target struct {
	Name    string  `json:"name"`
	Limit   float64 `json:"limit"`
	Reached float64 `json:"reached"` // at most Limit
	Unit    string  `json:"unit"`
	Where   string  `json:"where,omitempty"`
	Beside  string  `json:"beside,omitempty"` // what other systems reach
}

func (t *target) passed() bool { return t.Reached <= t.Limit }

// leftAlone marks a kernel for which the tuner finds no form. The cost of the cheapest form follows
// it.
const leftAlone = ", left as it is"

// evictable returns the rows of kernels that the tuner does not leave in their original form.
func evictable(rows []plot.Row) []plot.Row {
	return slices.DeleteFunc(slices.Clone(rows), func(r plot.Row) bool { return strings.Contains(r.Name, leftAlone) })
}

// overheads compares the corpus' kernels in the forms that the tuner chose, in slices, and in the
// papers' own forms if papers is set.
func overheads(all map[string]subject, length time.Duration, papers bool) (plot.Figure, error) {
	f := plot.Figure{
		Number: "0, corpus", Log: true, YLabel: "relative length",
		Title:   fmt.Sprintf("What it costs the corpus' kernels to be evictable: grids of %v, relative to the original, with what the host takes of a launch", length),
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
			form, l := s.added.amortized(k)
			flep = withHost(form, l) / original
			form = s.added.adaptive(k, time.Millisecond)
			adaptive = withHost(form, blocks.Duration(blocks.H100, k, form)) / original
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

// overheadTargets returns the targets of the corpus' figure. Kernels left in their original form
// cost nothing and don't count.
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

// urgentTarget runs FLEP's pairs in two contexts and measures how much longer an urgent kernel
// takes beside another than alone. The kernel waits until the verdict has reached the GPU, the
// other kernel has left and the context is switched. The other kernel may take as long to leave as
// the forms were chosen for. Alone, the kernel needs no switch, but it waits for the verdict that
// lets it run. The limit applies to the 95th percentile.
func (f *flep) urgentTarget(pairs [][2]int, seeds int) (target, error) {
	t := target{Name: "an urgent kernel's wait for the GPU, beyond a verdict and a context switch, 95 of 100", Limit: float64(wanted.Microseconds()), Unit: "µs"}
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
			defer func() { err = errors.Join(err, w.close()) }()
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
		return result{with.turnaround() - (alone.turnaround() + contextSwitch),
			fmt.Sprintf("%s beside %s after %v", with.program.name, batch.program.name, delay)}, nil
	})
	if err != nil {
		return t, err
	}
	slices.SortFunc(runs, func(a, b result) int { return int(a.beyond - b.beyond) })
	micros := func(r result) float64 { return float64(r.beyond) / 1000 }
	at, worst := runs[max((len(runs)*95+99)/100-1, 0)], runs[len(runs)-1]
	t.Reached, t.Where = micros(at), at.where
	t.Beside = fmt.Sprintf("half %.0f, the longest %.0f (%s)", micros(runs[len(runs)/2]), micros(worst), worst.where)
	return t, nil
}

// fairTargets returns ffs' largest deviation from 2:1 in any pair, and the fraction of the GPU that
// it lost, with the bound it was given.
func fairTargets(runs []share) []target {
	share := target{Name: "ffs with weights 2:1, share from 2/3, worst", Limit: 2, Unit: "points"}
	bounds := []float64{}
	for _, s := range runs {
		if off := 100 * math.Abs(s.whole-2.0/3); off > share.Reached {
			share.Reached, share.Where = off, fmt.Sprintf("%s, max_overhead %g %%", s.pair, 100*s.bound)
		}
		if !slices.Contains(bounds, s.bound) {
			bounds = append(bounds, s.bound)
		}
	}
	all := []target{share}
	for _, bound := range bounds {
		t := target{Name: fmt.Sprintf("ffs, lost to evictions and to waits for the host with max_overhead %g %%, worst", 100*bound), Limit: 100 * bound, Unit: "%"}
		for _, s := range runs {
			if v := 100 * (s.evictions + s.host); s.bound == bound && v > t.Reached {
				t.Reached, t.Where = v, s.pair
				t.Beside = fmt.Sprintf("with what its forms cost %.2f", 100*s.lost)
			}
		}
		all = append(all, t)
	}
	return all
}

// notesTargets compares the model with the notes.
func notesTargets(evictions int) []target {
	order := target{Name: "fitted: pairs of forms in another order than on an H100", Unit: "pairs"}
	latency := target{Name: "fitted: eviction latencies off by more than a factor of two", Unit: "forms"}
	for _, k := range notes() {
		_, all := k.compare(evictions)
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

// unfittedTargets compares the model with measurements to which nothing was fitted.
func unfittedTargets(what string, a agreement) []target {
	part := func(n, of int) float64 { return 100 * float64(n) / float64(max(of, 1)) }
	return []target{
		{"not fitted, " + what + ": pairs of forms in another order", 20, part(a.misordered, a.pairs), "%", fmt.Sprintf("%d of %d", a.misordered, a.pairs), ""},
		{"not fitted, " + what + ": eviction latencies off by more than a factor of two", 5, part(a.off, a.latencies), "%", fmt.Sprintf("%d of %d", a.off, a.latencies), ""},
	}
}

// targetText returns the table of targets.
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
