package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"vgpud/e2e/papers/goals"
	"vgpud/e2e/papers/parallel"
	"vgpud/e2e/papers/plot"
)

// extent is how much is run.
type extent struct {
	seeds  int // of each workload
	mixes  int // of tasks that grow, and of guests that die
	shares int // seeds of each number of guests
}

// whole is what make bench-case runs.
var whole = extent{seeds: 20, mixes: 10_000, shares: 20}

// report is all results.
type report struct {
	Rows    []goals.Row   `json:"rows"`
	Figures []plot.Figure `json:"figures"`
	// Tables are figures that are not drawn.
	Tables []plot.Figure `json:"tables"`
}

// everything runs all experiments.
func everything(x extent) (*report, error) {
	r := &report{}
	two, err := evaluate(&p100s, x.seeds)
	if err != nil {
		return nil, err
	}
	four, err := evaluate(&v100s, x.seeds)
	if err != nil {
		return nil, err
	}
	nets := networks()
	gains, err := parallel.Map(x.seeds, func(i int) ([3]float64, error) {
		seed := uint64(i)
		return [3]float64{mixed(nets, seed, 1), mixed(nets, seed, 0.5), mixed(nets, seed, 2)}, nil
	})
	if err != nil {
		return nil, err
	}
	r.Rows = append(batchRows(two, four), networkRows(nets, gains)...)
	safe, err := safetyRows(x, two, four)
	if err != nil {
		return nil, err
	}
	r.Rows = append(r.Rows, safe...)
	for i := range r.Rows {
		if r.Rows[i].Missed() {
			r.Rows[i].Why = whys[r.Rows[i].ID]
		}
	}
	r.Figures = []plot.Figure{
		figure5(four), figure6("6a", two), figure6("6b", four), figure7(four), figure8(nets), figure9(nets),
	}
	r.Tables = []plot.Figure{table3(two, four), table4(two, four), table6(four), sensitivity(two, four), darknetSensitivity(nets)}
	for _, fs := range [][]plot.Figure{r.Figures, r.Tables} {
		for i := range fs {
			for _, row := range fs[i].Rows {
				for j := range row.Values {
					row.Values[j] = round(row.Values[j])
				}
				for j := range row.Spread {
					row.Spread[j] = round(row.Spread[j])
				}
			}
		}
	}
	return r, nil
}

