package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"vgpud/e2e/papers/parallel"
	"vgpud/e2e/papers/plot"
	"vgpud/gpu/soft/machine"
	"vgpud/gpu/soft/machine/blocks"
)

// effishaBenchmark is a row of EffiSha's table 3, with a kernel of the corpus in place of the
// paper's.
type effishaBenchmark struct {
	name, kernel string
	alone        time.Duration // standalone time
	// priorities in the settings "random", "group" and "SJF".
	random, group, sjf int
}

// table3 is EffiSha's table 3, in the order of arrival.
var table3 = []effishaBenchmark{
	{"NeuralNet", "nnlayer", 14250 * time.Microsecond, 2, 2, 1},
	{"Sort", "radix", 5460 * time.Microsecond, 17, 2, 4},
	{"Reduction", "reduce", 2060 * time.Microsecond, 17, 2, 7},
	{"MD5Hash", "md5", 3290 * time.Microsecond, 22, 5, 6},
	{"MD", "lennardjones", 13800 * time.Microsecond, 22, 5, 2},
	{"Scan", "scan", 1410 * time.Microsecond, 7, 5, 8},
	{"Triad", "triad", 1220 * time.Microsecond, 3, 8, 9},
	{"Stencil2D", "stencil", 28400 * time.Microsecond, 20, 8, 0},
	{"FFT", "fft", 1170 * time.Microsecond, 24, 11, 10},
	{"Spmv", "spmv", 4570 * time.Microsecond, 7, 11, 5},
	{"BFS", "bfs", 5990 * time.Microsecond, 1, 11, 3},
}

// effisha is the suite: each kernel in the form that the tuner chose, and in its original form.
type effisha struct {
	subjects  []subject
	kernels   []blocks.Kernel // of table 3's lengths
	chosen    []*program
	originals []*program
}

// wanted is the eviction latency for which forms are chosen. The shorter it is, the more overhead
// the choice accepts.
const wanted = 500 * time.Microsecond

func newEffiSha(all map[string]subject) (*effisha, error) {
	e := &effisha{}
	type pair struct{ chosen, original *program }
	for _, b := range table3 {
		s, ok := all[b.kernel]
		if !ok {
			return nil, fmt.Errorf("no kernel %s in the corpus", b.kernel)
		}
		e.subjects = append(e.subjects, s)
		e.kernels = append(e.kernels, lasting(s.model, float64(b.alone)))
	}
	pairs, err := parallel.Map(len(table3), func(i int) (pair, error) {
		k, s := e.kernels[i], e.subjects[i]
		t := choose(k, s.threads, s.added, wanted)
		return pair{newProgram(table3[i].name, k, t.form, often), newProgram(table3[i].name, k, blocks.Form{}, 0)}, nil
	})
	for _, p := range pairs {
		e.chosen, e.originals = append(e.chosen, p.chosen), append(e.originals, p.original)
	}
	return e, err
}

// figure9 counts evictions by priority. Each kernel is launched 1,000 times, each time with a
// random priority of 1 to 9, one wait after the end of its previous launch.
func (e *effisha) figure9(launches int) (plot.Figure, error) {
	waits := []int{1, 2, 4, 8, 16, 32, 64}
	f := plot.Figure{
		Number: "EffiSha 9", Lines: true, XLabel: "priority", YLabel: "evictions",
		Title:   fmt.Sprintf("Evictions by priority under piv, %d launches of each of 11 kernels", launches),
		Paper:   "§8.2: no numbers in the text. The denser the launches the more evictions; the higher the priority the fewer",
		Columns: []string{"priority"},
	}
	counts, err := parallel.Map(len(waits), func(i int) ([]float64, error) {
		return e.evictions(time.Duration(waits[i])*time.Millisecond, launches)
	})
	if err != nil {
		return f, err
	}
	for _, wait := range waits {
		f.Columns = append(f.Columns, fmt.Sprintf("wait %d ms", wait))
	}
	for p := 1; p <= 9; p++ {
		r := plot.Row{Name: fmt.Sprint(p)}
		for i := range waits {
			r.Values = append(r.Values, counts[i][p])
		}
		f.Rows = append(f.Rows, r)
	}
	sums := make([]float64, len(waits))
	for i := range waits {
		for _, n := range counts[i] {
			sums[i] += n
		}
	}
	f.Ours = fmt.Sprintf("in all %.0f evictions at a wait of 1 ms, %.0f at 64 ms; of priority 1 %.0f and of priority 9 %.0f at 1 ms",
		sums[0], sums[len(sums)-1], counts[0][1], counts[0][9])
	return f, nil
}

