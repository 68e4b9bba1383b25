package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"vgpud/e2e/papers/parallel"
	"vgpud/e2e/papers/plot"
	"vgpud/gpu/soft/machine"
	"vgpud/gpu/soft/machine/blocks"
)

// flepBenchmark is a row of FLEP's table 1, with a kernel of the corpus in place of the paper's.
type flepBenchmark struct {
	name, kernel          string
	large, small, trivial time.Duration
}

// table1 is FLEP's table 1.
var table1 = []flepBenchmark{
	{"CFD", "euler", 11106 * time.Microsecond, 521 * time.Microsecond, 81 * time.Microsecond},
	{"NN", "nearest", 15775 * time.Microsecond, 728 * time.Microsecond, 55 * time.Microsecond},
	{"PF", "pathfinder", 7364 * time.Microsecond, 811 * time.Microsecond, 57 * time.Microsecond},
	{"PL", "particlefilter", 5419 * time.Microsecond, 952 * time.Microsecond, 83 * time.Microsecond},
	{"MD", "lennardjones", 15905 * time.Microsecond, 938 * time.Microsecond, 90 * time.Microsecond},
	{"SPMV", "spmv", 5840 * time.Microsecond, 484 * time.Microsecond, 68 * time.Microsecond},
	{"MM", "matmul", 2579 * time.Microsecond, 1499 * time.Microsecond, 73 * time.Microsecond},
	{"VA", "vecadd", 30634 * time.Microsecond, 720 * time.Microsecond, 49 * time.Microsecond},
}

// flep is the suite: the large and the small input of each benchmark, in its original form and in
// the chosen form.
type flep struct {
	subjects                     []subject
	large, small                 []*program
	largeOriginal, smallOriginal []*program
}

// index returns a benchmark's index in table1.
func index(name string) int {
	for i, b := range table1 {
		if b.name == name {
			return i
		}
	}
	panic("preemptbench: no benchmark " + name)
}

// newFLEP builds the suite from the given kernels and leaves out the benchmarks without one.
func newFLEP(all map[string]subject, tries int) (*flep, error) {
	f := &flep{}
	for _, b := range table1 {
		f.subjects = append(f.subjects, all[b.kernel])
	}
	type both struct{ chosen, original *program }
	made, err := parallel.Map(2*len(table1), func(i int) (both, error) {
		b, s := table1[i/2], f.subjects[i/2]
		if s.step == nil {
			return both{}, nil
		}
		length := b.large
		if i%2 == 1 {
			length = b.small
		}
		k := lasting(s.model, float64(length))
		// If the tuner leaves a short kernel in its original form, it can't be evicted.
		t := choose(k, s.threads, s.added, wanted)
		return both{newProgram(b.name, k, t.form, tries), newProgram(b.name, k, blocks.Form{}, 0)}, nil
	})
	if err != nil {
		return nil, err
	}
	for i := range table1 {
		f.large, f.largeOriginal = append(f.large, made[2*i].chosen), append(f.largeOriginal, made[2*i].original)
		f.small, f.smallOriginal = append(f.small, made[2*i+1].chosen), append(f.smallOriginal, made[2*i+1].original)
	}
	return f, nil
}

// soon is how long after the first kernel of a co-run the next ones arrive.
const soon = 20 * time.Microsecond

// launchOf is a launch that will arrive.
type launchOf struct {
	p        *program
	priority int
	at       time.Duration
}

