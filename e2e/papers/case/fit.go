package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// factors scale the rules so that single assignment alone gives the paper's numbers.
type factors struct {
	// host is by how much the host work of each benchmark takes longer than its rule says, older the
	// same for all on the older host, and kernels the same for all launches.
	host           map[string]float64
	older, kernels float64
}

// fitted are the factors that `go run ./e2e/papers/case -fit` finds.
var fitted = factors{
	host: map[string]float64{
		"backprop": 1.100, "bfs": 1.111, "dwt2d": 1.018, "lavaMD": 1.588, "needle": 0.919, "srad_v1": 1.004, "srad_v2": 0.791,
	},
	older: 0.931, kernels: 1.849,
}

// table7 is the throughput of single assignment in jobs a second, W1 to W8 (the paper's table 7).
var table7 = map[string][]float64{
	"2xP100": {0.073, 0.068, 0.083, 0.108, 0.088, 0.099, 0.107, 0.070},
	"4xV100": {0.139, 0.123, 0.17, 0.189, 0.174, 0.184, 0.182, 0.143},
}

// busyW7 is the part of the time, over four GPUs, in which single assignment of W7 keeps a GPU busy
// (§5.2.3).
const busyW7 = 0.095

// alone returns how long single assignment takes for a batch, and the part of the GPUs' time in
// which they execute. Each job has a GPU for itself, so this needs no model of sharing.
func alone(jobs []*job, gpus int) (length time.Duration, busy float64) {
	free := make([]time.Duration, gpus)
	var sum time.Duration
	for _, j := range jobs {
		i := slices.Index(free, slices.Min(free))
		free[i] += j.length()
		sum += j.busy()
	}
	length = slices.Max(free)
	return length, float64(sum) / float64(length) / float64(gpus)
}

// misfits returns by how much single assignment is off for each workload of each host, as a
// logarithm, and last for the utilisation of W7.
func misfits() []float64 {
	var off []float64
	utilisation := 0.0
	for _, h := range []host{p100s, v100s} {
		h.slow = 1
		if h.name == p100s.name {
			h.slow = fitted.older
		}
		for i := range table2 {
			length, busy := alone(on(table2[i].mix(0), &h, 1), h.gpus)
			off = append(off, math.Log(float64(table2[i].jobs)/length.Seconds()/table7[h.name][i]))
			if h.name == v100s.name && table2[i].name == "W7" {
				utilisation = busy
			}
		}
	}
	return append(off, math.Log(utilisation/busyW7))
}

// stiffness is how much a factor away from 1 counts beside a workload off by as much.
const stiffness = 0.02

// cost is what fit makes small.
func cost() (sum float64) {
	for _, off := range misfits() {
		sum += off * off
	}
	for _, name := range slices.Sorted(maps.Keys(fitted.host)) {
		f := math.Log(fitted.host[name])
		sum += stiffness * f * f
	}
	return sum + stiffness*math.Log(fitted.older)*math.Log(fitted.older)
}

// fit looks for the factors with the smallest cost and prints them. It knows of single assignment
// only.
func fit(w io.Writer) {
	r := rand.New(rand.NewPCG(2022, 0))
	names := slices.Sorted(maps.Keys(rules))
	fitted = factors{host: make(map[string]float64), older: 1, kernels: 1}
	for _, name := range names {
		fitted.host[name] = 1
	}
	best := cost()
	for step, i := 0.3, 0; i < 20_000; i++ {
		old := factors{maps.Clone(fitted.host), fitted.older, fitted.kernels}
		for range 1 + r.IntN(2) {
			by := math.Exp(step * r.NormFloat64())
			switch n := r.IntN(len(names) + 2); n {
			case len(names):
				fitted.older *= by
			case len(names) + 1:
				fitted.kernels *= by
			default:
				fitted.host[names[n]] *= by
			}
		}
		if c := cost(); c < best {
			best = c
		} else {
			fitted = old
		}
		if i%2500 == 2499 {
			step *= 0.6
		}
	}
	for _, name := range names {
		fmt.Fprintf(w, "%-9s %.3f\n", name, fitted.host[name])
	}
	fmt.Fprintf(w, "%-9s %.3f\n%-9s %.3f\n", "older", fitted.older, "kernels", fitted.kernels)
	off := misfits()
	for i, h := range []string{p100s.name, v100s.name} {
		for j := range table2 {
			fmt.Fprintf(w, "%s %s: %+.1f %%\n", h, table2[j].name, 100*(math.Exp(off[8*i+j])-1))
		}
	}
	fmt.Fprintf(w, "utilisation of W7: %.1f %%\n", 100*busyW7*math.Exp(off[16]))
}