// evictions returns the number of evictions of each priority under piv.
func (e *effisha) evictions(wait time.Duration, launches int) (counts []float64, err error) {
	w, err := newWorld(len(e.chosen), options{policy: "piv", switching: contextSwitch, seed: uint64(wait)})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	counts = make([]float64, 10)
	r := rand.New(rand.NewPCG(uint64(wait), 9))
	for i, p := range e.chosen {
		left := launches
		var launch func(*job)
		launch = func(before *job) {
			at := time.Duration(0)
			if before != nil {
				counts[before.priority] += float64(before.evictions)
				at = before.ended + wait
			}
			if left--; left >= 0 {
				w.arrive(at, &job{guest: i, program: p, priority: 1 + r.IntN(9), done: launch})
			}
		}
		launch(nil)
	}
	w.run(machine.Never)
	return counts, nil
}

// priorities are the three settings of table 3.
var priorities = []struct {
	name string
	of   func(effishaBenchmark) int
}{
	{"random", func(b effishaBenchmark) int { return b.random }},
	{"group", func(b effishaBenchmark) int { return b.group }},
	{"SJF", func(b effishaBenchmark) int { return b.sjf }},
}

// apart is the time between the requests of one application and the next (§8.1).
const apart = 3 * time.Millisecond

// together runs the 11 programs once, one after the other at intervals of apart, and returns the
// jobs in table 3's order.
func (e *effisha) together(programs []*program, policy string, priority func(effishaBenchmark) int) (jobs []*job, evictions int, err error) {
	w, err := newWorld(len(programs), options{policy: policy, switching: contextSwitch, seed: 1})
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	jobs = make([]*job, len(programs))
	for i, p := range programs {
		jobs[i] = &job{guest: i, program: p, priority: priority(table3[i])}
		w.arrive(time.Duration(i)*apart, jobs[i])
	}
	w.run(machine.Never)
	return jobs, w.total, nil
}

// makespan returns the time from the first arrival to the last end.
func makespan(jobs []*job) (t time.Duration) {
	for _, j := range jobs {
		t = max(t, j.ended)
	}
	return t
}

// schedulers are the policies of figures 12, 14 and 15. "default" is the hardware's order with the
// original kernels.
var schedulers = []string{"default", "piv", "dprr"}

// run calls together for one of the schedulers.
func (e *effisha) run(scheduler string, priority func(effishaBenchmark) int) (jobs []*job, evictions int, err error) {
	if scheduler == "default" {
		return e.together(e.originals, "fifo", priority)
	}
	return e.together(e.chosen, scheduler, priority)
}

// standalone returns the time from arrival to end of each original program when it runs alone.
func (e *effisha) standalone() ([]time.Duration, error) {
	return parallel.Map(len(e.originals), func(i int) (took time.Duration, err error) {
		w, err := newWorld(1, options{policy: "fifo", switching: contextSwitch})
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, w.close()) }()
		j := &job{program: e.originals[i]}
		w.arrive(0, j)
		w.run(machine.Never)
		return j.turnaround(), nil
	})
}

