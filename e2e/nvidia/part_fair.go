package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"vgpud/e2e/nvidia/figure"
)

// The throttles of LoGA's figure 11.
const (
	fairThrottles = 4
	fairKernel    = 200 * time.Microsecond
	fairPause     = 800 * time.Microsecond
)

// fairSchemes are how the GPU is shared; the last is ours, and NEON is in the daemon's
// place.
var fairSchemes = []string{"none", "neon", "loga-cl", "dfq-loga", "dfq"}

// fair measures how far programs beside four throttles are from a fair turnaround
// (LoGA §5.5).
func fair(ctx context.Context, b *bench) error {
	scaled, err := b.scale(ctx, fairKernel)
	if err != nil {
		return err
	}
	c, err := newCrowd(ctx, b, fairThrottles, scaled.iterations...)
	if err != nil {
		return err
	}
	alone, err := c.alone(ctx)
	if err != nil {
		return fmt.Errorf("alone: %w", err)
	}
	distances := make(map[string][]float64)
	var normal [][]float64 // medians for the page come from these: by app, Fair first
	for range b.runs() {
		turns, fairTimes, err := c.compete(ctx, alone, scaled.alone[0])
		if err != nil {
			return err
		}
		normal = normal[:0]
		for i := range c.apps {
			line := []float64{float64(fairTimes[i]) / float64(alone["daemon"][i])}
			for _, s := range fairSchemes {
				line = append(line, float64(turns[s][i])/float64(alone[under(s)][i]))
			}
			normal = append(normal, line)
		}
		for _, s := range fairSchemes {
			// Each is held against what it takes alone under the same accounting.
			own := make([]time.Duration, len(c.apps))
			for i := range own {
				own[i] = time.Duration(float64(fairTimes[i]) * float64(alone[under(s)][i]) / float64(alone["daemon"][i]))
			}
			distances[s] = append(distances[s], figure.Distance(turns[s], own))
		}
	}
	r := b.row("fair_distance", distances["dfq"], fmt.Sprintf("%d programs of the corpus, each beside %d throttles of %v + %v: geometric mean of how far the turnaround is from Fair (LoGA §5.5), as a factor, normalised by that alone under the same accounting; 1 is fair. Goal: the least of the others'", len(c.apps), fairThrottles, fairKernel, fairPause))
	r.Detail = detail(append([]string{"Fair"}, fairSchemes...)...)
	for i, a := range c.apps {
		r.Detail.Add(a.name, normal[i]...)
	}
	best := 0.0
	for _, s := range fairSchemes[:len(fairSchemes)-1] {
		d := figure.Median(distances[s])
		r.Baseline[s] = d
		if best == 0 || d < best {
			best = d
		}
	}
	r.Hold(best)
	b.add(r)
	return nil
}

// under is whose accounting a scheme has.
func under(scheme string) string {
	if scheme == "neon" {
		return "neon"
	}
	return "daemon"
}

func (c *crowd) fairWindow() time.Duration {
	return pick(c.bench, 20*time.Millisecond, 400*time.Millisecond, 800*time.Millisecond)
}

// alone is each program's turnaround alone, under the daemon's accounting and NEON's.
func (c *crowd) alone(ctx context.Context) (map[string][]time.Duration, error) {
	turns := make(map[string][]time.Duration)
	err := c.each(ctx, "dfq", c.fairWindow()/2, func(mean time.Duration) { turns["daemon"] = append(turns["daemon"], mean) })
	if err == nil {
		err = c.each(ctx, "neon", c.fairWindow()/2, func(mean time.Duration) { turns["neon"] = append(turns["neon"], mean) })
	}
	return turns, err
}

// each has each program work for a while under a scheme.
func (c *crowd) each(ctx context.Context, scheme string, window time.Duration, found func(mean time.Duration)) (err error) {
	if scheme == "neon" {
		if err := c.stopDaemon(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.startDaemon(ctx)) }()
		defer startNeon(ctx, c.gates, 1+len(c.throttles), true)()
	} else {
		// The papers' schemes could not stop a kernel.
		papers := scheme == "loga-cl" || scheme == "dfq-loga"
		if err := errors.Join(c.setPolicy(ctx, scheme), c.setShallow(ctx, papers)); err != nil {
			return err
		}
	}
	for i := range c.apps {
		mean, err := c.run(ctx, &c.apps[i], window)
		if err != nil {
			return err
		}
		found(mean)
	}
	return nil
}

// compete has each program work beside the throttles under each scheme, and finds
// from the scheme none what is fair.
func (c *crowd) compete(ctx context.Context, alone map[string][]time.Duration, solo time.Duration) (turns map[string][]time.Duration, fair []time.Duration, err error) {
	turns = make(map[string][]time.Duration)
	window := c.fairWindow()
	for _, scheme := range fairSchemes {
		length := time.Duration(len(c.apps))*(window+20*time.Millisecond) + 4*lead
		rans, err := c.throttle(ctx, 0, fairPause, length, func() error {
			return c.each(ctx, scheme, window, func(mean time.Duration) { turns[scheme] = append(turns[scheme], mean) })
		})
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", scheme, err)
		}
		if scheme != "none" {
			continue
		}
		// The throttles work alike all the time: each one's load is its part of the time
		// of every program.
		for i, turn := range turns[scheme] {
			var each []time.Duration
			for _, ran := range rans {
				load := float64(ran.Launches) * float64(solo) / float64(ran.Window)
				each = append(each, time.Duration(load*float64(turn)))
			}
			fair = append(fair, figure.Fair(turn, c.apps[i].executed, each))
		}
	}
	return turns, fair, nil
}
