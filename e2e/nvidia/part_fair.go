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
)

// These are the throttles of LoGA's figure 11.
const (
	fairThrottles = 4
	fairKernel    = 200 * time.Microsecond
	fairPause     = 800 * time.Microsecond
)

// fairSchemes are the ways of sharing the GPU. The last one is this project's. NEON runs instead of
// the daemon.
var fairSchemes = []string{"neon", "loga-cl", "dfq-loga", "none", "dfq"}

// fairMeasure holds a program's turnarounds: by scheme, one for each run, in units of its
// turnaround alone under the same accounting.
type fairMeasure struct {
	alone map[string]time.Duration // by accounting
	turns map[string][]float64
	fair  []float64 // as a fair scheme would have it
}

// fair measures how far programs beside four throttles are from a fair turnaround (LoGA §5.5).
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
	if err := b.repeat(1, func(run int) error { return c.compete(ctx, found, run) }); err != nil {
		return err
	}
	b.add(c.fairRow(found))
	return nil
}

// fairRow makes the row. A scheme's distance uses each program's median over the runs, as LoGA's
// figure uses each program's mean. Within a distance, noise in one direction never cancels noise in
// the other.
func (c *crowd) fairRow(found []fairMeasure) report.Row {
	value, runs := distances(found, "dfq")
	neon := slices.DeleteFunc(slices.Clone(c.apps), func(a app) bool { return !c.withNeon(&a) })
	r := c.rowOf("fair_distance", value, runs, fmt.Sprintf("%d programs of the corpus, each beside %d throttles of %v + %v: geometric mean of how far the turnaround is from Fair (LoGA §5.5), as a factor, normalised by that alone under the same accounting; 1 is fair. Each program's turnaround and its Fair are the medians of all runs, for every scheme alike; the spread is that of the runs' own distances, which have each run's noise in them and stand at the table's end. What is fair follows from the GPU time that the program and the throttles used beside each other without scheduling, and is never below what the program takes alone. The order of the schemes alternates from program to program and run to run. NEON in the first run, which is not evened out, with %d of the programs, each over %d of its rounds but for the draining in them. Goal: the least of the others' but NEON's",
		len(c.apps), fairThrottles, fairKernel, fairPause, len(neon), neonRounds))
	r.Detail = detail(append([]string{"Fair"}, fairSchemes...)...)
	for i, a := range c.apps {
		line := []float64{figure.Median(found[i].fair)}
		for _, s := range fairSchemes {
			line = append(line, figure.Median(found[i].turns[s]))
		}
		r.Detail.Add(a.name, line...)
	}
	all, alone, spread := []float64{1}, []float64{1}, []float64{0}
	best := math.NaN()
	for _, s := range fairSchemes {
		d, runs := distances(found, s)
		all, alone, spread = append(all, d), append(alone, figure.Median(runs)), append(spread, figure.Spread(runs))
		if s == "dfq" {
			continue
		}
		r.Baseline[s] = d
		if s != "neon" && (math.IsNaN(best) || d < best) { // NEON measured other programs
			best = d
		}
	}
	r.Detail.Add("distance, of all runs together", all...)
	r.Detail.Add("median of the runs' own distances", alone...)
	r.Detail.Add("their spread", spread...)
	r.Hold(best)
	return r
}

// distances returns how far programs were from fair under a scheme: by the medians of all runs, and
// by each run alone. A distance is NaN if the scheme was not measured.
func distances(found []fairMeasure, scheme string) (all float64, runs []float64) {
	var programs []figure.Pair
	for _, m := range found {
		programs = append(programs, figure.Pair{Took: m.turns[scheme], With: m.fair})
	}
	return figure.Together(programs, figure.Distance[float64])
}

// fairWindow returns how long a program is measured under a scheme. Before that, for fairWarm, the
// scheme learns the program's behaviour, and is paid back what it let a program overdraw meanwhile:
// LoGA's programs ran for seconds.
func (c *crowd) fairWindow(scheme string) time.Duration {
	if scheme == "neon" {
		return c.neonWindow(1 + fairThrottles)
	}
	return pick(c.bench, 20*time.Millisecond, 250*time.Millisecond, 240*time.Millisecond)
}

func (c *crowd) fairWarm() time.Duration {
	return pick(c.bench, 0, 200*time.Millisecond, 160*time.Millisecond)
}