// schedule computes figures 12, 14a, 14b and 15.
func (e *effisha) schedule() ([]plot.Figure, error) {
	alone, err := e.standalone()
	if err != nil {
		return nil, err
	}
	overhead := plot.Figure{
		Number: "EffiSha 12", Title: "Scheduling overhead, (T'-T)/T with T under the default, per cent", YLabel: "overhead, %",
		Paper:   "§8.3: dprr's is larger than piv's; all are less than 5 %",
		Columns: []string{"priorities", "piv", "dprr"},
	}
	throughput := plot.Figure{
		Number: "EffiSha 15", Title: "Overall system throughput, STP, of 11 at most", YLabel: "STP",
		Paper:   "§8.5: no numbers in the text. All preemptive schedulers have a higher throughput than the default",
		Columns: append([]string{"priorities"}, schedulers...),
	}
	figures := []plot.Figure{overhead}
	worst, least, most := 0.0, 1e9, 0.0
	for _, set := range priorities {
		ntt := make([][]float64, len(schedulers))
		stp := plot.Row{Name: set.name}
		var spans []time.Duration
		var evictions int
		for s, scheduler := range schedulers {
			jobs, n, err := e.run(scheduler, set.of)
			if err != nil {
				return nil, err
			}
			sum := 0.0
			for i, j := range jobs {
				ntt[s] = append(ntt[s], j.turnaround().Seconds()/alone[i].Seconds())
				sum += 1 / ntt[s][i]
			}
			stp.Values = append(stp.Values, sum)
			spans = append(spans, makespan(jobs))
			evictions += n
		}
		throughput.Rows = append(throughput.Rows, stp)
		row := plot.Row{Name: set.name}
		for _, s := range spans[1:] {
			over := 100 * (s.Seconds()/spans[0].Seconds() - 1)
			row.Values = append(row.Values, over)
			worst = max(worst, over)
		}
		figures[0].Rows = append(figures[0].Rows, row)
		least, most = min(least, slices.Min(stp.Values[1:])/stp.Values[0]), max(most, slices.Max(stp.Values[1:])/stp.Values[0])
		if set.name != "random" {
			figures = append(figures, turnarounds(set.name, set.of, ntt))
		}
	}
	figures[0].Ours = fmt.Sprintf("at most %.1f %%: a context switch of %v and an eviction each time", worst, contextSwitch)
	throughput.Ours = fmt.Sprintf("piv and dprr have %.2f to %.2f of the default's", least, most)
	return append(figures, throughput), nil
}

// turnarounds computes one part of figure 14.
func turnarounds(set string, of func(effishaBenchmark) int, ntt [][]float64) plot.Figure {
	f := plot.Figure{
		Number: "EffiSha 14a", YLabel: "NTT", Log: true,
		Title:   "Normalized turnaround, priorities by " + set + ", in increasing order of priority",
		Paper:   "§8.5, group: the default's average is 5.08; Scan, Triad and FFT 9.16, 8.07 and 10.8; MD, Spmv and Stencil2D 3.7, 5.0 and 2; under piv Reduction, Sort and Scan 38, 14 and 39",
		Columns: append([]string{"program"}, schedulers...),
	}
	if set == "SJF" {
		f.Number = "EffiSha 14b"
		f.Paper = "§8.5, SJF: MD5Hash, Scan, Triad and FFT suffer large NTTs by default; all right of Sort get 1 under piv; on average piv and dprr reduce NTT significantly"
	}
	order := make([]int, len(table3))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return of(table3[a]) - of(table3[b]) })
	means := make([]float64, len(ntt))
	for _, i := range order {
		r := plot.Row{Name: table3[i].name}
		for s := range ntt {
			r.Values = append(r.Values, ntt[s][i])
			means[s] += ntt[s][i] / float64(len(table3))
		}
		f.Rows = append(f.Rows, r)
	}
	f.Rows = append(f.Rows, plot.Row{Name: "(average)", Values: means})
	f.Ours = fmt.Sprintf("averages: default %.2f, piv %.2f, dprr %.2f", means[0], means[1], means[2])
	return f
}
