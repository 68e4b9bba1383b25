package main

import (
	"time"

	"vgpud/e2e/papers/parallel"
	"vgpud/fairshare/place"
)

// never is an idle time after which nothing leaves.
const never = 1000 * time.Hour

// result is what one scheduler makes of one mix, relative to single assignment.
type result struct {
	gain    float64 // in throughput
	turn    float64 // how many times sooner jobs end, by the mean over jobs
	slow    float64 // mean slowdown of launches
	busy    float64 // mean utilisation
	peak    float64
	crashed float64 // the part of the jobs that ran out of memory
	over    int     // how often memory was exceeded
	passed  time.Duration
	profile []float64 // utilisation in each second
}

// cell is one mix of one workload on one host under all schedulers.
type cell struct {
	sa, alg2, alg3, own result
	cg                  []result // by number of workers
	// The rest is the product's scheduler in other circumstances: without leaving of idle memory,
	// with memory held for the process's life and from the first launch, and with as many processes
	// at a time as the authors' driver ran.
	noIdle, forLife, fromLaunch, released result
	// half and double are the product's scheduler and CG at half and double host work.
	half, double variant
}

// variant is the product's scheduler, algorithm 3 and CG under other conditions.
type variant struct {
	own, alg3 result
	cg        []result
}

// nominal returns the variant with host work as it is.
func (c *cell) nominal() variant { return variant{c.own, c.alg3, c.cg} }

// compare runs a batch and compares it with single assignment's.
func compare(h *host, jobs []*job, sa *outcome, hold holding, make func(*sim) scheduler) result {
	var made scheduler
	o := simulate(h, jobs, hold, func(s *sim) scheduler {
		made = make(s)
		return made
	})
	r := result{gain: o.throughput() / sa.throughput(), slow: o.slowdown(), over: o.overcommitted, profile: o.busy}
	r.busy, r.peak = o.utilisation()
	var was, is time.Duration
	for i, at := range o.ended {
		if at > 0 {
			was, is = was+sa.ended[i], is+at
		}
	}
	r.turn = float64(was) / float64(is)
	r.crashed = 1 - float64(o.done)/float64(len(jobs))
	if b, ok := made.(*own); ok {
		r.passed = b.q.Passed()
	}
	return r
}

// runMix runs a mix under all schedulers.
func runMix(h *host, mix []benchmark) (c cell) {
	jobs := on(mix, h, 1)
	sa := simulate(h, jobs, fromAllocation, newSingle)
	try := func(hold holding, make func(*sim) scheduler) result { return compare(h, jobs, sa, hold, make) }
	c.sa = try(fromAllocation, newSingle)
	c.alg2 = try(fromAllocation, newPapers(place.Blocks{}, 0))
	c.alg3 = try(fromAllocation, newPapers(place.Warps{}, 0))
	c.own = try(fromAllocation, newOwn(place.Config{}, 0))
	for _, n := range h.workers {
		c.cg = append(c.cg, try(fromAllocation, newCG(n)))
	}
	c.noIdle = try(fromAllocation, newOwn(place.Config{Idle: never}, 0))
	c.forLife = try(forLife, newOwn(place.Config{Idle: never}, 0))
	c.fromLaunch = try(fromLaunch, newOwn(place.Config{}, 0))
	c.released = try(fromAllocation, newOwn(place.Config{}, h.released))
	for _, v := range []struct {
		times float64
		to    *variant
	}{{0.5, &c.half}, {2, &c.double}} {
		jobs := on(mix, h, v.times)
		sa := simulate(h, jobs, fromAllocation, newSingle)
		v.to.own = compare(h, jobs, sa, fromAllocation, newOwn(place.Config{}, 0))
		v.to.alg3 = compare(h, jobs, sa, fromAllocation, newPapers(place.Warps{}, 0))
		for _, n := range h.workers {
			v.to.cg = append(v.to.cg, compare(h, jobs, sa, fromAllocation, newCG(n)))
		}
	}
	return c
}

// evaluation are the cells of a host, by workload and seed.
type evaluation struct {
	*host
	cells [][]cell
}

// evaluate runs all workloads on a host, with so many seeds each.
func evaluate(h *host, seeds int) (*evaluation, error) {
	all, err := parallel.Map(len(table2)*seeds, func(i int) (cell, error) {
		return runMix(h, table2[i/seeds].mix(uint64(i%seeds))), nil
	})
	e := &evaluation{host: h}
	for i := range table2 {
		e.cells = append(e.cells, all[i*seeds:(i+1)*seeds])
	}
	return e, err
}

// stat is the mean and standard deviation of something over seeds.
type stat struct{ mean, spread float64 }

// of returns a value of a workload over its seeds.
func (e *evaluation) of(workload int, value func(*cell) float64) stat {
	var vs []float64
	for i := range e.cells[workload] {
		vs = append(vs, value(&e.cells[workload][i]))
	}
	return statOf(vs)
}

// all returns the mean over the workloads, seed by seed.
func (e *evaluation) all(value func(*cell) float64) stat {
	vs := make([]float64, len(e.cells[0]))
	for _, seeds := range e.cells {
		for i := range seeds {
			vs[i] += value(&seeds[i]) / float64(len(e.cells))
		}
	}
	return statOf(vs)
}

// least returns the smallest workload's mean.
func (e *evaluation) least(value func(*cell) float64) (s stat, name string) {
	for i := range e.cells {
		if o := e.of(i, value); name == "" || o.mean < s.mean {
			s, name = o, table2[i].name
		}
	}
	return s, name
}

// most returns the largest workload's mean.
func (e *evaluation) most(value func(*cell) float64) (stat, string) {
	s, name := e.least(func(c *cell) float64 { return -value(c) })
	return stat{-s.mean, s.spread}, name
}

// meanCG returns the gain of CG over SA, on average over the numbers of workers, and bestCG that of
// the best number.
func (v variant) meanCG() (sum float64) {
	for _, r := range v.cg {
		sum += r.gain / float64(len(v.cg))
	}
	return sum
}

func (v variant) bestCG() (best float64) {
	for _, r := range v.cg {
		best = max(best, r.gain)
	}
	return best
}
