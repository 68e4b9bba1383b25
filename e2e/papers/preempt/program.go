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
	alone  time.Duration // run time of the original alone
	length time.Duration // run time of the form alone
	// evictions are simulated evictions, indexed by the part of the kernel that is done.
	evictions [parts][]eviction
	cost      time.Duration // mean cost of an eviction, including the relaunch
}

const (
	// Evictions are simulated at so many points of a kernel (parts), and so often at each (often):
	// 50 runs in all, as in FLEP §4.2.
	parts = 5
	often = 10
)

// eviction is the result of one eviction.
type eviction struct {
	latency time.Duration
	gain    float64 // fraction of the kernel that was done while it left
}

// newProgram simulates a kernel in form f, alone and evicted, with the given number of tries for
// each part.
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
	for i := range p.evictions {
		low, high := float64(i)/parts, float64(i+1)/parts
		for _, l := range blocks.Evictions(blocks.H100, k, f, low, high, tries) {
			v := eviction{latency: time.Duration(l.Latency), gain: float64(l.After-l.Done) / float64(k.Tasks)}
			p.evictions[i] = append(p.evictions[i], v)
			sum += v.latency - time.Duration(v.gain*float64(p.length))
		}
	}
	p.cost = max(sum/time.Duration(parts*tries), 0) + time.Duration(blocks.H100.Launch)
	return p
}

// evictable reports whether the form can be evicted.
func (p *program) evictable() bool { return p.form.Kind != blocks.Original }

// rest returns how long the form runs to do the given fraction of the kernel.
func (p *program) rest(part float64) time.Duration {
	launch := time.Duration(blocks.H100.Launch)
	return launch + time.Duration(part*float64(p.length-launch))
}

// sampleEviction returns a random result of an eviction when the given fraction is done.
func (p *program) sampleEviction(done float64, r *rand.Rand) eviction {
	ways := p.evictions[min(int(done*parts), parts-1)]
	return ways[r.IntN(len(ways))]
}
