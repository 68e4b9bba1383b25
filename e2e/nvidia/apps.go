package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"vgpud/e2e/nvidia/figure"
	"vgpud/e2e/nvidia/tenant"
	"vgpud/gpu/corpus"
)

// app is a kernel of the corpus as a program that does not stop: iterations of some rounds of its
// launches and its I/O (LoGA §5.1).
type app struct {
	name   string
	job    int
	rounds int
	// launches is how many an iteration has.
	launches int
	// executed is what an iteration is on the GPU for, alone.
	executed time.Duration
}

// appIteration is about how long an iteration is alone, and appDepth how many launches a program
// has under way.
const (
	appIteration = 3 * time.Millisecond
	appDepth     = 16
)

// featureTests are the corpus' kernels that try an instruction or a feature of GPUs each and stand
// for no program.
var featureTests = []string{
	"approx", "atomics", "barriers", "calls", "earlyreturn", "globals", "half", "indices", "inlineptx", "integers",
	"localarray", "opcodes", "rounding", "say", "throttle", "warp",
}

// likePapers are the programs that are most like the papers'.
var likePapers = []string{"bfs/large", "hotspot/large", "kmeans/large", "lennardjones/large", "matmul/large", "nnlayer/large", "particlefilter/large", "srad/large"}

// appNames are the programs: all of the corpus. The quick ones are those that are most like the
// papers'.
func (b *bench) appNames() []string {
	if b.tiny {
		return []string{"vecadd/trivial"}
	}
	if b.quick {
		return likePapers
	}
	var names []string
	for _, k := range corpus.WithoutEDGE() {
		if !slices.Contains(featureTests, k.Name) {
			names = append(names, k.Name+"/large")
		}
	}
	return names
}

// crowd is a program's guest and guests with throttles beside it (LoGA §5.2), which NEON can hold
// back.
type crowd struct {
	*bench
	gates     *tenant.Gates
	app       *member
	throttles []*member
	apps      []app
}

// newCrowd makes the guests, each throttle with kernels of so many iterations.
func newCrowd(ctx context.Context, b *bench, throttles int, iterations ...int) (_ *crowd, err error) {
	c := &crowd{bench: b}
	path := filepath.Join(b.dir, "gates")
	if c.gates, err = tenant.NewGates(path, 1+throttles); err != nil {
		return nil, err
	}
	seats := []seat{{setup: tenant.Setup{Name: "app", Gate: path}}}
	for i := range throttles {
		seats = append(seats, seat{setup: tenant.Setup{Name: fmt.Sprintf("throttle%d", i), Gate: path, Slot: 1 + i}})
	}
	all, err := b.open(ctx, seats...)
	if err != nil {
		return nil, err
	}
	c.app, c.throttles = all[0], all[1:]
	for _, m := range c.throttles {
		for _, n := range iterations {
			s := b.full(n)
			j, err := m.load(ctx, tenant.Job{Spin: &s})
			if err != nil {
				return nil, err
			}
			if _, err := m.run(ctx, tenant.Run{Job: j, Count: 2}); err != nil {
				return nil, err
			}
		}
	}
	for _, name := range b.appNames() {
		a, err := c.load(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		c.apps = append(c.apps, a)
	}
	return c, nil
}

// load loads a program and finds how many rounds an iteration has.
func (c *crowd) load(ctx context.Context, name string) (a app, err error) {
	a.name = name
	if a.job, err = c.app.load(ctx, tenant.Job{Case: name}); err != nil {
		return a, err
	}
	first, err := c.app.run(ctx, tenant.Run{Job: a.job, Count: 5, Depth: appDepth, Check: true})
	if err != nil {
		return a, err
	}
	one := figure.Quantile(first.Turnarounds, 0.5)
	a.rounds = int(min(max(appIteration/max(one, 1), 1), 256))
	ran, err := c.app.run(ctx, tenant.Run{Job: a.job, Count: 3, Rounds: a.rounds, Depth: appDepth})
	if err != nil {
		return a, err
	}
	a.launches = ran.Launches / 3
	for _, d := range ran.Executed {
		a.executed += d / 3
	}
	return a, nil
}
