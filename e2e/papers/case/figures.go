package main

import (
	"fmt"

	"vgpud/e2e/papers/plot"
)

// bars returns a figure with a row for each workload.
func (e *evaluation) bars(f plot.Figure, values ...func(*cell) float64) plot.Figure {
	add := func(name string, of func(value func(*cell) float64) stat) {
		r := plot.Row{Name: name}
		for _, v := range values {
			s := of(v)
			r.Values, r.Spread = append(r.Values, s.mean), append(r.Spread, s.spread)
		}
		f.Rows = append(f.Rows, r)
	}
	for i, w := range table2 {
		add(w.name+", "+w.ratio(), func(value func(*cell) float64) stat { return e.of(i, value) })
	}
	add("mean", e.all)
	return f
}

func figure5(e *evaluation) plot.Figure {
	return e.bars(plot.Figure{
		Number: "5", Title: "Throughput of algorithms 2 and 3 on " + e.name + ", relative to algorithm 2", YLabel: "throughput",
		Paper: "on average 1.21", Columns: []string{"workload", "algorithm 2", "algorithm 3", "ours"},
	}, func(*cell) float64 { return 1 }, func(c *cell) float64 { return c.alg3.gain / c.alg2.gain }, func(c *cell) float64 { return c.own.gain / c.alg2.gain })
}

func figure6(number string, e *evaluation) plot.Figure {
	paper := "CASE 1.8 to 2.5, on average 2.2; CG 1.31"
	if e.gpus == 4 {
		paper = "CASE 1.4 to 2.5, on average 2.0; CG 1.41"
	}
	return e.bars(plot.Figure{
		Number: number, Title: "Throughput on " + e.name + ", relative to SA", YLabel: "throughput", Paper: paper,
		Columns: []string{"workload", "SA", "CG, mean of its workers", "algorithm 3", "ours"},
	}, func(*cell) float64 { return 1 }, func(c *cell) float64 { return c.nominal().meanCG() }, func(c *cell) float64 { return c.alg3.gain }, func(c *cell) float64 { return c.own.gain })
}

// figure7 is the authors' own W7 over time, in steps of 4 s.
func figure7(e *evaluation) plot.Figure {
	const step = 4
	c := &e.cells[6][0]
	f := plot.Figure{
		Number: "7", Lines: true, Title: "Utilisation of " + e.name + " in the authors' own W7", XLabel: "seconds", YLabel: "%",
		Paper:   "mean 23.9 (SA 9.5, CG 9.3), peak 78 (SA 48, CG 48)",
		Ours:    fmt.Sprintf("mean %.1f (SA %.1f, CG %.1f), peak of a second %.0f (SA %.0f, CG %.0f)", 100*c.own.busy, 100*c.sa.busy, 100*c.cg[0].busy, 100*c.own.peak, 100*c.sa.peak, 100*c.cg[0].peak),
		Columns: []string{"s", "SA", fmt.Sprintf("CG, %d workers", e.workers[0]), "ours"},
	}
	longest := max(len(c.sa.profile), len(c.cg[0].profile), len(c.own.profile))
	for at := 0; at < longest; at += step {
		r := plot.Row{Name: fmt.Sprint(at)}
		for _, p := range [][]float64{c.sa.profile, c.cg[0].profile, c.own.profile} {
			sum := 0.0
			for i := at; i < min(at+step, len(p)); i++ {
				sum += p[i]
			}
			r.Values = append(r.Values, 100*sum/step)
		}
		f.Rows = append(f.Rows, r)
	}
	return f
}

func figure8(nets []networkRun) plot.Figure {
	f := plot.Figure{
		Number: "8", Title: "Throughput of eight like jobs of Darknet on 4xV100, relative to SchedGPU", YLabel: "throughput",
		Paper: "predict 1.4, detect about 1, generate 3.1, train 2.2", Columns: []string{"task", "SchedGPU", "ours", "the paper's CASE"},
	}
	for _, n := range nets {
		f.Rows = append(f.Rows, plot.Row{Name: n.name, Values: []float64{1, n.gain, n.paper}})
	}
	return f
}

func figure9(nets []networkRun) plot.Figure {
	f := plot.Figure{
		Number: "9", Title: "Mean utilisation of 4xV100 by eight like jobs of Darknet", YLabel: "%",
		Paper: "CASE about 80, SchedGPU 23", Columns: []string{"task", "SchedGPU", "ours"},
	}
	for _, n := range nets {
		f.Rows = append(f.Rows, plot.Row{Name: n.name, Values: []float64{100 * n.besideIt, 100 * n.ownBusy}})
	}
	return f
}

// paper3 is the paper's table 3: per cent of crashed jobs, by number of workers and ratio.
var paper3 = map[string][4][4]float64{
	"2xP100": {{0, 3, 8, 0}, {14, 6, 6, 9}, {13, 13, 20, 22}, {16, 17, 16, 16}},
	"4xV100": {{0, 17, 17, 0}, {13, 19, 25, 13}, {15, 25, 20, 25}, {33, 29, 38, 50}},
}

