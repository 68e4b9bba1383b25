package main

import (
	"math/rand/v2"
	"time"

	"vgpud/fairshare/place"
	"vgpud/gpu/soft/machine"
)

// network is a row of the paper's table 5.
type network struct {
	name string
	// busy is the part of a job's time alone in which it uses the GPU: an estimate from the
	// networks' published times for an image, token or batch and what Darknet does on the host
	// between them.
	busy float64
	// memory is in bytes (the paper: 0.5 to 1.5 GB).
	memory uint64
	// rate is the throughput of eight such jobs under SchedGPU, in jobs a second (table 8).
	rate float64
	// paper is the paper's gain over that (figure 8).
	paper float64
}

// table5 are the networks. The values of busy are from:
//
//	predict   15 ms a picture on the GPU; 60 ms to read, decode and scale it
//	detect    2.5 ms a picture on the GPU; 100 ms to read and scale it, to draw boxes and write it
//	generate  160 µs of twenty small kernels a token, and as long to launch them and choose the token
//	train     10 ms a batch on the GPU; 20 ms to wait for 128 crops and to update
var table5 = []network{
	{"predict", 0.2, 1200e6, 0.042, 1.4},
	{"detect", 0.025, 700e6, 0.093, 1},
	{"generate", 0.5, 500e6, 0.037, 3.1},
	{"train", 0.33, 900e6, 0.013, 2.2},
}

// bursts is how many times host work and a launch alternate in a job: more change little.
const bursts = 50

// job returns a job that takes some seconds alone. Host work takes times as long.
func (n *network) job(length, times float64) *job {
	h := v100s
	need := machine.Resources{Threads: 256}
	full := uint64(h.config().Occupancy(need)) * uint64(h.spec.SMs)
	j := &job{
		name: n.name, before: seconds(process * times),
		request: place.Request{Memory: n.memory, Blocks: full, Threads: 256},
	}
	work := machine.Work{Duration: seconds(length * n.busy / bursts), Blocks: full, Need: need, Memory: 0.4}
	for range bursts {
		j.steps = append(j.steps,
			step{kind: onHost, time: seconds(length * (1 - n.busy) * times / bursts)},
			step{kind: onGPU, time: work.Duration, work: work})
	}
	return j
}

// eight returns eight like jobs. Each starts a little after the one before, as processes do.
func (n *network) eight(length, times float64) []*job {
	jobs := make([]*job, 8)
	for i := range jobs {
		jobs[i] = n.job(length, times)
		jobs[i].before += time.Duration(i) * 37 * time.Millisecond
	}
	return jobs
}

// length returns how long a job takes alone, such that eight under SchedGPU, and nothing else, give
// the paper's throughput.
func (n *network) length() float64 {
	low, high := 1.0, 2000.0
	for range 30 {
		mid := (low + high) / 2
		if simulate(&v100s, n.eight(mid, 1), fromAllocation, newSchedGPU).throughput() > n.rate {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// networkRun is what one network's eight jobs do.
type networkRun struct {
	network
	seconds           float64 // a job alone
	gain              float64 // of the product over SchedGPU
	half, double      float64 // at half and double host work
	ownBusy, besideIt float64 // mean utilisation of all GPUs, ours and SchedGPU's
	own, sched        *outcome
}

// networks runs eight jobs of each network under SchedGPU and under the product's scheduler.
func networks() []networkRun {
	runs := make([]networkRun, len(table5))
	for i, n := range table5 {
		r := networkRun{network: n, seconds: n.length()}
		compare := func(times float64) (own, sched *outcome) {
			jobs := n.eight(r.seconds, times)
			sched = simulate(&v100s, jobs, fromAllocation, newSchedGPU)
			own = simulate(&v100s, jobs, fromAllocation, newOwn(place.Config{}, 0))
			return own, sched
		}
		gain := func(own, sched *outcome) float64 { return own.throughput() / sched.throughput() }
		r.own, r.sched = compare(1)
		r.gain, r.half, r.double = gain(r.own, r.sched), gain(compare(0.5)), gain(compare(2))
		r.ownBusy, r.besideIt = r.own.mean(), r.sched.mean()
		runs[i] = r
	}
	return runs
}

// mixed returns the gain over single assignment of a random mix of 128 jobs.
func mixed(runs []networkRun, seed uint64, times float64) float64 {
	r := rand.New(rand.NewPCG(seed, 128))
	jobs := make([]*job, 128)
	for i := range jobs {
		n := runs[r.IntN(len(runs))]
		jobs[i] = n.job(n.seconds, times)
		jobs[i].before += time.Duration(i) * 37 * time.Millisecond
	}
	sa := simulate(&v100s, jobs, fromAllocation, newSingle)
	own := simulate(&v100s, jobs, fromAllocation, newOwn(place.Config{}, 0))
	return own.throughput() / sa.throughput()
}