// batchRows are the rows about Rodinia.
func batchRows(two, four *evaluation) (rows []goals.Row) {
	for _, e := range []struct {
		*evaluation
		gpus string
	}{{two, "2gpu"}, {four, "4gpu"}} {
		runs := len(table2) * len(e.cells[0])
		gain, half, double := pick(func(v variant) float64 { return v.own.gain })
		least := func(value func(*cell) float64) float64 {
			s, _ := e.least(value) // of whichever workload
			return s.mean
		}
		all := measured("sa_"+e.gpus, e.all(gain), runs, e.all(half).mean, e.all(double).mean)
		all.Beside = fmt.Sprintf("the authors' own mixes %.2f; algorithm 3 %.2f, algorithm 2 %.2f", e.authors(gain),
			e.all(func(c *cell) float64 { return c.alg3.gain }).mean, e.all(func(c *cell) float64 { return c.alg2.gain }).mean)
		s, name := e.least(gain)
		smallest := measured("sa_"+e.gpus+"_min", s, len(e.cells[0]), least(half), least(double))
		smallest.Beside = "of " + name
		gain, half, double = pick(func(v variant) float64 { return v.own.gain / v.meanCG() })
		cg := measured("cg_"+e.gpus, e.all(gain), runs, e.all(half).mean, e.all(double).mean)
		best := func(c *cell) float64 { v := c.nominal(); return v.own.gain / v.bestCG() }
		alg3 := func(v variant) float64 { return v.alg3.gain / v.meanCG() }
		cg.Beside = fmt.Sprintf("over the mean of %v workers; over each mix's best %.2f; the authors' own mixes %.2f; algorithm 3 %.2f, at half the host work %.2f",
			e.workers, e.all(best).mean, e.authors(gain), e.all(func(c *cell) float64 { return alg3(c.nominal()) }).mean, e.all(func(c *cell) float64 { return alg3(c.half) }).mean)
		gain, half, double = pick(func(v variant) float64 { return v.own.turn })
		turn := measured("turn_"+e.gpus, e.all(gain), runs, e.all(half).mean, e.all(double).mean)
		turn.Beside = fmt.Sprintf("with %d processes at a time, as the authors' driver: %.2f", e.released, e.all(func(c *cell) float64 { return c.released.turn }).mean)
		rows = append(rows, all, smallest, cg, turn)
	}
	runs := len(table2) * len(four.cells[0])
	order := func(c *cell) float64 { return c.own.gain / c.alg3.gain }
	alg := measured("alg3_alg2", four.all(func(c *cell) float64 { return c.alg3.gain / c.alg2.gain }), runs)
	a, b := two.all(order).mean, four.all(order).mean
	met := min(a, b) >= goalSet.Of("alg3_alg2").Limit
	alg.Met = &met
	stays := func(c *cell) float64 { return c.noIdle.gain / c.alg3.gain }
	alg.Beside = fmt.Sprintf("own queue / algorithm 3's: %.3f on two GPUs, %.3f on four, where unused memory stays %.3f and %.3f; algorithm 3 / 2 on two GPUs: %.2f; the authors' own mixes %.2f",
		a, b, two.all(stays).mean, four.all(stays).mean, two.all(func(c *cell) float64 { return c.alg3.gain / c.alg2.gain }).mean, four.authors(func(c *cell) float64 { return c.alg3.gain / c.alg2.gain }))
	w7 := 6
	busy := measured("util_mean", scaled(four.of(w7, func(c *cell) float64 { return c.own.busy })), len(four.cells[w7]))
	busy.Beside = fmt.Sprintf("SA %.1f, CG %.1f; the authors' own mix: %.1f, SA %.1f", 100*four.of(w7, func(c *cell) float64 { return c.sa.busy }).mean,
		100*four.of(w7, func(c *cell) float64 { return c.cg[0].busy }).mean, 100*four.cells[w7][0].own.busy, 100*four.cells[w7][0].sa.busy)
	peak := measured("util_peak", scaled(four.of(w7, func(c *cell) float64 { return c.own.peak })), len(four.cells[w7]))
	peak.Beside = fmt.Sprintf("of a second; SA %.0f, CG %.0f; the authors' own mix: %.0f, SA %.0f", 100*four.of(w7, func(c *cell) float64 { return c.sa.peak }).mean,
		100*four.of(w7, func(c *cell) float64 { return c.cg[0].peak }).mean, 100*four.cells[w7][0].own.peak, 100*four.cells[w7][0].sa.peak)
	slow, half, double := pick(func(v variant) float64 { return v.own.slow })
	mean := measured("slow_mean", scaled(four.all(slow)), runs, 100*four.all(half).mean, 100*four.all(double).mean)
	mean.Beside = fmt.Sprintf("algorithm 2 %.1f, algorithm 3 %.1f; on two GPUs %.1f", max(0, 100*four.all(func(c *cell) float64 { return c.alg2.slow }).mean),
		100*four.all(func(c *cell) float64 { return c.alg3.slow }).mean, 100*two.all(slow).mean)
	s, name := four.most(slow)
	sh, _ := four.most(half) // whichever workload that is then
	sd, _ := four.most(double)
	worst := measured("slow_worst", scaled(s), len(four.cells[0]), 100*sh.mean, 100*sd.mean)
	worst.Beside = "of " + name
	return append(rows, alg, busy, peak, mean, worst)
}

// authors returns the mean over the authors' own mixes.
func (e *evaluation) authors(value func(*cell) float64) (mean float64) {
	for i := range e.cells {
		mean += value(&e.cells[i][0]) / float64(len(e.cells))
	}
	return mean
}

