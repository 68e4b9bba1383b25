package main

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"gonum.org/v1/gonum/stat"

	"vgpud/accounting"
	"vgpud/e2e/papers/plot"
	"vgpud/gpu/soft/machine"
	"vgpud/gpu/soft/sim"
)

// figure is one of LoGA's, redone.
type (
	// figure is one of LoGA's figures, redone.
	figure = plot.Figure
	row    = plot.Row
)

// launchGap is how long a program that waits for each kernel takes from one kernel's end to the
// next launch.
const launchGap = 10 * time.Microsecond

// program returns the application as a program that waits for each launch and, after the last one,
// works on the host for up to as long as they took: input, output and computing, which the paper's
// benchmarks do and the corpus doesn't. The length is drawn from its name.
func (a application) program() sim.Load {
	name := fnv.New64()
	name.Write([]byte(a.name))
	host := time.Duration(float64(a.iteration()) * rand.New(rand.NewPCG(name.Sum64(), 0)).Float64())
	next := 0
	return sim.Load{Name: a.name, Depth: 1, Next: func(r *rand.Rand) (machine.Work, time.Duration) {
		gap := launchGap
		if next%len(a.lengths) == 0 {
			gap += host
		}
		d := a.lengths[next%len(a.lengths)]
		next++
		return machine.Work{Duration: d + time.Duration(r.Int64N(int64(d)/50+1))}, gap
	}}
}

// throttles returns n guests with kernels of a length, each followed by a sleep.
func throttles(n int, length, sleep time.Duration) (list []tenant) {
	for range n {
		list = append(list, tenant{weight: 1, load: func() sim.Load { return sim.Throttle("throttle", length, sleep) }})
	}
	return list
}

// beside returns an application, which is tenant 0, with neighbours.
func beside(a application, neighbours []tenant) []tenant {
	return append([]tenant{{weight: 1, load: a.program}}, neighbours...)
}

// LoGA polls in phases of one piece, of 1 and 5 ms for each channel, without a cap, and tells idle
// by the channel's entry (§4.1). As published it does not vary their lengths, although the paper
// says that it can.
var (
	loga          = accounting.Config{Piece: -1, Round: -1, Scale: accounting.ByAllocated, Idle: accounting.IdleByEntry}
	publishedLoga = accounting.Config{Piece: -1, Round: -1, Scale: accounting.ByAllocated, Idle: accounting.IdleByEntry, Jitter: -1}
	ours          = accounting.Config{}
)

// turnaround returns how many times as long a program's iteration takes in one run as in another.
func turnaround(with, without *outcome) float64 {
	rate := func(o *outcome) float64 { return o.truth[0].Seconds() / o.length.Seconds() }
	return rate(without) / rate(with)
}

// watchers are the ways of accounting in figures 7 and 8, without any scheduling.
var watchers = []struct {
	name string
	run  func(experiment) (*outcome, error)
}{
	{"LoGA", func(e experiment) (*outcome, error) { e.watch = loga; return e.run() }},
	{"LoGA publ.", func(e experiment) (*outcome, error) { e.watch = publishedLoga; return e.run() }},
	{"ours", func(e experiment) (*outcome, error) { e.watch = ours; return e.run() }},
	{"NEON", func(e experiment) (*outcome, error) { return e.runNEON(false) }},
	{"NEON publ.", func(e experiment) (*outcome, error) { return e.runPublishedNEON(false) }},
}

// passive is how many of the watchers, the first ones, only read registers.
const passive = 3

// overheads returns a program's turnarounds by watcher. 1 is without any.
func overheads(a application, neighbours []tenant, seconds time.Duration, seed uint64) (values []float64, err error) {
	e := experiment{tenants: beside(a, neighbours), policy: "none", length: seconds, seed: seed}
	alone, err := e.unwatched()
	if err != nil {
		return nil, err
	}
	for _, w := range watchers {
		watched, err := w.run(e)
		if err != nil {
			return nil, err
		}
		values = append(values, turnaround(watched, alone))
	}
	return values, nil
}

// overhead redoes figure 7: programs beside ten throttles, by accounting, without any scheduling.
func overhead(apps []application, number string, length time.Duration, seconds time.Duration, seeds int, paper string) (figure, error) {
	f := figure{
		Number: number, Paper: paper,
		Title:   fmt.Sprintf("Turnaround beside ten throttles of %v + 1 ms sleep, by accounting; 1 is without any", length),
		YLabel:  "normalised turnaround",
		Columns: []string{"program"},
	}
	for _, w := range watchers {
		f.Columns = append(f.Columns, w.name)
	}
	rows, err := repeated(len(apps), seeds, func(i int, seed uint64) (r row, err error) {
		r.Name = apps[i].name
		r.Values, err = overheads(apps[i], throttles(10, length, time.Millisecond), seconds, seed)
		return r, err
	})
	if err != nil {
		return f, err
	}
	f.Rows = rows
	mean := row{Name: "(geometric mean)"}
	for column, w := range watchers {
		worst, name := 0.0, ""
		for _, r := range rows {
			if r.Values[column] > worst {
				worst, name = r.Values[column], r.Name
			}
		}
		mean.Values = append(mean.Values, geomean(rows, column))
		if column > 0 {
			f.Ours += "; "
		}
		f.Ours += fmt.Sprintf("%s %+.2f %% in the mean, at worst %+.2f %% (%s)", w.name, 100*(mean.Values[column]-1), 100*(worst-1), name)
	}
	f.Rows = append(f.Rows, mean)
	return f, nil
}

