package main

import (
	"fmt"
	"math/rand/v2"
)

// workload is a row of the paper's table 2.
type workload struct {
	name string
	jobs int
	// large is how many large jobs there are for each small one.
	large int
	// own is the authors' mix, as indexes of table1, in the order of their file
	// p100_{50,33,25,16}_{16,32}jobs_0.wl.
	own []int
}

// table2 are the workloads W1 to W8.
var table2 = []workload{
	{"W1", 16, 1, []int{2, 1, 16, 6, 5, 6, 3, 15, 7, 0, 1, 12, 15, 10, 9, 14}},
	{"W2", 16, 2, []int{12, 7, 12, 12, 5, 2, 9, 13, 15, 12, 6, 15, 1, 15, 1, 10}},
	{"W3", 16, 3, []int{13, 12, 9, 7, 12, 6, 16, 3, 15, 16, 5, 7, 14, 12, 7, 3}},
	{"W4", 16, 5, []int{10, 14, 10, 11, 3, 7, 8, 12, 10, 8, 2, 7, 7, 11, 13, 7}},
	{"W5", 32, 1, []int{15, 0, 0, 12, 3, 10, 13, 1, 10, 6, 3, 4, 15, 3, 4, 16, 6, 3, 13, 8, 0, 16, 2, 1, 14, 14, 16, 9, 5, 16, 6, 7}},
	{"W6", 32, 2, []int{13, 6, 6, 4, 2, 6, 10, 12, 10, 14, 16, 8, 15, 13, 3, 6, 11, 12, 8, 11, 13, 6, 9, 9, 7, 8, 6, 7, 3, 7, 14, 14}},
	{"W7", 32, 3, []int{5, 8, 9, 12, 15, 0, 14, 9, 0, 3, 7, 10, 6, 7, 15, 5, 11, 7, 8, 4, 10, 3, 8, 12, 8, 14, 7, 12, 11, 15, 12, 14}},
	{"W8", 32, 5, []int{12, 11, 3, 9, 16, 15, 13, 5, 1, 14, 11, 13, 9, 15, 7, 15, 3, 8, 9, 15, 16, 13, 9, 13, 12, 14, 14, 3, 14, 14, 7, 10}},
}

// ratio returns the workload's ratio as the paper writes it.
func (w *workload) ratio() string { return fmt.Sprintf("%d-job, %d:1", w.jobs, w.large) }

// mix returns the benchmarks of a workload in order of arrival: the authors' for seed 0, and random
// ones of the same ratio for others, drawn as the authors did: every (large+1)th is small, and then
// all are shuffled.
func (w *workload) mix(seed uint64) []benchmark {
	all := make([]benchmark, 0, w.jobs)
	if seed == 0 {
		for _, i := range w.own {
			all = append(all, table1[i])
		}
		return all
	}
	r := rand.New(rand.NewPCG(seed, uint64(w.jobs)<<8|uint64(w.large)))
	for i := range w.jobs {
		if i%(w.large+1) == w.large {
			all = append(all, table1[r.IntN(small)])
		} else {
			all = append(all, table1[small+r.IntN(len(table1)-small)])
		}
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// on returns the jobs of a mix on a host.
func on(mix []benchmark, h *host, times float64) []*job {
	jobs := make([]*job, len(mix))
	for i, b := range mix {
		jobs[i] = b.on(h, times)
	}
	return jobs
}