// corun runs launches, each of a different guest, under a policy. All share one context, as under
// MPS.
func corun(policy string, launches ...launchOf) (jobs []*job, err error) {
	w, err := newWorld(len(launches), options{policy: policy, seed: 1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	jobs = make([]*job, len(launches))
	for i, l := range launches {
		jobs[i] = &job{guest: i, program: l.p, priority: l.priority}
		w.arrive(l.at, jobs[i])
	}
	w.run(machine.Never)
	return jobs, nil
}

// alone returns the time from arrival to end of a program that runs alone.
func alone(p *program) (time.Duration, error) {
	jobs, err := corun("fifo", launchOf{p: p})
	if err != nil {
		return 0, err
	}
	return jobs[0].turnaround(), nil
}

// ranks returns a co-run's ANTT and STP (Eyerman, as in FLEP §6.1), relative to the originals
// alone.
func ranks(jobs []*job, originals []*program) (antt, stp float64, err error) {
	for i, j := range jobs {
		single, err := alone(originals[i])
		if err != nil {
			return 0, 0, err
		}
		ntt := j.turnaround().Seconds() / single.Seconds()
		antt += ntt / float64(len(jobs))
		stp += 1 / ntt
	}
	return antt, stp, nil
}

// highPairs returns the pairs of figure 8: CFD, NN, PF and PL large as low-priority workloads, each
// with each other benchmark small as the high-priority one.
func highPairs() (pairs [][2]int) {
	for _, low := range []string{"CFD", "NN", "PF", "PL"} {
		for high := range table1 {
			if high != index(low) {
				pairs = append(pairs, [2]int{index(low), high})
			}
		}
	}
	return pairs
}

// equalPairs returns the pairs of figure 10: MD, MM, SPMV and VA small, each with each of the
// others large.
func equalPairs() (pairs [][2]int) {
	for _, short := range []string{"MD", "MM", "SPMV", "VA"} {
		for long := range table1 {
			if long != index(short) {
				pairs = append(pairs, [2]int{long, index(short)})
			}
		}
	}
	return pairs
}

// urgent is one run of figure 8.
type urgent struct {
	pair                   string
	speedup                float64
	latency, alone, evict  time.Duration // the urgent kernel's, and the eviction's
	bound                  time.Duration // alone + one context switch + the eviction
	baseline, lowTurnround time.Duration
}

// figure8Run runs a high-priority kernel that arrives some time after a low-priority one.
func (f *flep) figure8Run(low, high int, delay time.Duration) (u urgent, err error) {
	u.pair = table1[high].name + "_" + table1[low].name
	mps, err := corun("fifo", launchOf{p: f.largeOriginal[low]}, launchOf{p: f.smallOriginal[high], priority: 1, at: delay})
	if err != nil {
		return u, err
	}
	with, err := corun("hpf", launchOf{p: f.large[low]}, launchOf{p: f.small[high], priority: 1, at: delay})
	if err != nil {
		return u, err
	}
	if u.alone, err = alone(f.small[high]); err != nil {
		return u, err
	}
	u.baseline, u.latency, u.lowTurnround = mps[1].turnaround(), with[1].turnaround(), with[0].turnaround()
	u.speedup = u.baseline.Seconds() / u.latency.Seconds()
	if len(with[0].latencies) > 0 {
		u.evict = with[0].latencies[0]
	}
	u.bound = u.alone + u.evict // MPS switches no contexts
	return u, nil
}

// figure8 computes the speedup of high-priority kernels.
func (f *flep) figure8() (plot.Figure, []urgent, error) {
	fig := plot.Figure{
		Number: "FLEP 8", YLabel: "speedup", Log: true, Columns: []string{"high_low", "hpf"},
		Title: "Speedup of high-priority kernels over run to completion",
		Paper: "§6.3.1: 10.1 times on average, at most 24.2 (SPMV with NN), at least 4.1 (MM with PF)",
	}
	pairs := highPairs()
	runs, err := parallel.Map(len(pairs), func(i int) (urgent, error) { return f.figure8Run(pairs[i][0], pairs[i][1], soon) })
	if err != nil {
		return fig, nil, err
	}
	least, leastPair := math.Inf(1), ""
	var sum float64
	for _, u := range runs {
		fig.Rows = append(fig.Rows, plot.Row{Name: u.pair, Values: []float64{u.speedup}})
		sum += u.speedup
		if u.speedup < least {
			least, leastPair = u.speedup, u.pair
		}
	}
	v, of := worst(fig.Rows, 0)
	fig.Ours = fmt.Sprintf("%.1f times on average, at most %.1f (%s), at least %.1f (%s)", sum/float64(len(runs)), v, of, least, leastPair)
	return fig, runs, nil
}

// figure9 computes how the speedup decays with the delay between the launches.
func (f *flep) figure9() (plot.Figure, error) {
	pairs := [][2]string{{"NN", "SPMV"}, {"CFD", "VA"}, {"PF", "MM"}, {"PL", "MD"}}
	fig := plot.Figure{
		Number: "FLEP 9", Lines: true, XLabel: "delay, ms", YLabel: "speedup", Columns: []string{"delay, ms"},
		Title: "Speedup of high-priority kernels by the delay of their launch",
		Paper: "§6.3.1: decreases almost linearly with the delay; a plateau close to 1 once the low-priority kernel is over",
	}
	for _, p := range pairs {
		fig.Columns = append(fig.Columns, p[1]+"_"+p[0])
	}
	delays := []int{0, 1, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20}
	rows, err := parallel.Map(len(delays), func(i int) (plot.Row, error) {
		r := plot.Row{Name: fmt.Sprint(delays[i])}
		for _, p := range pairs {
			u, err := f.figure8Run(index(p[0]), index(p[1]), max(soon, time.Duration(delays[i])*time.Millisecond))
			if err != nil {
				return r, err
			}
			r.Values = append(r.Values, u.speedup)
		}
		return r, nil
	})
	fig.Rows = rows
	if err != nil {
		return fig, err
	}
	fig.Ours = fmt.Sprintf("%s from %.1f at once to %.2f after 20 ms", fig.Columns[1], rows[0].Values[0], rows[len(rows)-1].Values[0])
	return fig, nil
}

// equal runs launches of equal priority. It returns the factor by which hpf improves ANTT over run
// to completion, and the fraction of STP that hpf loses.
func (f *flep) equal(policy string, long int, shorts ...int) (improvement, degradation float64, err error) {
	launches := []launchOf{{p: f.large[long]}}
	before, originals := []launchOf{{p: f.largeOriginal[long]}}, []*program{f.largeOriginal[long]}
	for i, s := range shorts {
		at := time.Duration(i+1) * soon
		launches = append(launches, launchOf{p: f.small[s], at: at})
		before = append(before, launchOf{p: f.smallOriginal[s], at: at})
		originals = append(originals, f.smallOriginal[s])
	}
	if policy == "reorder" {
		launches = before // reordering needs no transformed kernels
	}
	mps, err := corun("fifo", before...)
	if err != nil {
		return 0, 0, err
	}
	with, err := corun(policy, launches...)
	if err != nil {
		return 0, 0, err
	}
	antt0, _, err := ranks(mps, originals)
	if err != nil {
		return 0, 0, err
	}
	antt1, _, err := ranks(with, originals)
	if err != nil {
		return 0, 0, err
	}
	// The throughput of the whole co-run: by how much its makespan grew.
	return antt0 / antt1, 1 - makespan(mps).Seconds()/makespan(with).Seconds(), nil
}

// figures10and11 run pairs of equal priority.
func (f *flep) figures10and11() ([]plot.Figure, error) {
	antt := plot.Figure{
		Number: "FLEP 10", YLabel: "improvement", Log: true, Columns: []string{"pair", "hpf"},
		Title: "Improvement of ANTT, pairs of equal priority",
		Paper: "§6.3.1: 8 times on average over the 28 pairs",
	}
	stp := plot.Figure{
		Number: "FLEP 11", YLabel: "degradation, %", Columns: []string{"pair", "hpf"},
		Title: "Throughput lost, pairs of equal priority: how much longer both take together, per cent",
		Paper: "§6.3.1: STP's degradation is about 5.4 % on average",
	}
	pairs := equalPairs()
	rows, err := parallel.Map(len(pairs), func(i int) ([2]float64, error) {
		improvement, degradation, err := f.equal("hpf", pairs[i][0], pairs[i][1])
		return [2]float64{improvement, 100 * degradation}, err
	})
	if err != nil {
		return nil, err
	}
	var sums [2]float64
	for i, r := range rows {
		name := table1[pairs[i][1]].name + "_" + table1[pairs[i][0]].name
		antt.Rows = append(antt.Rows, plot.Row{Name: name, Values: r[:1]})
		stp.Rows = append(stp.Rows, plot.Row{Name: name, Values: r[1:]})
		sums[0] += r[0] / float64(len(rows))
		sums[1] += r[1] / float64(len(rows))
	}
	v, of := worst(antt.Rows, 0)
	antt.Ours = fmt.Sprintf("%.1f times on average, at most %.1f (%s)", sums[0], v, of)
	v, of = worst(stp.Rows, 0)
	stp.Ours = fmt.Sprintf("%.1f %% on average, at most %.1f %% (%s)", sums[1], v, of)
	return []plot.Figure{antt, stp}, nil
}

// figure12 runs random triples of one large and two small kernels.
func (f *flep) figure12() (plot.Figure, error) {
	fig := plot.Figure{
		Number: "FLEP 12", YLabel: "improvement", Log: true, Columns: []string{"triple", "hpf", "reordering"},
		Title: "Improvement of ANTT, 28 random triples of equal priority",
		Paper: "§6.3.2: 6.6 times on average, at most 20.2 (VA_SPMV_MM); reordering without preemption 2.3 %",
	}
	r := rand.New(rand.NewPCG(12, 28))
	va, spmv, mm := index("VA"), index("SPMV"), index("MM")
	triples := [][3]int{{va, spmv, mm}}
	for len(triples) < 28 {
		p := r.Perm(len(table1))
		triples = append(triples, [3]int{p[0], p[1], p[2]})
	}
	rows, err := parallel.Map(len(triples), func(i int) (plot.Row, error) {
		t := triples[i]
		row := plot.Row{Name: table1[t[0]].name + "_" + table1[t[1]].name + "_" + table1[t[2]].name}
		for _, policy := range []string{"hpf", "reorder"} {
			improvement, _, err := f.equal(policy, t[0], t[1], t[2])
			if err != nil {
				return row, err
			}
			row.Values = append(row.Values, improvement)
		}
		return row, nil
	})
	fig.Rows = rows
	if err != nil {
		return fig, err
	}
	var sums [2]float64
	for _, r := range rows {
		sums[0] += r.Values[0] / float64(len(rows))
		sums[1] += r.Values[1] / float64(len(rows))
	}
	v, of := worst(rows, 0)
	fig.Ours = fmt.Sprintf("%.1f times on average, at most %.1f (%s), VA_SPMV_MM %.1f; reordering %+.1f %%",
		sums[0], v, of, rows[0].Values[0], percent(sums[1]))
	return fig, nil
}