// unwatched carries the experiment out without accounting.
func (e experiment) unwatched() (*outcome, error) {
	s, err := e.machine()
	if err != nil {
		return nil, err
	}
	s.AdvanceTo(e.length)
	out := &outcome{length: s.Now(), idle: s.Totals().Idle}
	for _, g := range s.Guests() {
		out.truth = append(out.truth, g.Usage().Busy)
		out.kernels = append(out.kernels, g.Progress().Completed)
	}
	return out, nil
}

// geomean returns the geometric mean of a column.
func geomean(rows []row, column int) float64 {
	var values []float64
	for _, r := range rows {
		values = append(values, r.Values[column])
	}
	return stat.GeometricMean(values, nil)
}

// byThrottles redoes figure 8: four programs beside 1 to 20 throttles. For watchers that only read
// registers it shows the mean of the four.
func byThrottles(apps []application, counts []int, seconds time.Duration, seeds int) (figure, error) {
	f := figure{
		Number: "8", Lines: true,
		Title:  "Turnaround beside n throttles of 10µs + 1 ms sleep; 1 is without any accounting",
		Paper:  "no numbers in the text. For most programs NEON's overhead grows with the number of throttles; LoGA's stays at none",
		XLabel: "throttles", YLabel: "normalised turnaround",
		Columns: []string{"throttles"},
	}
	for _, w := range watchers[:passive] {
		f.Columns = append(f.Columns, w.name)
	}
	var chosen []application
	for _, name := range []string{"lennardjones", "transpose", "bfs", "md5"} {
		for _, a := range apps {
			if a.name == name {
				chosen = append(chosen, a)
				for _, w := range watchers[passive:] {
					f.Columns = append(f.Columns, w.name+": "+name)
				}
			}
		}
	}
	rows, err := repeated(len(counts), seeds, func(i int, seed uint64) (row, error) {
		r := row{Name: fmt.Sprint(counts[i]), Values: make([]float64, passive)}
		for _, a := range chosen {
			values, err := overheads(a, throttles(counts[i], 10*time.Microsecond, time.Millisecond), seconds, seed)
			if err != nil {
				return r, err
			}
			for w := range passive {
				r.Values[w] += values[w] / float64(len(chosen))
			}
			r.Values = append(r.Values, values[passive:]...)
		}
		return r, nil
	})
	if err != nil {
		return f, err
	}
	f.Rows = rows
	first, last := rows[0], rows[len(rows)-1]
	for column, name := range f.Columns[1:] {
		if column > 0 {
			f.Ours += "; "
		}
		f.Ours += fmt.Sprintf("%s %+.1f %% beside %s, %+.1f %% beside %s", name, 100*(first.Values[column]-1), first.Name, 100*(last.Values[column]-1), last.Name)
	}
	return f, nil
}

// by is a way of accounting, in figures 9 and 10.
type by struct {
	name  string
	watch accounting.Config
	ideal bool
}

// columns returns a figure's columns. The first is that of its rows' names.
func columns(first string, all []by) []string {
	names := []string{first}
	for _, w := range all {
		names = append(names, w.name)
	}
	return names
}

// full returns c with all of the time polled.
func full(c accounting.Config) accounting.Config {
	c.Full = true
	return c
}

// farthest returns the largest difference of a column's value from the one that its row should
// have.
func farthest(rows []row, column int, want func(row) float64) (off float64) {
	for _, r := range rows {
		if d := r.Values[column] - want(r); math.Abs(d) > math.Abs(off) {
			off = d
		}
	}
	return off
}

