package main

import (
	"fmt"
	"math"
	"time"

	"vgpud/fairshare/place"
	"vgpud/gpu/soft/machine"
)

// host is a machine of the paper's evaluation.
type host struct {
	name string
	gpus int
	spec place.Spec
	// bandwidth is that of a GPU's memory under load and pcie that of copies from pageable memory,
	// in bytes a second.
	bandwidth, pcie float64
	// pair is the time in seconds of one interaction of two particles in lavaMD, in double
	// precision.
	pair float64
	// slow is how long host work takes relative to the newer host.
	slow float64
	// workers are the processes that CG runs at a time, on all GPUs together (table 3), and released
	// is how many the authors' driver ran under CASE.
	workers  []int
	released int
}

const gib = 1 << 30

var (
	p100s = host{
		name: "2xP100", gpus: 2, spec: place.Spec{Memory: 16 * gib, SMs: 56, WarpsPerSM: 64, BlocksPerSM: 32, SharedPerSM: 64 << 10, RegistersPerSM: 65536},
		bandwidth: 500e9, pcie: 6e9, pair: 14e-12, slow: fitted.older, workers: []int{3, 4, 5, 6}, released: 10,
	}
	v100s = host{
		name: "4xV100", gpus: 4, spec: place.Spec{Memory: 16 * gib, SMs: 80, WarpsPerSM: 64, BlocksPerSM: 32, SharedPerSM: 96 << 10, RegistersPerSM: 65536},
		bandwidth: 700e9, pcie: 8e9, pair: 8e-12, slow: 1, workers: []int{6, 8, 10, 12}, released: 16,
	}
)

// rule is how a benchmark's job follows from the size n of its problem.
type rule struct {
	// footprint is GPU memory in bytes for each unit of n.
	footprint float64
	// before, inside and after are host work in nanoseconds for each unit of n: before the first
	// allocation, between it and the last free, and after that. early is the part of inside that
	// comes before the first launch.
	before, inside, after float64
	early                 float64
	// in and out are bytes copied to the GPU and back for each unit of n.
	in, out float64
	// moved are the bytes that all launches move for each unit of n; for lavaMD its interactions
	// count instead.
	moved float64
	// launches is how many launches stand for the benchmark's. threads are those of a block, blocks
	// the largest grid for each unit of n, and memory the part of the time that blocks wait for
	// memory.
	launches int
	threads  uint32
	shared   uint64
	blocks   func(n float64) float64
	memory   float64
}

// rules are the benchmarks' rules. Footprints are the paper's (table 1). Host work is what the
// benchmark's source does for each unit, at 10 ns for a random number, 80 for reading a number from
// text, 100 to 150 for writing one, 50 for a small allocation or its free, and 1 to 3 ns for an
// element that is only copied or set.
var rules = map[string]*rule{
	// n input units of 16 weights. Before: two arrays of n rows are allocated, 17 n random weights
	// drawn, and all copied to one dimension. After: the rows are freed.
	"backprop": {
		footprint: 144, before: 430, inside: 10, after: 100, in: 208, out: 73, moved: 300,
		launches: 2, threads: 256, shared: 1088, blocks: func(n float64) float64 { return n / 16 }, memory: 0.9,
	},
	// n nodes. Before: 14 numbers a node are read from text. Inside: a line a node is written before
	// the memory is freed.
	"bfs": {
		footprint: 39, before: 1120, inside: 150, after: 5, in: 45, out: 4, moved: 1500,
		launches: 12, threads: 512, blocks: func(n float64) float64 { return n / 512 }, memory: 0.9,
	},
	// n pixels. The memory is allocated first, then the image is drawn at random and exponentiated.
	"srad_v2": {
		footprint: 24, before: 5, inside: 30, early: 1, after: 2, in: 8, out: 8, moved: 120,
		launches: 4, threads: 256, shared: 6144, blocks: func(n float64) float64 { return n / 256 }, memory: 0.8,
	},
	// n pixels, 100 iterations. Before: the image is resized. Inside: a number a pixel is written
	// before the memory is freed.
	"srad_v1": {
		footprint: 32, before: 15, inside: 100, after: 3, in: 4, out: 4, moved: 100 * 90,
		launches: 20, threads: 512, blocks: func(n float64) float64 { return n / 512 }, memory: 0.9,
	},
	// n pixels of three components.
	"dwt2d": {
		footprint: 31, before: 5, inside: 10, early: 0.5, after: 3, in: 3, out: 3, moved: 150,
		launches: 9, threads: 192, shared: 9000, blocks: func(n float64) float64 { return n / (192 * 8) }, memory: 0.6,
	},
	// n cells of the matrix, that is, the square of its side. Blocks of 16 threads along its
	// diagonals.
	"needle": {
		footprint: 8, before: 8, inside: 1, after: 1, in: 8, out: 4, moved: 40,
		launches: 8, threads: 16, shared: 2180, blocks: func(n float64) float64 { return math.Sqrt(n) / 16 }, memory: 0.3,
	},
	// n boxes of 100 particles. Before: 500 random numbers a box, and its 27 neighbours.
	"lavaMD": {
		footprint: 7856, before: 27*10 + 500*15, inside: 0, after: 600, in: 7850, out: 3200,
		launches: 1, threads: 128, shared: 7200, blocks: func(n float64) float64 { return n }, memory: 0.05,
	},
}

