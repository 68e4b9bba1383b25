package main

import (
	"fmt"
	"math"

	"vgpud/e2e/papers/plot"
	"vgpud/gpu/soft/machine/warps"
)

// figures are the paper's, redone.
func (r *results) figures() []plot.Figure {
	return []plot.Figure{
		r.figure1(), r.figure11a(), r.figure11b(0), r.figure11b(1), r.figure11c(), r.figure12(),
		r.figure13(low, "events", ofEvents), r.figure13(low, "background", ofBackground),
		r.figure13(high, "events", ofEvents), r.figure13(high, "background", ofBackground),
	}
}

// tables are what explains rows: they are not drawn.
func (r *results) tables() []plot.Figure {
	return []plot.Figure{r.tableKernels(), r.tableLeft(0), r.tableLeft(1), r.tablePairs(), r.tableANTT()}
}

func (r *results) figure1() plot.Figure {
	base, edge, preempted := r.totals()
	return plot.Figure{
		Number: "1", Title: "Launch and wait of an event, over all pairs", YLabel: "µs", Paper: "11.1 µs at first, 3.14 times and 2.06 times what EDGE with preemption takes",
		Columns: []string{"", "µs", "over EDGE with preemption"},
		Rows: []plot.Row{
			{Name: "CPU, draining", Values: []float64{base, base / preempted}}, {Name: "EDGE, draining", Values: []float64{edge, edge / preempted}},
			{Name: "EDGE, preemption", Values: []float64{preempted, 1}},
		},
	}
}

func (r *results) figure11a() plot.Figure {
	f := plot.Figure{Number: "11a", Title: "Cycles of a preemption without optimisations", YLabel: "cycles", Log: true, Paper: "2,000 to 8,000 on average", Columns: []string{"background"}}
	for _, v := range victimChoices {
		f.Columns = append(f.Columns, v.String())
	}
	for b, bg := range r.lab.backgrounds {
		row := plot.Row{Name: bg.name}
		for v := range victimChoices {
			row.Values = append(row.Values, mean(r.flushing[b][v][0].Flushes))
		}
		f.Rows = append(f.Rows, row)
	}
	row := plot.Row{Name: "mean"}
	for v := range victimChoices {
		row.Values = append(row.Values, r.flushing.mean(v, 0))
	}
	f.Rows = append(f.Rows, row)
	return floored(f)
}

func (r *results) figure11b(v int) plot.Figure {
	f := plot.Figure{
		Number: fmt.Sprintf("11b, %v", victimChoices[v]), Title: "What victims have in their pipelines, of all victims", YLabel: "%",
		Paper: "oldest: loads; newest: more diverse, also barriers", Columns: []string{"background"},
	}
	for _, x := range warps.Reasons() {
		f.Columns = append(f.Columns, x.String())
	}
	for b, bg := range r.lab.backgrounds {
		row, res := plot.Row{Name: bg.name}, r.flushing[b][v][0]
		for _, x := range warps.Reasons() {
			row.Values = append(row.Values, 100*float64(res.Reasons[x])/float64(res.Preempted))
		}
		f.Rows = append(f.Rows, row)
	}
	return f
}

func (r *results) figure11c() plot.Figure {
	f := plot.Figure{
		Number: "11c", Title: "Cycles of a preemption by optimisation, mean of the backgrounds", YLabel: "cycles", Log: true,
		Paper: "all four: 50 with the oldest as victim, 220 with the newest; 35.9 and 33.7 times less than none", Columns: []string{"optimisation"},
	}
	for _, v := range victimChoices {
		f.Columns = append(f.Columns, v.String())
	}
	for s, set := range flushSets {
		row := plot.Row{Name: set.name}
		for v := range victimChoices {
			row.Values = append(row.Values, r.flushing.mean(v, s))
		}
		f.Rows = append(f.Rows, row)
	}
	return floored(f)
}

func (r *results) figure12() plot.Figure {
	f := plot.Figure{
		Number: "12", Title: "Cycles that events wait that come at random times", YLabel: "cycles, at least 1", Log: true,
		Paper:   "mean 2.6 times less than draining, tail 2.9 times; with CONV and MM 115.7 and 68.4 times",
		Columns: []string{"event, background", "draining", "its p99", "preemption", "its p99", "any registers", "its p99"},
	}
	for i := range r.waits {
		p := &r.waits[i]
		row := plot.Row{Name: p.ev.name + ", " + p.bg.name}
		for _, w := range []int{draining, preempting, preemptingAny} {
			row.Values = append(row.Values, mean(p.waits[w]), tail(p.waits[w]))
		}
		f.Rows = append(f.Rows, row)
	}
	row := plot.Row{Name: "mean"}
	for _, w := range []int{draining, preempting, preemptingAny} {
		m, t := over(r.waits, w, anyPair)
		row.Values = append(row.Values, m, t)
	}
	f.Rows = append(f.Rows, row)
	return floored(f)
}

// floored has a logarithmic figure's values be at least 1.
func floored(f plot.Figure) plot.Figure {
	for _, row := range f.Rows {
		for i, v := range row.Values {
			if !math.IsNaN(v) {
				row.Values[i] = max(v, 1)
			}
		}
	}
	return f
}