// aloneWindow returns how long a program is measured alone. Half of fairWindow is enough, because
// nothing interrupts the program; NEON, however, stops it in each round even then.
func (c *crowd) aloneWindow(accounting string) time.Duration {
	if accounting == "neon" {
		return c.fairWindow(accounting)
	}
	return c.fairWindow(accounting) / 2
}

// aloneWarm returns how long a program runs alone before it is measured: there is no debt to be
// paid back.
func (c *crowd) aloneWarm() time.Duration {
	return pick(c.bench, 0, 60*time.Millisecond, 60*time.Millisecond)
}

// unscheduled measures each program's turnaround alone, under the daemon's accounting and under
// NEON's.
func (c *crowd) unscheduled(ctx context.Context, found []fairMeasure) error {
	alone := func(accounting string) error {
		for i := range c.apps {
			if accounting == "neon" && !c.withNeon(&c.apps[i]) {
				continue
			}
			at, err := c.among(ctx, &c.apps[i], tenant.Run{Warm: c.aloneWarm(), For: c.aloneWindow(accounting)}, nil)
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

// underNeon runs NEON instead of the daemon while do runs.
func (c *crowd) underNeon(ctx context.Context, do func() error) (err error) {
	if err := c.stopDaemon(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.startDaemon(ctx)) }()
	defer startNeon(ctx, c.gates, 1+len(c.throttles), true)()
	return do()
}

// turnOf returns the daemon's schemes in the order in which a run measures them for a program. The
// order is reversed from program to program and from run to run, so that none is not always
// measured after the same scheme. It also avoids a change of the configuration between programs;
// the papers' schemes need a configuration of their own.
func turnOf(run, program int) []string {
	schemes := slices.DeleteFunc(slices.Clone(fairSchemes), func(s string) bool { return s == "neon" })
	if (run+program)%2 == 1 {
		slices.Reverse(schemes)
	}
	return schemes
}

// compete measures each program beside the throttles under each scheme, and adds the results to
// found. One scheme follows the other at once, so that other changes affect all schemes alike. NEON
// is measured in the first run only, because the daemon has to end for it.
func (c *crowd) compete(ctx context.Context, found []fairMeasure, run int) error {
	for i := range c.apps {
		schemes := turnOf(run, i)
		for _, scheme := range schemes {
			if err := c.under(ctx, scheme, i, &found[i]); err != nil {
				return fmt.Errorf("%s: %s: %w", c.apps[i].name, scheme, err)
			}
		}
		c.say("%s: %v alone, fair %.2f, %s", c.apps[i].name, found[i].alone["daemon"], last(found[i].fair), found[i].show(schemes))
	}
	if run > 0 {
		return nil
	}
	return c.underNeon(ctx, func() error {
		for i := range c.apps {
			if !c.withNeon(&c.apps[i]) {
				continue
			}
			at, err := c.beside(ctx, &c.apps[i], c.fairWindow("neon"))
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
	at, err := c.beside(ctx, &c.apps[i], c.fairWindow(scheme))
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
	fair := figure.Fair(m.alone["daemon"], at.turn, after[0], after[1:])
	m.fair = append(m.fair, over(fair, m.alone["daemon"]))
	return nil
}

// show describes the results of the newest run under the given schemes.
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
	throttles []int // the launches of each throttle in the window
}

// beside measures a program for a window beside figure 11's throttles.
func (c *crowd) beside(ctx context.Context, a *app, window time.Duration) (beside, error) {
	return c.among(ctx, a, tenant.Run{Warm: c.fairWarm(), For: window, Pause: fairPause, Jitter: fairPause / 50}, c.throttles)
}

// turnaround returns how long an iteration of the given number of launches takes, or 0 if no launch
// ended in the window. It counts the launches that ended in the window, and divides the time from
// the last end before the window to the last end in it. The window's own length would be wrong by
// up to a launch, and by up to a burst with the pause around it where launches end in bursts, as
// they do when programs take turns on the GPU. For a program that was stopped for most of the
// window, turnaround uses the window's length all the same.
func turnaround(ran *tenant.Ran, launches int) time.Duration {
	if ran.Launches == 0 {
		return 0
	}
	took := ran.Span
	if took == 0 { // no launch ended before the window, or none followed for longer than all of them took
		took = ran.Window
	}
	return took * time.Duration(launches) / time.Duration(ran.Launches)
}

// among measures a program while throttles work beside it.
func (c *crowd) among(ctx context.Context, a *app, throttle tenant.Run, throttles []*member) (at beside, err error) {
	// The program may be held back during the whole window.
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
		at.turn = turnaround(rans[0], a.launches)
	}
	return at, nil
}