// kernelLength redoes figure 9: the length of throttle's kernels as measured by polling all the
// time.
func kernelLength(seconds time.Duration, seeds int) (figure, error) {
	all := []by{
		{"LoGA", full(loga), false}, {"LoGA publ.", full(publishedLoga), false}, {"ours", full(ours), false},
		{"LoGA, ideal", full(loga), true}, {"ours, ideal", full(ours), true},
	}
	f := figure{
		Number: "9", Lines: true,
		Title:  "Length of throttle's kernels, measured by polling all the time; per cent off",
		Paper:  "underestimated by up to 6 %, about as much at all lengths, blamed on registers that switch at different times",
		XLabel: "kernel length, µs", YLabel: "error, %",
		Columns: columns("µs", all),
	}
	rows, err := repeated(10, seeds, func(i int, seed uint64) (row, error) {
		length := time.Duration(i+1) * 100 * time.Microsecond
		r := row{Name: fmt.Sprint(length.Microseconds())}
		for _, w := range all {
			e := experiment{
				policy: "none", length: seconds, seed: seed, watch: w.watch, ideal: w.ideal,
				// It waits for each kernel to complete before submitting the next.
				tenants: []tenant{{weight: 1, load: func() sim.Load { return sim.Throttle("throttle", length, launchGap) }}},
			}
			out, err := e.run()
			if err != nil {
				return r, err
			}
			r.Values = append(r.Values, 100*(float64(out.accounted[0])/float64(out.truth[0])-1))
		}
		return r, nil
	})
	f.Rows = rows
	for i, w := range all {
		if i > 0 {
			f.Ours += "; "
		}
		f.Ours += fmt.Sprintf("%s %+.2f %% at worst", w.name, farthest(rows, i, func(row) float64 { return 0 }))
	}
	return f, err
}

// load redoes figure 10: one kernel in each 1000 µs. Its first column is the truth.
func load(seconds time.Duration, seeds int) (figure, error) {
	all := []by{
		{"LoGA, all the time", full(loga), false}, {"LoGA 1:5", loga, false}, {"LoGA publ. 1:5", publishedLoga, false},
		{"ours, all the time", full(ours), false}, {"ours 1:5", ours, false},
	}
	f := figure{
		Number: "10", Lines: true,
		Title:  "GPU load as measured against as intended, one kernel every 1000µs",
		Paper:  "within 2.5 % of the intended load in all cases, polling all the time",
		XLabel: "intended load, %", YLabel: "measured load, %",
		Columns: append([]string{"intended %", "true"}, columns("", all)[1:]...),
	}
	rows, err := repeated(10, seeds, func(i int, seed uint64) (row, error) {
		length := time.Duration(i+1)*100*time.Microsecond - 2*time.Microsecond // and what launching costs
		r := row{Name: fmt.Sprint(10 * (i + 1)), Values: make([]float64, 1)}
		for _, w := range all {
			e := experiment{policy: "none", length: seconds, seed: seed, watch: w.watch, ideal: w.ideal,
				tenants: []tenant{{weight: 1, load: func() sim.Load { return sim.Cycle("throttle", length, time.Millisecond) }}}}
			out, err := e.run()
			if err != nil {
				return r, err
			}
			r.Values[0] = 100 * out.truth[0].Seconds() / out.length.Seconds()
			r.Values = append(r.Values, 100*out.accounted[0].Seconds()/out.length.Seconds())
		}
		return r, nil
	})
	f.Rows = rows
	for i, w := range all {
		if i > 0 {
			f.Ours += "; "
		}
		f.Ours += fmt.Sprintf("%s within %.2f points of the truth", w.name, math.Abs(farthest(rows, i+1, func(r row) float64 { return r.Values[0] })))
	}
	return f, err
}

// figureTargets returns the targets of figures 7 to 10: what the paper says of LoGA.
func figureTargets(figures []figure) (all []target) {
	for i := range figures {
		f := &figures[i]
		for column, name := range f.Columns[1:] {
			t := target{baseline: !strings.HasPrefix(name, "ours")}
			switch f.Number {
			case "7a", "7b":
				t.name, t.limit, t.unit = "overhead of accounting, geometric mean", "0.7 %", "%"
				mean := f.Rows[len(f.Rows)-1]
				t.check(100*(mean.Values[column]-1), 0.7, mean.Name, 0)
			case "8":
				t.name, t.limit, t.unit = "overhead of accounting", "0.7 %", "%"
				for _, r := range f.Rows {
					t.check(100*(r.Values[column]-1), 0.7, r.Name+" throttles", 0)
				}
			case "9":
				t.name, t.limit, t.unit = "kernel length", "1 %", "%"
				for _, r := range f.Rows {
					t.check(math.Abs(r.Values[column]), 1, r.Name+" µs", 0)
				}
			case "10":
				if t.name, t.limit, t.unit = "load, off the truth", "2.5 points", "points"; column == 0 {
					continue // that is the truth
				}
				for _, r := range f.Rows {
					t.check(math.Abs(r.Values[column]-r.Values[0]), 2.5, r.Name+" %", 0)
				}
			default:
				continue
			}
			t.name = fmt.Sprintf("figure %s, %s: %s", f.Number, name, t.name)
			all = append(all, t)
		}
	}
	return all
}
