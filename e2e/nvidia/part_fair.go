package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"vgpud/e2e/nvidia/figure"
	"vgpud/e2e/nvidia/tenant"
)

// The throttles of LoGA's figure 11.
const (
	fairThrottles = 4
	fairKernel    = 200 * time.Microsecond
	fairPause     = 800 * time.Microsecond
)

// fairSchemes are how the GPU is shared; the last is ours, and NEON is in the daemon's
// place.
var fairSchemes = []string{"neon", "loga-cl", "dfq-loga", "none", "dfq"}

// fairMeasure is what a program's turnarounds came to: by scheme, one a run, in units
// of that alone under the same accounting.
type fairMeasure struct {
	alone map[string]time.Duration // by accounting
	turns map[string][]float64
	fair  []float64 // as it should be
}

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
	found := make([]fairMeasure, len(c.apps))
	for i := range found {
		found[i] = fairMeasure{alone: make(map[string]time.Duration), turns: make(map[string][]float64)}
	}
	if err := c.unscheduled(ctx, found); err != nil {
		return fmt.Errorf("alone: %w", err)
	}
	distances := make(map[string][]float64)
	err = b.repeat(1, func(run int) error {
		if err := c.compete(ctx, found, run == 0); err != nil {
			return err
		}
		for _, s := range fairSchemes {
			var turns, fair []float64
			for _, m := range found {
				if n := len(m.turns[s]); n > run {
					turns, fair = append(turns, m.turns[s][run]), append(fair, m.fair[run])
				}
			}
			if len(turns) > 0 {
				distances[s] = append(distances[s], figure.Distance(turns, fair))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	r := b.row("fair_distance", distances["dfq"], fmt.Sprintf("%d programs of the corpus, each beside %d throttles of %v + %v: geometric mean of how far the turnaround is from Fair (LoGA §5.5), as a factor, normalised by that alone under the same accounting; 1 is fair. What is fair follows from the GPU time that the program and the throttles used beside each other without scheduling. NEON in the first run. Goal: the least of the others'", len(c.apps), fairThrottles, fairKernel, fairPause))
	r.Detail = detail(append([]string{"Fair"}, fairSchemes...)...)
	for i, a := range c.apps {
		line := []float64{figure.Median(found[i].fair)}
		for _, s := range fairSchemes {
			line = append(line, figure.Median(found[i].turns[s]))
		}
		r.Detail.Add(a.name, line...)
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

// fairWindow is for how long a program is measured under a scheme, after fairWarm in
// which that finds out what the program is like, and pays back what it let somebody take
// meanwhile: LoGA's programs ran for seconds.
func (c *crowd) fairWindow() time.Duration {
	return pick(c.bench, 20*time.Millisecond, 250*time.Millisecond, 240*time.Millisecond)
}

func (c *crowd) fairWarm() time.Duration {
	return pick(c.bench, 0, 200*time.Millisecond, 160*time.Millisecond)
}

// unscheduled finds each program's turnaround alone, under the daemon's accounting and
// NEON's.
func (c *crowd) unscheduled(ctx context.Context, found []fairMeasure) error {
	alone := func(accounting string) error {
		for i := range c.apps {
			at, err := c.beside(ctx, &c.apps[i], c.fairWindow()/2, nil)
			if err != nil {
				return err
			}
			found[i].alone[accounting] = at.turn
		}
		return nil
	}
	if err := errors.Join(c.setPolicy(ctx, "dfq"), alone("daemon")); err != nil {
		return err
	}
	return c.underNeon(ctx, func() error { return alone("neon") })
}

// underNeon has NEON in the daemon's place while do runs.
func (c *crowd) underNeon(ctx context.Context, do func() error) (err error) {
	if err := c.stopDaemon(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.startDaemon(ctx)) }()
	defer startNeon(ctx, c.gates, 1+len(c.throttles), true)()
	return do()
}

// compete has each program work beside the throttles under each scheme, one right after
// the other so that whatever else changes changes for all, and adds to what was found.
// Only with all is NEON among them, for which the daemon has to end.
func (c *crowd) compete(ctx context.Context, found []fairMeasure, all bool) error {
	schemes := slices.DeleteFunc(slices.Clone(fairSchemes), func(s string) bool { return s == "neon" })
	for i := range c.apps {
		for _, scheme := range schemes {
			if err := c.under(ctx, scheme, i, &found[i]); err != nil {
				return fmt.Errorf("%s: %s: %w", c.apps[i].name, scheme, err)
			}
		}
		slices.Reverse(schemes) // the papers' need another configuration
		c.say("%s: %v alone, fair %.2f, %s", c.apps[i].name, found[i].alone["daemon"], last(found[i].fair), found[i].show(schemes))
	}
	if !all {
		return nil
	}
	return c.underNeon(ctx, func() error {
		for i := range c.apps {
			at, err := c.beside(ctx, &c.apps[i], c.fairWindow(), c.throttles)
			if err != nil {
				return fmt.Errorf("%s: neon: %w", c.apps[i].name, err)
			}
			found[i].turns["neon"] = append(found[i].turns["neon"], over(at.turn, found[i].alone["neon"]))
		}
		return nil
	})
}

// under measures a program beside the throttles under one of the daemon's schemes.
func (c *crowd) under(ctx context.Context, scheme string, i int, m *fairMeasure) error {
	// The papers' schemes could not stop a kernel.
	papers := scheme == "loga-cl" || scheme == "dfq-loga"
	if err := errors.Join(c.setPolicy(ctx, scheme), c.setShallow(ctx, papers)); err != nil {
		return err
	}
	all := append([]*member{c.app}, c.throttles...)
	used := func() ([]time.Duration, error) {
		if scheme != "none" {
			return nil, nil
		}
		if err := rest(ctx, accountingLag); err != nil {
			return nil, err
		}
		return c.used(ctx, all)
	}
	before, err := used()
	if err != nil {
		return err
	}
	at, err := c.beside(ctx, &c.apps[i], c.fairWindow(), c.throttles)
	if err != nil {
		return err
	}
	m.turns[scheme] = append(m.turns[scheme], over(at.turn, m.alone["daemon"]))
	after, err := used()
	if err != nil || after == nil {
		return err
	}
	for i := range after {
		after[i] -= before[i]
	}
	fair := figure.Fair(at.turn, after[0], after[1:])
	m.fair = append(m.fair, over(fair, m.alone["daemon"]))
	return nil
}

// show is what the newest run found under schemes.
func (m *fairMeasure) show(schemes []string) string {
	var all []string
	for _, s := range slices.Sorted(slices.Values(schemes)) {
		all = append(all, fmt.Sprintf("%s %.2f", s, last(m.turns[s])))
	}
	return strings.Join(all, ", ")
}

func last(all []float64) float64 { return all[len(all)-1] }

func over(turn, alone time.Duration) float64 { return float64(turn) / float64(alone) }

// beside is a program's turnaround beside throttles.
type beside struct {
	turn      time.Duration
	window    time.Duration
	throttles []int // launches in it
}

// beside has a program work for a window beside figure 11's throttles.
func (c *crowd) beside(ctx context.Context, a *app, window time.Duration, throttles []*member) (beside, error) {
	return c.among(ctx, a, tenant.Run{Warm: c.fairWarm(), For: window, Pause: fairPause, Jitter: fairPause / 50}, throttles)
}

// among has a program work as long as throttles do. Its turnaround follows from how many
// launches it got done, whatever part of an iteration they were.
func (c *crowd) among(ctx context.Context, a *app, throttle tenant.Run, throttles []*member) (at beside, err error) {
	// It may be held back for all of a window.
	for ; at.turn == 0; throttle.For *= 2 {
		const longest = 10 * time.Second
		if throttle.For > longest {
			return at, fmt.Errorf("%s: nothing is launched in %v", a.name, throttle.For/2)
		}
		tasks := []task{{c.app, tenant.Run{Job: a.job, Warm: throttle.Warm, For: throttle.For, Rounds: a.rounds, Depth: appDepth}}}
		for _, m := range throttles {
			tasks = append(tasks, task{m, throttle})
		}
		rans, err := together(ctx, tasks...)
		if err != nil {
			return at, err
		}
		at.window, at.throttles = rans[0].Window, nil
		for _, ran := range rans[1:] {
			at.throttles = append(at.throttles, ran.Launches)
		}
		if n := rans[0].Launches; n > 0 {
			at.turn = rans[0].Window * time.Duration(a.launches) / time.Duration(n)
		}
	}
	return at, nil
}