// process is what each process does before anything else: it starts and makes a context.
const process = 0.5 // seconds

// kernelHeap is what kernels may allocate (§3.1.3).
const kernelHeap = 8 << 20

// benchmark is a row of the paper's table 1.
type benchmark struct {
	rule string
	n    float64
}

// table1 are the rows of table 1 in its order: small ones first, from the eighth on large ones.
var table1 = []benchmark{
	{"backprop", 8388608},
	{"bfs", 32 << 20},
	{"srad_v2", 8192 * 8192},
	{"dwt2d", 8192 * 8192},
	{"needle", 16384 * 16384},
	{"backprop", 16777216},
	{"srad_v1", 11000 * 11000},
	{"backprop", 33554432},
	{"srad_v2", 16384 * 16384},
	{"srad_v1", 15000 * 15000},
	{"lavaMD", 100 * 100 * 100},
	{"dwt2d", 16384 * 16384},
	{"needle", 32768 * 32768},
	{"backprop", 67108864},
	{"lavaMD", 110 * 110 * 110},
	{"srad_v1", 20000 * 20000},
	{"lavaMD", 120 * 120 * 120},
}

// small is how many rows of table1 are small.
const small = 7

func (b benchmark) String() string { return fmt.Sprintf("%s %.0f", b.rule, b.n) }

// kind is a kind of step.
type kind uint8

const (
	onHost  kind = iota
	copying      // to the GPU or back
	onGPU        // a launch
)

// step is a part of a task.
type step struct {
	kind kind
	time time.Duration
	work machine.Work
}

// job is a process to run.
type job struct {
	name          string
	before, after time.Duration
	steps         []step
	request       place.Request
}

// length returns how long the job takes alone.
func (j *job) length() time.Duration {
	d := j.before + j.after
	for _, s := range j.steps {
		d += s.time
	}
	return d
}

// busy returns how long it uses the GPU.
func (j *job) busy() (d time.Duration) {
	for _, s := range j.steps {
		if s.kind == onGPU {
			d += s.time
		}
	}
	return d
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// waves is into how many rounds of blocks a grid that fills a GPU is divided at most. Most of the
// real ones have a thousand or more, and take too long to simulate. A launch that begins beside the
// end of another takes up to a round longer than alone, so slowdowns are overestimated.
const waves = 64

// on returns the job of a benchmark on a host. Host work takes times as long as fitted.
func (b benchmark) on(h *host, times float64) *job {
	r := rules[b.rule]
	factor := fitted.host[b.rule] * h.slow * times * b.n * 1e-9
	gpu := b.n * r.moved / h.bandwidth
	if b.rule == "lavaMD" {
		gpu = b.n * 27 * 100 * 100 * h.pair
	}
	gpu *= fitted.kernels
	j := &job{name: b.String(), before: seconds(process*times + r.before*factor), after: seconds(r.after * factor)}
	blocks := uint64(r.blocks(b.n))
	j.request = place.Request{
		Memory: uint64(b.n*r.footprint) + kernelHeap, Blocks: blocks, Threads: r.threads, Shared: r.shared,
	}
	need := machine.Resources{Threads: max(int(r.threads), 32), Shared: r.shared}
	full := uint64(h.config().Occupancy(need)) * uint64(h.spec.SMs)
	launch := machine.Work{Duration: seconds(gpu / float64(r.launches)), Blocks: min(blocks, waves*full+full/3), Need: need, Memory: r.memory}
	if r.early > 0 {
		j.steps = append(j.steps, step{kind: onHost, time: seconds(r.inside * r.early * factor)})
	}
	j.steps = append(j.steps, step{kind: copying, time: seconds(b.n * r.in / h.pcie)})
	for range r.launches {
		j.steps = append(j.steps, step{kind: onGPU, time: launch.Duration, work: launch})
	}
	j.steps = append(j.steps, step{kind: copying, time: seconds(b.n * r.out / h.pcie)})
	if r.early < 1 && r.inside > 0 {
		j.steps = append(j.steps, step{kind: onHost, time: seconds(r.inside * (1 - r.early) * factor)})
	}
	return j
}

// config returns the machine that stands for one of the host's GPUs.
func (h *host) config() machine.Config {
	return machine.Config{
		Mode: machine.CoRun, SMs: h.spec.SMs,
		SM: machine.Resources{Blocks: h.spec.BlocksPerSM, Threads: 32 * h.spec.WarpsPerSM, Registers: h.spec.RegistersPerSM, Shared: h.spec.SharedPerSM},
	}.WithDefaults()
}
