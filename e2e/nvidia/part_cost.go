package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"vgpud/e2e/nvidia/figure"
)

// costThrottles is how many throttles there are (LoGA figure 7), costPause between
// their kernels, and costKernels how long these are.
const (
	costThrottles = 10
	costPause     = time.Millisecond
)

var costKernels = []time.Duration{10 * time.Microsecond, 100 * time.Microsecond}

// watch is who accounts for the guests.
type watch int

const (
	nobody  watch = iota // the daemon has ended, and the guests go on
	daemon               // under no policy
	neon                 // in the daemon's place
	watches              // how many
)

// cost measures what accounting costs the guests: turnarounds of programs beside ten
// throttles, with nobody accounting, with the daemon, and with NEON.
func cost(ctx context.Context, b *bench) error {
	scaled, err := b.scale(ctx, costKernels...)
	if err != nil {
		return err
	}
	c, err := newCrowd(ctx, b, pick(b, 2, costThrottles, costThrottles), scaled.iterations...)
	if err != nil {
		return err
	}
	for job, id := range []string{"accounting_cost_10us", "accounting_cost_100us"} {
		if err := c.cost(ctx, id, job, scaled.alone[job]); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
	}
	return nil
}

func (c *crowd) cost(ctx context.Context, id string, job int, solo time.Duration) error {
	window := pick(c.bench, 20*time.Millisecond, 300*time.Millisecond, 600*time.Millisecond)
	times := make([][watches][]float64, len(c.apps)) // seconds
	var loads [watches][]float64
	var costs, neons []float64
	for range c.runs() {
		for w := range watches {
			load, err := c.watched(ctx, w, job, solo, window, times)
			if err != nil {
				return err
			}
			loads[w] = append(loads[w], load)
		}
		var over [watches][]float64
		for _, t := range times {
			n := len(t[nobody]) - 1
			for w := range watches {
				over[w] = append(over[w], t[w][n]/t[nobody][n]-1)
			}
		}
		costs, neons = append(costs, figure.GeoMeanOverhead(over[daemon])), append(neons, figure.GeoMeanOverhead(over[neon]))
	}
	how := fmt.Sprintf("turnaround of %d programs of the corpus beside %d throttles of %v + %v, with the daemon's accounting over without any; geometric mean. NEON: in its place", len(c.apps), len(c.throttles), costKernels[job], costPause)
	r := c.row(id, costs, how)
	r.Detail = detail("ms without", "daemon", "NEON")
	for i, a := range c.apps {
		base := figure.Median(times[i][nobody])
		r.Detail.Add(a.name, 1e3*base, figure.Median(times[i][daemon])/base-1, figure.Median(times[i][neon])/base-1)
	}
	r.Baseline["neon"] = figure.Median(neons)
	r.Baseline["throttles_load_without"], r.Baseline["throttles_load_with"] = figure.Median(loads[nobody]), figure.Median(loads[daemon])
	r.Baseline["throttles_load_neon"] = figure.Median(loads[neon])
	published := map[int][2]float64{0: {0, 0.114}, 1: {0.007, 0.076}}[job]
	r.Baseline["loga_published"], r.Baseline["neon_published"] = published[0], published[1]
	c.add(r)
	return nil
}

// watched measures all programs with one kind of accounting, and the load of the
// throttles meanwhile.
func (c *crowd) watched(ctx context.Context, w watch, job int, solo, window time.Duration, times [][watches][]float64) (load float64, err error) {
	if w != daemon {
		if err := c.stopDaemon(); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, c.startDaemon(ctx)) }()
	}
	// Executors notice that the daemon is gone, and accounting that it is back.
	const settle = 300 * time.Millisecond
	if err := rest(ctx, settle); err != nil {
		return 0, err
	}
	if w == neon {
		defer startNeon(ctx, c.gates, 1+len(c.throttles), false)()
	}
	length := time.Duration(len(c.apps))*(window+10*time.Millisecond) + 4*lead
	rans, err := c.throttle(ctx, job, costPause, length, func() error {
		for i := range c.apps {
			mean, err := c.run(ctx, &c.apps[i], window)
			if err != nil {
				return err
			}
			times[i][w] = append(times[i][w], mean.Seconds())
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for _, ran := range rans {
		load += float64(ran.Launches) * float64(solo) / float64(ran.Window)
	}
	return load, nil
}