// scaled returns a part as per cent.
func scaled(s stat) stat { return stat{100 * s.mean, 100 * s.spread} }

// networkRows are the rows about Darknet.
func networkRows(nets []networkRun, gains [][3]float64) (rows []goals.Row) {
	for _, n := range nets {
		r := measured("sched_"+n.name, stat{mean: n.gain}, 1)
		r.Beside = fmt.Sprintf("at half the host work %.2f, at double %.2f", n.half, n.double)
		rows = append(rows, r)
	}
	var of [3][]float64
	for _, g := range gains {
		for i := range of {
			of[i] = append(of[i], g[i])
		}
	}
	r := measured("mix128", statOf(of[0]), len(gains))
	r.Beside = fmt.Sprintf("at half the host work %.2f, at double %.2f", statOf(of[1]).mean, statOf(of[2]).mean)
	return append(rows, r)
}

// safetyRows are the rows about what must never happen.
func safetyRows(x extent, two, four *evaluation) ([]goals.Row, error) {
	found, err := parallel.Map(x.mixes, func(i int) (mishap, error) { return stir(uint64(i)), nil })
	if err != nil {
		return nil, err
	}
	var all mishap
	for _, m := range found {
		all.add(m)
	}
	batches := 0
	for _, e := range []*evaluation{two, four} {
		for _, seeds := range e.cells {
			for i := range seeds {
				all.oom += seeds[i].own.over
				all.passed = max(all.passed, seeds[i].own.passed)
				batches++
			}
		}
	}
	counts := []int{2, 3, 4, 6, 8, 12, 16, 24, 32}
	type share struct {
		off    float64
		passed time.Duration
	}
	fair, err := parallel.Map(len(counts)*x.shares, func(i int) (s share, _ error) {
		s.off, s.passed = shares(counts[i/x.shares], uint64(i%x.shares))
		return s, nil
	})
	if err != nil {
		return nil, err
	}
	off := 0.0
	for _, s := range fair {
		off, all.passed = max(off, s.off), max(all.passed, s.passed)
	}
	oom := measured("oom", stat{mean: float64(all.oom)}, x.mixes+batches)
	oom.Beside = fmt.Sprintf("%d tasks, %d times more memory, %d moves to another GPU and %d to the host, %d deaths of guests, %d lost GPUs",
		all.tasks, all.grown, all.moved, all.left, all.deaths, all.lost)
	return []goals.Row{
		oom, measured("deadlock", stat{mean: float64(all.stuck)}, x.mixes),
		measured("passed_worst", stat{mean: all.passed.Seconds()}, x.mixes+batches+len(fair)),
		measured("weight_error", stat{mean: 100 * off}, len(fair)),
	}, nil
}

// print prints the report.
func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "%s\n%s", r.rowTable(), plot.Texts(r.Figures, r.Tables))
}

// rowTable is the rows as a table.
func (r *report) rowTable() string {
	var b strings.Builder
	b.WriteString("| id | value | goal | met | paper | at half, double host work | beside |\n|---|---|---|---|---|---|---|\n")
	for _, row := range r.Rows {
		also := ""
		if row.Half != nil {
			also = fmt.Sprintf("%.2f, %.2f", *row.Half, *row.Double)
		}
		met := "yes"
		if row.Missed() {
			met = "**no**"
		}
		spread := ""
		if row.Spread > 0 {
			spread = fmt.Sprintf(" ± %.2f", row.Spread)
		}
		fmt.Fprintf(&b, "| `%s` | %.2f%s %s | %s | %s | %s | %s | %s |\n", row.ID, *row.Value, spread, row.Unit, row.Goal, met, row.Paper, also, row.Beside)
	}
	return b.String()
}

// write writes the report to a directory.
func (r *report) write(dir string) error {
	if err := goals.Write(filepath.Join(dir, "case.json"), r); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "case.svg"), []byte(plot.Page(r.Figures)), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "case.md"), []byte(r.markdown()), 0o644)
}
