package main

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"vgpud/accounting"
	"vgpud/e2e/papers/parallel"
	"vgpud/fairshare"
	"vgpud/gpu/soft/sim"
)

// scenario is a load of guests on which targets are checked.
type scenario struct {
	name    string
	tenants []tenant
	longest time.Duration // kernel
	seed    uint64
}

// scenarios returns 1 to 16 guests: throttles of 10 to 100 % load, applications of the corpus that
// always have work, and both. Weights are 1, 2 and 4.
func scenarios(apps []application, counts []int, seeds int) (all []scenario) {
	for _, n := range counts {
		for seed := range uint64(seeds) {
			for _, kind := range []string{"throttle", "corpus", "mixed"} {
				s := scenario{name: fmt.Sprintf("%s, %d guests, seed %d", kind, n, seed), seed: seed}
				r := rand.New(rand.NewPCG(seed, uint64(n)))
				for i := range n {
					weight := []float64{1, 2, 4}[r.IntN(3)]
					var load func() sim.Load
					if kind == "corpus" || kind == "mixed" && i%2 == 0 {
						app := apps[r.IntN(len(apps))]
						load = app.load(4)
						s.longest = max(s.longest, app.longest())
					} else {
						length := time.Duration(100+r.IntN(2900)) * time.Microsecond
						part := float64(1+(i+r.IntN(10))%10) / 10
						load = func() sim.Load { return sim.Duty("throttle", length, part) }
						s.longest = max(s.longest, length)
					}
					s.tenants = append(s.tenants, tenant{load: load, weight: weight})
				}
				all = append(all, s)
			}
		}
	}
	return all
}

// target is something that must be reached, and the result.
type target struct {
	name  string
	limit string
	worst float64 // the largest value, in points or parts
	mean  float64
	over  int // runs beyond the limit
	runs  int
	where string // the worst run
	// kernel is the shortest of the longest kernels of the runs beyond the limit.
	kernel time.Duration
	// baseline means that it is another scheme's, which need not reach it.
	baseline bool
	unit     string
}

// check adds one run's value, with its own limit. kernel is the length of its longest kernel.
func (t *target) check(value, limit float64, where string, kernel time.Duration) {
	t.runs++
	t.mean += (value - t.mean) / float64(t.runs)
	if value > limit {
		if t.over++; t.over == 1 || kernel < t.kernel {
			t.kernel = kernel
		}
	}
	if value > t.worst {
		t.worst, t.where = value, where
	}
}

// passed reports whether all runs were within the limit.
func (t *target) passed() bool { return t.over == 0 }

// verdict returns the target's last column.
func (t *target) verdict() string {
	switch {
	case t.baseline:
		return fmt.Sprintf("beyond it in %d of %d", t.over, t.runs)
	case t.passed():
		return "reached"
	}
	return fmt.Sprintf("missed in %d of %d", t.over, t.runs)
}

// sooner is a shorter period for a record of context switches than the default.
const sooner = 10 * time.Millisecond

// targets runs all scenarios under each accounting and policy of the product.
func targets(all []scenario, length time.Duration) ([]target, error) {
	const (
		full = iota
		share
		own
		measuredSecond
		measuredSooner
		polledWhole
		count
	)
	result := make([]target, count)
	result[full] = target{name: "accounting, polling all the time: share of each guest", limit: "0.1 points", unit: "points"}
	result[share] = target{name: "accounting, polling 1:5: share of each guest", limit: "2 points", unit: "points"}
	result[own] = target{name: "accounting, polling 1:5: of its own time, guests with 10 % or more", limit: "5 %", unit: "%"}
	result[measuredSecond] = target{name: "dfq, quiet time measured: share over any second", limit: "3 points", unit: "points"}
	result[measuredSooner] = target{name: fmt.Sprintf("the same in rounds of %v", sooner), limit: "3 points", unit: "points"}
	result[polledWhole] = target{name: "dfq, polling alone: share over 10 s", limit: "1.5 points + a kernel", unit: "points"}
	type job struct {
		s      scenario
		policy string
		full   bool
		period time.Duration // of a record of context switches; 0 if the GPU is polled
	}
	var jobs []job
	for _, s := range all {
		jobs = append(jobs, job{s: s, policy: "none", full: true}, job{s: s, policy: "none"}, job{s: s, policy: "dfq"},
			job{s: s, policy: "dfq", period: accounting.RecorderConfig{}.WithDefaults().Period}, job{s: s, policy: "dfq", period: sooner})
	}
	outs, err := parallel.Map(len(jobs), func(i int) (*outcome, error) {
		j := jobs[i]
		e := experiment{tenants: j.s.tenants, policy: j.policy, seed: j.s.seed, length: length, watch: accounting.Config{Full: j.full}}
		if j.period > 0 { // as where the hardware records its context switches: nothing goes unwatched, and nothing is polled
			e.watch, e.ideal = accounting.RecorderConfig{Period: j.period}.Watch(), true
		}
		return e.run()
	})
	if err != nil {
		return nil, err
	}
	for i, out := range outs {
		j := jobs[i]
		kernel := 100 * j.s.longest.Seconds()
		switch {
		case j.full:
			points, _ := accounted(out)
			result[full].check(points, 0.1, j.s.name, j.s.longest)
		case j.policy == "none":
			points, ofOwn := accounted(out)
			result[share].check(points, 2, j.s.name, j.s.longest)
			result[own].check(ofOwn, 5, j.s.name, j.s.longest)
		case j.period == sooner:
			result[measuredSooner].check(worstSecond(out, j.s.tenants), 3, j.s.name, j.s.longest)
		case j.period > 0:
			result[measuredSecond].check(worstSecond(out, j.s.tenants), 3, j.s.name, j.s.longest)
		default:
			result[polledWhole].check(unfair(out.whole, j.s.tenants), 1.5+kernel/out.length.Seconds(), j.s.name, j.s.longest)
		}
	}
	return result, nil
}

