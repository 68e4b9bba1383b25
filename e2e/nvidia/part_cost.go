package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"vgpud/e2e/nvidia/figure"
	"vgpud/e2e/nvidia/report"
	"vgpud/e2e/nvidia/tenant"
	"vgpud/gpu/nvidia"
)

// costThrottles is the number of throttles (LoGA figure 7), costPause the pause between their
// kernels, and costKernels the kernels' lengths.
const (
	costThrottles = 10
	costPause     = time.Millisecond
)

var costKernels = []time.Duration{10 * time.Microsecond, 100 * time.Microsecond}

// watch is a way in which guests are accounted.
type watch int

const (
	byNobody watch = iota // the daemon has ended, and the guests go on
	byRecord              // the same, but the GPU records its context switches
	byDaemon              // under no policy
	byNeon                // NEON runs instead of the daemon
	watches               // the number of ways
)

// neonRuns is the number of NEON's runs, each of which takes many times as long as the others.
const neonRuns = 1

// cost measures what accounting costs the guests. It compares turnarounds of programs beside ten
// throttles without accounting, with the hardware's record alone, with the daemon, and with NEON.
func cost(ctx context.Context, b *bench) error {
	scaled, err := b.scale(ctx, costKernels...)
	if err != nil {
		return err
	}
	c, err := newCrowd(ctx, b, pick(b, 2, costThrottles, costThrottles), scaled.iterations...)
	if err != nil {
		return err
	}
	for job, id := range []string{"10us", "100us"} {
		m := &costMeasure{crowd: c, job: job, solo: scaled.alone[job], times: make([][watches][]float64, len(c.apps))}
		if err := b.repeat(float64(1+job)/2, func(run int) error { return m.run(ctx, run) }); err != nil {
			return fmt.Errorf("beside kernels of %s: %w", id, err)
		}
		m.add(id)
	}
	return nil
}

// costMeasure holds the measurements for one length of the throttles' kernels.
type costMeasure struct {
	*crowd
	job   int
	solo  time.Duration        // the kernels' length alone
	times [][watches][]float64 // seconds, by program
	loads [watches][]float64   // of the throttles
	// pauses is how often the daemon paused the record in each run.
	pauses []float64
}

// run measures each way once. Every second run has the opposite order, because the GPU and its
// clocks change over time.
func (m *costMeasure) run(ctx context.Context, run int) error {
	order := []watch{byNobody, byRecord, byDaemon}
	if run%2 == 1 {
		slices.Reverse(order)
	}
	if run < neonRuns {
		order = append(order, byNeon)
	}
	for _, w := range order {
		load, err := m.watched(ctx, w)
		if err != nil {
			return err
		}
		m.loads[w] = append(m.loads[w], load)
	}
	return nil
}

// typical returns what one way of accounting costs the median program over another: by the medians
// of all runs, and by each run alone. Some programs' turns among the throttles come in one of two
// orders for as long as a window, which makes tens of percent and rules the mean.
func (m *costMeasure) typical(of, over watch) (all float64, runs []float64) {
	var together []float64
	for _, t := range m.times {
		together = append(together, figure.Median(t[of])/figure.Median(t[over])-1)
	}
	for run := range m.times[0][of] {
		var some []float64
		for _, t := range m.times {
			some = append(some, t[of][run]/t[over][run]-1)
		}
		runs = append(runs, figure.Median(some))
	}
	return figure.Median(together), runs
}

// overhead returns what one way of accounting costs over another, as the geometric mean over the
// programs: by the medians of all runs, and by each run alone.
func (m *costMeasure) overhead(of, over watch) (all float64, runs []float64) {
	var programs []figure.Pair
	for _, t := range m.times {
		programs = append(programs, figure.Pair{Took: t[of], With: t[over]})
	}
	return figure.Together(programs, func(of, over []float64) float64 { return figure.GeoMeanOverhead(figure.Overheads(of, over)) })
}

