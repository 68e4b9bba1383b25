package main

import (
	"fmt"
	"math"
	"time"

	"gonum.org/v1/gonum/stat"

	"vgpud/e2e/papers/parallel"
	"vgpud/e2e/papers/plot"
	"vgpud/gpu/soft/machine/blocks"
)

// geomean returns the geometric mean of a column of relative lengths.
func geomean(rows []plot.Row, column int) float64 {
	var values []float64
	for _, r := range rows {
		values = append(values, r.Values[column])
	}
	return stat.GeometricMean(values, nil)
}

// worst returns the largest value of a column and the name of its row.
func worst(rows []plot.Row, column int) (v float64, name string) {
	v = math.Inf(-1)
	for _, r := range rows {
		if r.Values[column] > v {
			v, name = r.Values[column], r.Name
		}
	}
	return v, name
}

func percent(ratio float64) float64 { return 100 * (ratio - 1) }

// p50 returns the median latency of a program's evictions.
func p50(k blocks.Kernel, f blocks.Form) float64 {
	return blocks.Quantile(blocks.Evictions(blocks.H100, k, f, 0.05, 0.95, 12), 0.5)
}

// figure10 compares the cost of the forms in kernels that are not evicted.
func (e *effisha) figure10() (plot.Figure, error) {
	f := plot.Figure{
		Number: "EffiSha 10", Title: "Transformation overhead: length relative to the original's", Log: true, YLabel: "relative length",
		Paper: "§8.3: basic up to 97 times, 10 times on average; with proxy 15 % on average, over 100 % for Stencil2D; " +
			"with all optimisations 4 %, at most 8 % (Triad; Stencil2D 8 %); PKM at equal latency 58 %, at most 140 %",
		Columns: []string{"kernel", "basic", "proxy", "all optimisations", "PKM, equal latency", "chosen form", "slicing, equal latency"},
	}
	rows, err := parallel.Map(len(table3), func(i int) (plot.Row, error) {
		k, s := e.kernels[i], e.subjects[i]
		original := blocks.Duration(blocks.H100, k, blocks.Form{})
		r := plot.Row{Name: table3[i].name}
		relative := func(length float64) { r.Values = append(r.Values, length/original) }
		form := func(f blocks.Form) { relative(withHost(f, blocks.Duration(blocks.H100, k, f))) }
		form(s.added.basic())
		form(s.added.proxied())
		adaptive := s.added.adaptive(k, time.Millisecond)
		form(adaptive)
		sliced, _ := slicing(k, p50(k, adaptive))
		relative(sliced)
		chosen := e.chosen[i]
		relative(withHost(chosen.form, float64(chosen.length)))
		sliced, _ = slicing(k, p50(k, chosen.form))
		relative(sliced)
		return r, nil
	})
	f.Rows = rows
	if err != nil {
		return f, err
	}
	f.Ours = "geometric means and worst:"
	for c, name := range f.Columns[1:] {
		v, of := worst(rows, c)
		f.Ours += fmt.Sprintf(" %s %+.1f %% and %+.1f %% (%s);", name, percent(geomean(rows, c)), percent(v), of)
	}
	return f, nil
}

// figure11 computes the cost of kernel slicing for several response times.
func (e *effisha) figure11() (plot.Figure, error) {
	f := plot.Figure{
		Number: "EffiSha 11", Title: "Overhead of kernel slicing by response time, per cent", YLabel: "overhead, %",
		Paper:   "§8.3: at 0.0625 ms 45 % on average, at most 98 %; less for longer responses",
		Columns: []string{"kernel", "1 ms", "0.5 ms", "0.25 ms", "0.125 ms", "0.0625 ms"},
	}
	rows, err := parallel.Map(len(table3), func(i int) (plot.Row, error) {
		k := e.kernels[i]
		original := blocks.Duration(blocks.H100, k, blocks.Form{})
		r := plot.Row{Name: table3[i].name}
		for _, response := range []float64{1e6, 5e5, 2.5e5, 1.25e5, 6.25e4} {
			// The worst response time is the length of a slice that has just begun.
			length, _ := slicing(k, response/2+blocks.H100.Gone)
			r.Values = append(r.Values, percent(length/original))
		}
		return r, nil
	})
	f.Rows = rows
	if err != nil {
		return f, err
	}
	means := plot.Row{Name: "(average)"}
	for c := range f.Columns[1:] {
		var sum float64
		for _, r := range rows {
			sum += r.Values[c]
		}
		means.Values = append(means.Values, sum/float64(len(rows)))
	}
	v, of := worst(rows, len(means.Values)-1)
	f.Rows = append(f.Rows, means)
	f.Ours = fmt.Sprintf("at 1 ms %.1f %% on average, at 0.0625 ms %.1f %%, at most %.1f %% (%s)", means.Values[0], means.Values[4], v, of)
	return f, nil
}

