package main

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"vgpud/e2e/papers/kernelcost"
	"vgpud/gpu/corpus"
	"vgpud/gpu/soft/sim"
	"vgpud/gpu/soft/simt"
	"vgpud/ptx"
)

// application is a program of the corpus: the modelled lengths of its launches, in order. It
// repeats them.
type application struct {
	name    string
	lengths []time.Duration
}

// load returns the application as a guest that keeps depth launches submitted.
func (a application) load(depth int) func() sim.Load {
	return func() sim.Load { return sim.Trace(a.name, depth, a.lengths) }
}

// longest returns the length of the application's longest kernel.
func (a application) longest() time.Duration { return slices.Max(a.lengths) }

// iteration returns the GPU time of all its launches.
func (a application) iteration() (sum time.Duration) {
	for _, d := range a.lengths {
		sum += d
	}
	return sum
}

// The soft GPU whose time is modelled: its defaults.
const (
	sms      = 8
	warpTime = 100 * time.Nanosecond // the whole GPU, for a simple instruction of a warp
)

var softGPU = kernelcost.GPU{SMs: sms, Blocks: 32, Threads: 2048, WarpTime: uint64(warpTime)}

// interpret runs each kernel of the corpus once and returns how long its launches last on the soft
// GPU, by its cost model.
func interpret(size corpus.Size) ([]application, error) {
	all := corpus.WithoutEDGE()
	apps, errs := make([]application, len(all)), make([]error, len(all))
	var group sync.WaitGroup
	slots := make(chan struct{}, 2)
	for i, k := range all {
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			apps[i].name = k.Name
			apps[i].lengths, errs[i] = measure(k, size)
		})
	}
	group.Wait()
	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("measure %s: %w", all[i].Name, err)
		}
	}
	return apps, nil
}

// measure interprets one kernel's case.
func measure(k corpus.Kernel, size corpus.Size) ([]time.Duration, error) {
	parsed, err := ptx.Parse(k.PTX(corpus.SM90))
	if err != nil {
		return nil, err
	}
	costs := simt.DefaultCosts
	costs.Block, costs.Warp = 8, 2 // as the soft GPU has them
	c := k.Case(size, 1)
	bench, err := kernelcost.New(parsed, c, simt.Options{Costs: &costs})
	if err != nil {
		return nil, err
	}
	var lengths []time.Duration
	for i := range c.Steps {
		_, cycles, err := bench.Step(softGPU, &c.Steps[i])
		if err != nil {
			return nil, fmt.Errorf("launch %d: %w", i, err)
		}
		lengths = append(lengths, time.Duration(cycles)*warpTime*sms)
	}
	return lengths, nil
}