func (r *results) figure13(load int, of string, value func(*slowdown) float64) plot.Figure {
	f := plot.Figure{
		Number: "13, " + loads[load].name + ", " + of, Title: "Slowdown of " + of + " over being alone, " + loads[load].name + " rate of events", YLabel: "times",
		Paper:   "events: preemption 1.3 times better than draining at the low rate, 1.4 and 2.8 times than draining and reservation at the high one",
		Columns: []string{"background, event"}, Log: of == "events",
	}
	for _, t := range techniques {
		f.Columns = append(f.Columns, t.name)
	}
	for i, p := range r.beside.pairs {
		row := plot.Row{Name: p[1] + ", " + p[0]}
		for t := range techniques {
			row.Values = append(row.Values, value(&r.beside.of[load][t][i]))
		}
		f.Rows = append(f.Rows, row)
	}
	row := plot.Row{Name: "mean"}
	for t := range techniques {
		row.Values = append(row.Values, r.beside.mean(load, t, value))
	}
	f.Rows = append(f.Rows, row)
	return f
}

func (r *results) tableKernels() plot.Figure {
	f := plot.Figure{Number: "K", Title: "Kernels", Paper: "alone, in cycles: IPv4 and IPv6 about 2,300, MemC and IPSec about 23,000", Columns: []string{"kernel", "cycles alone", "launches", "registers, most", "blocks, most"}}
	for _, a := range append(append([]*app{}, r.lab.backgrounds...), append(r.lab.events, r.lab.ping)...) {
		registers, blocks := 0, 0
		for _, g := range a.grids {
			registers, blocks = max(registers, g.Kernel.Registers()), max(blocks, g.Blocks)
		}
		f.Rows = append(f.Rows, plot.Row{Name: a.name, Values: []float64{r.lab.alone[a.name], float64(len(a.grids)), float64(registers), float64(blocks)}})
	}
	return f
}

// tableLeft is what victims still wait for with all four optimisations.
func (r *results) tableLeft(v int) plot.Figure {
	f := plot.Figure{
		Number: "P1, " + victimChoices[v].String(), Title: "With all four optimisations: victims whose pipelines have loads left that can't be dropped, other instructions left, or nothing",
		Paper:   "not given",
		Columns: []string{"background", "loads, %", "their cycles", "others, %", "their cycles", "nothing, %", "their cycles", "cycles, all"},
	}
	for b, bg := range r.lab.backgrounds {
		res := r.flushing[b][v][5]
		row := plot.Row{Name: bg.name}
		for _, l := range []warps.Left{warps.LoadLeft, warps.OtherLeft, warps.Nothing} {
			x := res.Left[l]
			row.Values = append(row.Values, 100*float64(x.Victims)/float64(res.Preempted), float64(x.Cycles)/float64(x.Victims))
		}
		row.Values = append(row.Values, mean(res.Flushes))
		f.Rows = append(f.Rows, row)
	}
	return f
}

// tablePairs is how pairs differ in figure 12.
func (r *results) tablePairs() plot.Figure {
	f := plot.Figure{
		Number: "P2", Title: "Draining over preemption by pair, which events may preempt (1) or may not (0), how many had to, and registers saved",
		Paper:   "MemC and IPSec may not preempt BP and BFS; registers are never saved",
		Columns: []string{"event, background", "mean, times", "p99, times", "may preempt", "preempted, %", "registers saved"},
	}
	for i := range r.waits {
		p := &r.waits[i]
		may := 0.0
		if p.allowed() {
			may = 1
		}
		w, d := p.waits[preempting], p.waits[draining]
		f.Rows = append(f.Rows, plot.Row{Name: p.ev.name + ", " + p.bg.name, Values: []float64{
			mean(d) / max(mean(w), 1), tail(d) / max(tail(w), 1), may, 100 * float64(p.preempted[preempting]) / float64(len(w)), float64(p.saved[preempting]),
		}})
	}
	return f
}

// tableANTT is each background's part in figure 13's means at the high rate.
func (r *results) tableANTT() plot.Figure {
	f := plot.Figure{
		Number: "P3", Title: "High rate, each background: slowdowns over preemption's, of events and of the background, and part of issue slots used under preemption",
		Paper:   "means alone",
		Columns: []string{"background", "events, draining", "events, reservation", "events, by rate", "background, draining", "background, reservation", "background, by rate", "issued, %"},
	}
	of := r.beside.of[high]
	for at := 0; at < len(r.beside.pairs); at += len(r.lab.events) {
		row := plot.Row{Name: r.beside.pairs[at][0]}
		for _, value := range []func(*slowdown) float64{ofEvents, ofBackground} {
			m := func(t int) float64 {
				var each []float64
				for i := at; i < at+len(r.lab.events); i++ {
					each = append(each, value(&of[t][i]))
				}
				return mean(known(each))
			}
			for _, t := range []int{byDraining, byReservation, byRate} {
				row.Values = append(row.Values, m(t)/m(byPreemption))
			}
		}
		var issued []float64
		for i := at; i < at+len(r.lab.events); i++ {
			x := &of[byPreemption][i].result
			issued = append(issued, 100*float64(x.Issued)/float64(x.Slots))
		}
		row.Values = append(row.Values, mean(issued))
		f.Rows = append(f.Rows, row)
	}
	return f
}
