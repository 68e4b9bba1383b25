package blocks

import (
	"math"
	"slices"
)

// Grids of many tasks are simulated on a part of the GPU, and so many waves of blocks at least, or of skipped ones. The
// rest goes on at the rate that the middle of those had.
const (
	waves        = 48
	skippedWaves = 24
)

// few is below how many waves a run depends so much on chance, and on how tasks divide by SMs, that it is done on the
// whole GPU, and several are averaged.
const few = 16

// Duration is how long the kernel lasts in a form, alone and left alone, in nanoseconds from when the GPU has the
// launch.
func Duration(c Costs, k Kernel, f Form) float64 {
	if k.Tasks < few*uint64(c.Slots(k)) {
		const runs = 4
		var sum float64
		for seed := range uint64(runs) {
			r := newRun(&c, k, f, seed+1)
			r.start(0)
			r.finish()
			sum += r.now
		}
		return c.Launch + sum/runs
	}
	n := c.parts()
	c = c.part(n)
	k.Tasks = (k.Tasks + uint64(n)/2) / uint64(n)
	g := uint64(f.group())
	some := k
	// Three looks of a persistent block, so that the middle third has one.
	some.Tasks = min(k.Tasks, uint64(c.Slots(k))*max(waves, 6*g, 3*g*uint64(f.Every)))
	if k.Tasks < some.Tasks+some.Tasks/4 {
		some.Tasks = k.Tasks
	}
	r := newRun(&c, some, f, 1)
	r.partial = n > 1
	r.tasksAt.at = [2]uint64{some.Tasks / 3, some.Tasks * 2 / 3}
	r.start(0)
	r.finish()
	return c.Launch + r.now + float64(k.Tasks-some.Tasks)*r.tasksAt.each()
}

// Leaving is one eviction.
type Leaving struct {
	// Latency is from the host's write of the word until it knows that the GPU is left, or the SMs that were asked for.
	Latency float64
	// Done is how many tasks were done when the word was written, and After how many when the last block left.
	Done, After uint64
}

// Evict asks a kernel to leave when about the given part of its tasks is done. The original runs to its end. Seeds give different moments. Below is
// how many SMs are asked for, the lowest numbers; 0 is all.
func Evict(c Costs, k Kernel, f Form, part float64, below int, seed uint64) Leaving {
	slots, g := float64(c.Slots(k)), float64(f.group())
	if f.Kind == Original {
		rest := (Duration(c, k, f) - c.Launch) * (1 - part)
		return Leaving{Latency: rest + c.Gone, Done: uint64(part * float64(k.Tasks)), After: k.Tasks}
	}
	parts := uint64(1)
	if below <= 0 && k.Tasks >= few*uint64(slots) {
		parts = uint64(c.parts())
		c = c.part(int(parts))
		k.Tasks /= parts
		slots = float64(c.Slots(k))
	}
	// Enough units before that blocks are out of step as much as they would be.
	warm := min(part*float64(k.Tasks), 5*slots*g)
	done := uint64(max(0, part*float64(k.Tasks)-warm))
	whole := f.units(k.Tasks)
	if f.Kind == EarlyExit && below <= 0 {
		k.Tasks = min(k.Tasks, done+uint64(warm)+uint64((skippedWaves+2)*slots*g))
	}
	cut := whole - f.units(k.Tasks) // units that would be skipped as well
	r := newRun(&c, k, f, seed)
	r.partial = parts > 1
	if below > 0 {
		r.below = min(below, c.SMs)
	}
	if cut > 0 {
		r.skippedAt.at = [2]uint64{uint64(skippedWaves * slots / 3), uint64(skippedWaves * slots * 2 / 3)}
	}
	r.start(done)
	// Anywhere in a unit, and then anywhere in a task.
	target := done + uint64(warm*(0.8+0.2*r.rng.Float64()))
	if done == 0 {
		target = uint64(warm)
	}
	for r.done < target && r.step() {
	}
	task := r.now * slots / max(1, float64(r.done-done))
	until := r.now + task*r.rng.Float64()
	for len(r.q) > 0 && r.q[0].at <= until && r.step() {
	}
	r.now = max(r.now, min(until, r.end()))
	r.evictAt = r.now
	l := Leaving{Done: r.done * parts}
	r.gone = r.evictAt
	// Blocks that stay leave for good; what others do meanwhile and after is of no interest.
	for !(f.Kind == Persistent && r.inBelow == 0) && r.step() {
	}
	l.Latency = r.gone - r.evictAt + r.c.Gone
	if cut > 0 {
		l.Latency += float64(cut) * max(r.skippedAt.each(), 0)
	}
	l.After = r.done * parts
	return l
}

// end is when something happens next, now if nothing will.
func (r *run) end() float64 {
	if len(r.q) == 0 {
		return r.now
	}
	return r.q[0].at
}

// Evictions are n of them at parts of the kernel from low to high, sorted by latency.
func Evictions(c Costs, k Kernel, f Form, low, high float64, n int) []Leaving {
	all := make([]Leaving, n)
	for i := range all {
		part := low + (high-low)*(float64(i)+0.5)/float64(n)
		all[i] = Evict(c, k, f, part, 0, uint64(i)+1)
	}
	return all
}

// Quantile is the q-quantile of the latencies.
func Quantile(all []Leaving, q float64) float64 {
	if len(all) == 0 {
		return math.NaN()
	}
	return sortedLatencies(all)[int(q*float64(len(all)-1)+0.5)]
}

func sortedLatencies(all []Leaving) []float64 {
	l := make([]float64, len(all))
	for i := range all {
		l[i] = all[i].Latency
	}
	slices.Sort(l)
	return l
}
