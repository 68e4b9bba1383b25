package main

import (
	"errors"
	"fmt"
	"math"
	"time"

	"vgpud/e2e/papers/parallel"
	"vgpud/e2e/papers/plot"
)

// share is how two kernels in endless loops shared the GPU under ffs.
type share struct {
	pair string
	// parts holds, for each window of the run, the fraction of the time used that the guest of
	// higher weight got.
	parts []float64
	whole float64
	lost  float64 // fraction of the throughput
	// Components of the loss as fractions of the whole time: the cost of evictions, the cost of the
	// forms while they do work, and the time the GPU waits for the host.
	evictions, forms, host float64
	evictionCount          int     // evictions
	bound                  float64 // max_overhead
}

// window is the time over which shares are measured.
const window = 100 * time.Millisecond

// weighted runs two kernels in endless loops, with weights 2 and 1. The large one has the low
// weight, as in the experiments with hpf.
func (f *flep) weighted(low, high int, length time.Duration, overhead float64) (s share, err error) {
	s = share{pair: table1[high].name + "_" + table1[low].name, bound: overhead}
	w, err := newWorld(2, options{policy: "ffs", weights: []float64{1, 2}, overhead: overhead, seed: 1})
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	var useful, worked float64 // seconds of work in the original form and in the chosen form
	programs := []*program{f.large[low], f.small[high]}
	current := make([]*job, 2)
	for i, p := range programs {
		var again func(*job)
		again = func(before *job) {
			if before != nil {
				useful += p.alone.Seconds()
				worked += p.length.Seconds()
			}
			current[i] = &job{guest: i, program: p, priority: i, done: again}
			w.arrive(w.m.Now(), current[i])
		}
		again(nil)
	}
	busy := func() [2]float64 {
		return [2]float64{w.guests[0].group.Usage().Busy.Seconds(), w.guests[1].group.Usage().Busy.Seconds()}
	}
	last := busy()
	for w.m.Now() < length {
		w.run(w.m.Now() + window)
		now := busy()
		a, b := now[0]-last[0], now[1]-last[1]
		s.parts = append(s.parts, b/(a+b))
		last = now
	}
	s.whole = last[1] / (last[0] + last[1])
	for i, p := range programs {
		done := 1 - current[i].remaining()
		useful += done * p.alone.Seconds()
		worked += done * p.length.Seconds()
	}
	now, used := w.m.Now().Seconds(), last[0]+last[1]
	s.evictions, s.forms, s.host = (used-worked)/now, (worked-useful)/now, 1-used/now
	s.lost = 1 - useful/w.m.Now().Seconds()
	s.evictionCount = w.total
	return s, nil
}

// figures13and14 computes FLEP's FFS at weights 2:1.
func (f *flep) figures13and14(length time.Duration) ([]plot.Figure, []share, error) {
	shares := plot.Figure{
		Number: "FLEP 13", Lines: true, XLabel: "s", YLabel: "share",
		Title:   "Share of the GPU with weights 2:1 under ffs, over the 28 pairs",
		Paper:   "§6.3.3: roughly 2/3 and 1/3, error bars very narrow",
		Columns: []string{"s", "high", "low", "high, least", "high, most"},
	}
	cost := plot.Figure{
		Number: "FLEP 14", YLabel: "%",
		Title:   "Throughput lost under ffs by max_overhead, per cent",
		Paper:   "§6.3.3: close to the threshold of 10 %, with small variation",
		Columns: []string{"pair", "max_overhead 10 %", "evictions and host", "max_overhead 2 %", "evictions and host"},
	}
	pairs := highPairs()
	type both struct{ ten, two share }
	runs, err := parallel.Map(len(pairs), func(i int) (b both, err error) {
		if b.ten, err = f.weighted(pairs[i][0], pairs[i][1], length, 0.10); err != nil {
			return b, err
		}
		b.two, err = f.weighted(pairs[i][0], pairs[i][1], length, 0.02)
		return b, err
	})
	if err != nil {
		return nil, nil, err
	}
	var all []share
	for i := range runs[0].ten.parts {
		mean, least, most := 0.0, 1.0, 0.0
		for _, r := range runs {
			p := r.ten.parts[i]
			mean += p / float64(len(runs))
			least, most = min(least, p), max(most, p)
		}
		at := time.Duration(i+1) * window
		shares.Rows = append(shares.Rows, plot.Row{Name: fmt.Sprintf("%.1f", at.Seconds()), Values: []float64{mean, 1 - mean, least, most}})
	}
	off, lost := 0.0, [2]float64{}
	for _, r := range runs {
		all = append(all, r.ten, r.two)
		off = max(off, 100*math.Abs(r.ten.whole-2.0/3))
		cost.Rows = append(cost.Rows, plot.Row{Name: r.ten.pair, Values: []float64{
			100 * r.ten.lost, 100 * (r.ten.evictions + r.ten.host), 100 * r.two.lost, 100 * (r.two.evictions + r.two.host),
		}})
		lost[0] += 100 * r.ten.lost / float64(len(runs))
		lost[1] += 100 * r.two.lost / float64(len(runs))
	}
	shares.Ours = fmt.Sprintf("over %v at most %.2f points from 2/3", length, off)
	v, of := worst(cost.Rows, 0)
	w, at := worst(cost.Rows, 2)
	cost.Ours = fmt.Sprintf("%.1f %% on average, at most %.1f %% (%s); with a bound of 2 %% %.1f %%, at most %.1f %% (%s): what the forms cost anyway is no part of the bound",
		lost[0], v, of, lost[1], w, at)
	return []plot.Figure{shares, cost}, all, nil
}