func table3(evaluations ...*evaluation) plot.Figure {
	f := plot.Figure{
		Number: "T3", Title: "Crashed jobs under CG, in per cent; beside the paper's",
		Paper:   "0 to 22 on two GPUs, 0 to 50 on four",
		Columns: []string{"host, workers", "1:1", "paper", "2:1", "paper", "3:1", "paper", "5:1", "paper"},
	}
	for _, e := range evaluations {
		for n, workers := range e.workers {
			r := plot.Row{Name: fmt.Sprintf("%s, %d", e.name, workers)}
			for ratio := range 4 {
				crashed := func(c *cell) float64 { return 100 * c.cg[n].crashed }
				both := (e.of(ratio, crashed).mean + e.of(ratio+4, crashed).mean) / 2
				r.Values = append(r.Values, both, paper3[e.name][n][ratio])
			}
			f.Rows = append(f.Rows, r)
		}
	}
	return f
}

// paper4 is the paper's table 4: how many times sooner jobs end.
var paper4 = map[string][8]float64{
	"2xP100": {4.9, 2.3, 4.9, 4.3, 4.6, 3.2, 3.6, 2.0},
	"4xV100": {2.4, 2.0, 3.5, 2.6, 3.8, 2.9, 2.9, 2.6},
}

func table4(evaluations ...*evaluation) plot.Figure {
	f := plot.Figure{
		Number: "T4", Title: "How many times sooner than under SA jobs end, by the means over jobs and seeds",
		Paper: "on average 3.7 on two GPUs and 2.8 on four", Columns: []string{"workload", "2xP100", "paper", "4xV100", "paper"},
	}
	for i, w := range table2 {
		r := plot.Row{Name: w.name + ", " + w.ratio()}
		for _, e := range evaluations {
			r.Values = append(r.Values, e.of(i, func(c *cell) float64 { return c.own.turn }).mean, paper4[e.name][i])
		}
		f.Rows = append(f.Rows, r)
	}
	return f
}

// paper6 is the paper's table 6: slowdowns of kernels under algorithms 2 and 3, in per cent.
var paper6 = [2][8]float64{{-0.3, 1, 0.3, 4.1, 2.9, 5.1, 1.1, 0.6}, {-0.7, 0.8, 7, 3.1, 2.2, 4.1, 0.4, 2.9}}

func table6(e *evaluation) plot.Figure {
	f := plot.Figure{
		Number: "T6", Title: "By how many per cent launches take longer than alone, on " + e.name,
		Paper:   "algorithm 2 on average 1.8, algorithm 3 2.5",
		Columns: []string{"workload", "algorithm 2", "paper", "algorithm 3", "paper", "ours"},
	}
	for i, w := range table2 {
		of := func(value func(*cell) *result) float64 {
			return max(0, 100*e.of(i, func(c *cell) float64 { return value(c).slow }).mean)
		}
		f.Rows = append(f.Rows, plot.Row{Name: w.name, Values: []float64{
			of(func(c *cell) *result { return &c.alg2 }), paper6[0][i],
			of(func(c *cell) *result { return &c.alg3 }), paper6[1][i],
			of(func(c *cell) *result { return &c.own }),
		}})
	}
	return f
}

// sensitivity is how the gain over SA, and the GPUs' utilisation, depend on what is assumed.
func sensitivity(evaluations ...*evaluation) plot.Figure {
	f := plot.Figure{
		Number: "S1", Title: "Throughput relative to SA and utilisation, on average over W1 to W8, under other assumptions",
		Paper: "CASE 2.2 and 2.0", Columns: []string{"what"},
	}
	for _, e := range evaluations {
		f.Columns = append(f.Columns, e.name, "% busy")
	}
	for _, v := range []struct {
		name  string
		value func(*cell) *result
	}{
		{"as above: memory held from first allocation to last free", func(c *cell) *result { return &c.own }},
		{"held for the process's life", func(c *cell) *result { return &c.forLife }},
		{"held from the first launch, as a lazy runtime does", func(c *cell) *result { return &c.fromLaunch }},
		{"memory that a task does not use stays", func(c *cell) *result { return &c.noIdle }},
		{"as many processes at a time as the authors' driver ran", func(c *cell) *result { return &c.released }},
		{"half the host work", func(c *cell) *result { return &c.half.own }},
		{"double the host work", func(c *cell) *result { return &c.double.own }},
		{"algorithm 3 with the authors' queue", func(c *cell) *result { return &c.alg3 }},
		{"the same at half the host work", func(c *cell) *result { return &c.half.alg3 }},
		{"algorithm 2 with the authors' queue", func(c *cell) *result { return &c.alg2 }},
		{"CG with the most workers", func(c *cell) *result { return &c.cg[len(c.cg)-1] }},
		{"the same at half the host work", func(c *cell) *result { return &c.half.cg[len(c.cg)-1] }},
		{"SA", func(c *cell) *result { return &c.sa }},
	} {
		r := plot.Row{Name: v.name}
		for _, e := range evaluations {
			s, busy := e.all(func(c *cell) float64 { return v.value(c).gain }), scaled(e.all(func(c *cell) float64 { return v.value(c).busy }))
			r.Values, r.Spread = append(r.Values, s.mean, busy.mean), append(r.Spread, s.spread, busy.spread)
		}
		f.Rows = append(f.Rows, r)
	}
	return f
}

func darknetSensitivity(nets []networkRun) plot.Figure {
	f := plot.Figure{
		Number: "S2", Title: "Darknet: a job alone, the part of it on the GPU, and the gain over SchedGPU at other host work",
		Columns: []string{"task", "s alone", "% on the GPU", "gain", "at half", "at double", "paper"},
	}
	for _, n := range nets {
		f.Rows = append(f.Rows, plot.Row{Name: n.name, Values: []float64{n.seconds, 100 * n.busy, n.gain, n.half, n.double, n.paper}})
	}
	return f
}