// sharing is the result of all scenarios under one of figure 11's schemes.
type sharing struct {
	second target  // share over any second
	idle   float64 // the part of the time in which the GPU executed nothing, in the mean
	// offs and idles have the same by seed, in points and parts, for the deviation of their means.
	offs, idles map[uint64][]float64
}

// unshared runs all scenarios without a scheduler.
func unshared(all []scenario, length time.Duration) (sharing, error) {
	outs, err := parallel.Map(len(all), func(i int) (*outcome, error) {
		return experiment{tenants: all[i].tenants, policy: "none", watch: ours, seed: all[i].seed, length: length}.run()
	})
	var free sharing
	for i, out := range outs {
		if err == nil {
			free.add(out, &all[i], len(all))
		}
	}
	return free, err
}

// add adds one of so many runs.
func (s *sharing) add(out *outcome, of *scenario, runs int) {
	off := worstSecond(out, of.tenants)
	s.second.check(off, 5+100*of.longest.Seconds(), of.name, of.longest)
	idle := float64(out.idle) / float64(out.length)
	s.idle += idle / float64(runs)
	if s.offs == nil {
		s.offs, s.idles = make(map[uint64][]float64), make(map[uint64][]float64)
	}
	s.offs[of.seed] = append(s.offs[of.seed], off)
	s.idles[of.seed] = append(s.idles[of.seed], idle)
}

// spread returns the standard deviation over the seeds of a seed's mean.
func spread(bySeed map[uint64][]float64) float64 {
	var means []float64
	for _, seed := range slices.Sorted(maps.Keys(bySeed)) {
		means = append(means, stat.Mean(bySeed[seed], nil))
	}
	_, deviation := statistics(means)
	return deviation
}

// shareAll runs all scenarios under each scheme.
func shareAll(all []scenario, length time.Duration, channels int) ([]sharing, error) {
	outs, err := parallel.Map(len(all)*len(schemes), func(i int) (*outcome, error) {
		s := all[i/len(schemes)]
		return schemes[i%len(schemes)].run(experiment{tenants: s.tenants, channels: channels, seed: s.seed, length: length}, true)
	})
	if err != nil {
		return nil, err
	}
	found := make([]sharing, len(schemes))
	for i := range schemes {
		found[i].second = target{
			name: fmt.Sprintf("%s, channels: %d: share over any second", schemes[i].name, channels), limit: "5 points + a kernel", unit: "points",
			baseline: schemes[i].policy != "dfq",
		}
	}
	for i, out := range outs {
		found[i%len(schemes)].add(out, &all[i/len(schemes)], len(all))
	}
	return found, nil
}

// accounted returns how far accounting is off: the largest error of a share, in points, and of a
// guest's own time, in per cent, for guests that used a tenth of the GPU or more.
func accounted(out *outcome) (points, ofOwn float64) {
	for i := range out.truth {
		off := math.Abs(float64(out.accounted[i] - out.truth[i]))
		points = max(points, 100*off/float64(out.length))
		if 10*out.truth[i] >= out.length {
			ofOwn = max(ofOwn, 100*off/float64(out.truth[i]))
		}
	}
	return points, ofOwn
}

// saturating is how much of the time a guest may be without work and still count as one that always
// has some.
const saturating = 0.1

// entitled returns each guest's entitlement to the time that all used together: what it used if it
// had no work for more than a tenth of the time, and otherwise its part of the rest by weight. used
// and noWork are parts of the time.
func entitled(weights, used, noWork []float64) []float64 {
	all := floats.Sum(used)
	demands := make([]float64, len(weights))
	for i := range demands {
		demands[i] = 1
		if noWork[i] > saturating && all > 0 {
			demands[i] = used[i] / all
		}
	}
	parts := fairshare.Entitlement(weights, demands, nil)
	floats.Scale(all, parts)
	return parts
}

// unfair returns the largest distance of a share from its entitlement, in points.
func unfair(u use, tenants []tenant) (points float64) {
	weights := make([]float64, len(tenants))
	for i, t := range tenants {
		weights[i] = t.weight
	}
	for i, entitled := range entitled(weights, u.used, u.noWork) {
		points = max(points, 100*math.Abs(u.used[i]-entitled))
	}
	return points
}

func worstSecond(out *outcome, tenants []tenant) (points float64) {
	for _, second := range out.seconds {
		points = max(points, unfair(second, tenants))
	}
	return points
}

// targetText returns the table of targets.
func targetText(reached []target) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Targets, over %d loads of 1 to 16 guests: throttles of 10 to 100 %%, applications of the corpus, both; 10 s each.\n", reached[0].runs)
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "WHAT\tLIMIT\tWORST\tMEAN\tRESULT\tWORST LOAD")
	for _, t := range reached {
		fmt.Fprintf(w, "%s\t%s\t%.3f %s\t%.3f\t%s\t%s\n", t.name, t.limit, t.worst, t.unit, t.mean, t.verdict(), t.where)
	}
	w.Flush()
	for _, t := range reached {
		if !t.baseline && !t.passed() && t.kernel > 0 {
			fmt.Fprintf(&b, "%s: each load that misses it has kernels of %v or more, so that one of them is %.2f points of a second.\n",
				t.name, t.kernel.Round(100*time.Microsecond), 100*t.kernel.Seconds())
		}
	}
	return b.String()
}