// figure13 computes the latency of evictions.
func (e *effisha) figure13() (plot.Figure, error) {
	f := plot.Figure{
		Number: "EffiSha 13", Title: "Preemption latency of each kernel, median, µs", Log: true, YLabel: "µs",
		Paper:   "§8.4: about 0.08 ms on average; MD the longest, 0.4 ms, because of its large block-task; BFS, FFT, NeuralNet and Triad less than 0.015 ms",
		Columns: []string{"kernel", "papers' loop, proxy, adaptive", "chosen form", "chosen form, p90", "a task in its slot"},
	}
	rows, err := parallel.Map(len(table3), func(i int) (plot.Row, error) {
		k, s := e.kernels[i], e.subjects[i]
		chosen := blocks.Evictions(blocks.H100, k, e.chosen[i].form, 0.05, 0.95, 20)
		task := blocks.Duration(blocks.H100, k, blocks.Form{}) * float64(min(uint64(blocks.H100.Slots(k)), k.Tasks)) / float64(k.Tasks)
		return plot.Row{Name: table3[i].name, Values: []float64{
			p50(k, s.added.adaptive(k, time.Millisecond)) / 1000,
			blocks.Quantile(chosen, 0.5) / 1000, blocks.Quantile(chosen, 0.9) / 1000, task / 1000,
		}}, nil
	})
	f.Rows = rows
	if err != nil {
		return f, err
	}
	var sum float64
	n, late := 0.0, ""
	for i, r := range rows {
		switch {
		case !e.chosen[i].evictable():
			late += fmt.Sprintf("; %s is left as it is, and ends by itself", r.Name)
			continue
		case r.Values[1] > float64(wanted.Microseconds()):
			late += fmt.Sprintf("; %s takes %.0f, a task of it being %.0f", r.Name, r.Values[1], r.Values[3])
		}
		sum += r.Values[1]
		n++
	}
	f.Ours = fmt.Sprintf("the chosen forms leave in %.0f µs on average, where %v were wanted%s", sum/n, wanted, late)
	return f, nil
}

// signals compares the ways to signal an eviction to the kernel: those of EffiSha §6.2 and §6.3,
// and the mediator's own write. Everything else is alike: persistent blocks, one task a fetch, a
// check at each.
func (e *effisha) signals() (plot.Figure, error) {
	f := plot.Figure{
		Number: "EffiSha 10, who tells", Title: "Who tells the kernel: relative length, and median latency in µs; one task a fetch, a look at each", Log: true,
		Paper:   "§6.3: plain up to 100 times slower (Triad), a proxy leaves 15 %; preemption-on-h100.md: host memory 880 to 960 times for short tasks, GPU memory written by the host +28 to +39 %",
		YLabel:  "relative length, or µs",
		Columns: []string{"kernel", "plain, length", "proxy, length", "mediator, length", "plain, µs", "proxy, µs", "mediator, µs"},
	}
	rows, err := parallel.Map(len(table3), func(i int) (plot.Row, error) {
		k, s := e.kernels[i], e.subjects[i]
		original := blocks.Duration(blocks.H100, k, blocks.Form{})
		r := plot.Row{Name: table3[i].name}
		forms := []blocks.Form{s.added.basic(), s.added.proxied(), s.added.ours()}
		for _, form := range forms {
			r.Values = append(r.Values, blocks.Duration(blocks.H100, k, form)/original)
		}
		for _, form := range forms {
			r.Values = append(r.Values, p50(k, form)/1000)
		}
		return r, nil
	})
	f.Rows = rows
	if err != nil {
		return f, err
	}
	f.Ours = fmt.Sprintf("geometric means: plain ×%.1f, proxy %+.1f %%, the mediator's own write %+.1f %%; median latencies %.0f, %.0f and %.0f µs",
		geomean(rows, 0), percent(geomean(rows, 1)), percent(geomean(rows, 2)), geomean(rows, 3), geomean(rows, 4), geomean(rows, 5))
	return f, nil
}
