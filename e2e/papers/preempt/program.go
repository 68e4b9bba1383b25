package main

import (
	"math/rand/v2"
	"time"

	"vgpud/gpu/soft/machine/blocks"
)

// program is a kernel in one form, as a scheduler sees it.
type program struct {
	name   string
	kernel blocks.Kernel
	form   blocks.Form
	alone  time.Duration // the original, by itself
	length time.Duration // the form, by itself
	// leavings are simulated evictions, by the part of the kernel that is done.
	leavings [parts][]leaving
	cost     time.Duration // mean cost of an eviction, with the launch after it
}

// parts is how finely evictions are told apart by what is done, and often how many
// are simulated for each: 50 runs in all, as in FLEP §4.2.
const (
	// parts is how many parts of the kernel evictions are told apart by, and often how many are
	// simulated for each: 50 runs in all, as in FLEP §4.2.
	parts = 5
	often = 10
)

// leaving is the result of one eviction.
type leaving struct {
	latency time.Duration
	gain    float64 // the part of the kernel that was done meanwhile
}

// newProgram simulates a kernel in its form, alone and evicted, so many times for each part.
func newProgram(name string, k blocks.Kernel, f blocks.Form, tries int) *program {
	p := &program{
		name: name, kernel: k, form: f,
		alone:  time.Duration(blocks.Duration(blocks.H100, k, blocks.Form{})),
		length: time.Duration(blocks.Duration(blocks.H100, k, f)),
	}
	if f.Kind == blocks.Original {
		return p
	}
	var sum time.Duration
	for i := range p.leavings {
		low, high := float64(i)/parts, float64(i+1)/parts
		for _, l := range blocks.Evictions(blocks.H100, k, f, low, high, tries) {
			v := leaving{latency: time.Duration(l.Latency), gain: float64(l.After-l.Done) / float64(k.Tasks)}
			p.leavings[i] = append(p.leavings[i], v)
			sum += v.latency - time.Duration(v.gain*float64(p.length))
		}
	}
	p.cost = max(sum/time.Duration(parts*tries), 0) + time.Duration(blocks.H100.Launch)
	return p
}

// evictable reports whether the form leaves when told.
func (p *program) evictable() bool { return p.form.Kind != blocks.Original }

// rest returns how long the form runs to do the given part of the kernel.
func (p *program) rest(part float64) time.Duration {
	launch := time.Duration(blocks.H100.Launch)
	return launch + time.Duration(part*float64(p.length-launch))
}

// leave draws the result of an eviction when that part is done.
func (p *program) leave(done float64, r *rand.Rand) leaving {
	ways := p.leavings[min(int(done*parts), parts-1)]
	return ways[r.IntN(len(ways))]
}