// add makes the rows for one length.
func (m *costMeasure) add(id string) {
	neon := 0
	for i := range m.apps {
		if m.withNeon(&m.apps[i]) {
			neon++
		}
	}
	how := fmt.Sprintf("turnaround of %d programs of the corpus beside %d throttles of %v + %v, with the daemon's accounting over without any; geometric mean over the programs of the ratio of the medians of all runs. The spread is that of the runs' own means. "+
		"The record: nobody accounts, but the GPU records its context switches. NEON: in the daemon's place, %d run, beside %d of the programs, each for %v, which is %d of its rounds but for the draining in them. The order alternates",
		len(m.apps), len(m.throttles), costKernels[m.job], costPause, neonRuns, neon, m.neonWindow(1+len(m.throttles)), neonRounds)
	value, runs := m.overhead(byDaemon, byNobody)
	r := m.rowOf("accounting_cost_"+id, value, runs, how)
	r.Detail = detail("ms without", "daemon", "the record alone", "daemon over the record", "NEON")
	for i, a := range m.apps {
		t := &m.times[i]
		ratio := func(w, base watch) float64 { return figure.Median(t[w])/figure.Median(t[base]) - 1 }
		r.Detail.Add(a.name, 1e3*figure.Median(t[byNobody]), ratio(byDaemon, byNobody), ratio(byRecord, byNobody), ratio(byDaemon, byRecord), ratio(byNeon, byNobody))
	}
	r.Baseline["record_alone"], _ = m.overhead(byRecord, byNobody)
	r.Baseline["daemon_over_record"], _ = m.overhead(byDaemon, byRecord)
	r.Baseline["neon"], _ = m.overhead(byNeon, byNobody)
	for w, name := range map[watch]string{byNobody: "without", byRecord: "record", byDaemon: "with", byNeon: "neon"} {
		r.Baseline["throttles_load_"+name] = figure.Median(m.loads[w])
	}
	r.Baseline["record_pauses"] = figure.Median(m.pauses)
	r.How += medians(&r)
	published := map[int][2]float64{0: {0, 0.114}, 1: {0.007, 0.076}}[m.job]
	r.Baseline["loga_published"], r.Baseline["neon_published"] = published[0], published[1]
	typical, each := m.typical(byDaemon, byNobody)
	median := m.rowOf("accounting_cost_median_"+id, typical, each, "the same measurement; median over the programs, each by the medians of its runs. The spread is that of the runs' own medians")
	median.Baseline["record_alone"], _ = m.typical(byRecord, byNobody)
	m.crowd.add(r, median)
}

// medians describes the medians over the programs, because a few programs can dominate the mean.
func medians(r *report.Row) string {
	var all []string
	for column, name := range r.Detail.Columns[1:] {
		var some []float64
		for _, l := range r.Detail.Lines {
			if v := float64(l.Values[1+column]); !math.IsNaN(v) {
				some = append(some, v)
			}
		}
		if len(some) > 0 {
			all = append(all, fmt.Sprintf("%s %.4f (%d)", name, figure.Median(some), len(some)))
		}
	}
	text := ". Medians over the programs, of as many: " + strings.Join(all, ", ")
	if r.Spread > math.Abs(r.Value) {
		text += ". The spread is more than the value itself: this row says no more than of what order it is"
	}
	return text
}

// watched measures all programs with one way of accounting, and returns the load of the throttles
// meanwhile.
func (m *costMeasure) watched(ctx context.Context, w watch) (load float64, err error) {
	switch {
	case w == byDaemon && m.daemon == nil:
		err = m.startDaemon(ctx)
	case w != byDaemon:
		err = m.stopDaemon()
	}
	if err != nil {
		return 0, err
	}
	if w == byRecord {
		stop, rerr := m.record(ctx)
		if rerr != nil {
			return 0, rerr
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	// This is the time in which executors notice that the daemon has ended, and accounting that it
	// is back.
	const noticing = 300 * time.Millisecond
	if err := rest(ctx, noticing); err != nil {
		return 0, err
	}
	if w == byNeon {
		defer startNeon(ctx, m.gates, 1+len(m.throttles), false)()
	}
	if load, err = m.programs(ctx, w); err != nil || w != byDaemon {
		return load, err
	}
	gpus, err := m.client.GPUs(ctx)
	for _, g := range gpus { // there is one
		m.pauses = append(m.pauses, float64(g.RecordPauses))
	}
	return load, err
}

// programs measures the programs one after the other beside the throttles, and returns the load of
// the throttles.
func (m *costMeasure) programs(ctx context.Context, w watch) (float64, error) {
	throttle := tenant.Run{
		Job: m.job, Pause: costPause, Jitter: costPause / 50,
		Warm: pick(m.bench, 0, 50*time.Millisecond, 30*time.Millisecond), For: pick(m.bench, 20*time.Millisecond, 250*time.Millisecond, 100*time.Millisecond),
	}
	if w == byNeon {
		throttle.For = m.neonWindow(1 + len(m.throttles))
		throttle.Warm = throttle.For / neonRounds
	}
	var loads []float64
	for i := range m.apps {
		if w == byNeon && !m.withNeon(&m.apps[i]) {
			continue
		}
		at, err := m.among(ctx, &m.apps[i], throttle, m.throttles)
		if err != nil {
			return 0, err
		}
		m.times[i][w] = append(m.times[i][w], at.turn.Seconds())
		load := 0.0
		for _, n := range at.throttles {
			load += float64(n) * float64(m.solo) / float64(at.window)
		}
		loads = append(loads, load)
	}
	return figure.Mean(loads), nil
}

// record turns on the GPU's record of context switches without a reader; the driver's own timer
// moves the records. It does nothing on a GPU in software, which has no such record.
func (b *bench) record(ctx context.Context) (stop func() error, err error) {
	if b.kind != "nvidia" {
		return func() error { return nil }, nil
	}
	info, _, err := found(ctx, b.options)
	if err != nil {
		return nil, err
	}
	monitor, err := nvidia.OpenMonitor(nvidia.MonitorOptions{Info: info})
	if err != nil {
		return nil, err
	}
	events, err := monitor.Events()
	if err != nil {
		return nil, errors.Join(err, monitor.Close())
	}
	return func() error { return errors.Join(events.Close(), monitor.Close()) }, nil
}
