package main

import (
	"slices"

	"vgpud/e2e/papers/parallel"
	"vgpud/gpu/soft/machine/warps"
)

// ways are figure 12's: how events get onto the GPU.
var ways = []struct {
	name string
	o    warps.Options
}{
	{"draining", warps.Options{Technique: warps.Drain}},
	{"preemption", warps.Options{Technique: warps.Preempt, Victims: warps.Ready, Flush: warps.All}},
	{"preemption of the oldest", warps.Options{Technique: warps.Preempt, Victims: warps.Oldest, Flush: warps.All}},
	{"preemption, any registers", warps.Options{Technique: warps.Preempt, Victims: warps.Ready, Flush: warps.All, AnyRegisters: true}},
}

const (
	draining = iota
	preempting
	preemptingOldest
	preemptingAny
)

// pair is an event beside a background.
type pair struct {
	bg, ev *app
	waits  [][]uint64 // of each of ways
	preempted,
	saved []uint64
}

// wait measures how long events wait that are launched at random times, and not executed (§VI.C).
func (l *lab) wait() ([]pair, error) {
	var pairs []pair
	for _, bg := range l.sharing() {
		for _, ev := range l.events {
			pairs = append(pairs, pair{bg: bg, ev: ev, waits: make([][]uint64, len(ways)), preempted: make([]uint64, len(ways)), saved: make([]uint64, len(ways))})
		}
	}
	each := len(ways) * l.x.runs
	all, err := parallel.Map(len(pairs)*each, func(i int) (warps.Result, error) {
		p := &pairs[i/each]
		o := ways[i%each/l.x.runs].o
		o.Skip = true
		return l.run(p.bg, p.ev, o, 1, l.gap(p.bg), seed+i%l.x.runs)
	})
	if err != nil {
		return nil, err
	}
	for i := range all {
		p, w := &pairs[i/each], i%each/l.x.runs
		p.waits[w] = append(p.waits[w], all[i].Waits...)
		p.preempted[w] += uint64(all[i].Preempted)
		p.saved[w] += all[i].Saved
	}
	return pairs, nil
}

// over returns the means over pairs of the mean and of the tail of the waits of one way.
func over(pairs []pair, way int, ok func(*pair) bool) (m, t float64) {
	var means, tails []float64
	for i := range pairs {
		if p := &pairs[i]; ok(p) {
			means, tails = append(means, mean(p.waits[way])), append(tails, tail(p.waits[way]))
		}
	}
	return mean(known(means)), mean(known(tails))
}

func anyPair(*pair) bool { return true }

// fits reports whether a warp of the background has as many registers as the event.
func fits(p *pair) bool { return slices.Contains(fitting, p.bg.name) }

// allowed reports whether the event may preempt every warp of the background.
func (p *pair) allowed() bool {
	for _, g := range p.bg.grids {
		if g.Kernel.Registers() < p.ev.grids[0].Kernel.Registers() {
			return false
		}
	}
	return true
}
