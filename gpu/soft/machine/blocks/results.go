package blocks

import (
	"math"
	"slices"
)

// A grid of many tasks is simulated in part: on a part of the GPU, for at least this many waves of
// blocks, or of skipped blocks. The rest is extrapolated from the rate in the middle of those.
const (
	waves        = 48
	skippedWaves = 24
)

// With fewer waves than few, a run depends so much on chance, and on how tasks divide among SMs,
// that it is simulated on the whole GPU and several runs are averaged.
const few = 16

// Duration returns how long the kernel runs in the given form, alone and without eviction, in
// nanoseconds from when the GPU has received the launch.
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
	// A persistent block polls at least three times, so that the middle third has a poll.
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

// Eviction is the result of one eviction.
type Eviction struct {
	// Latency is the time from the host's write of the word until it knows that the blocks have
	// left all SMs, or those that it asked for.
	Latency float64
	// Done is the number of tasks done when the word was written, and After the number when the
	// last block left.
	Done, After uint64
}

// Evict evicts a kernel when about the given part of its tasks is done. The original form runs to
// its end. Different seeds evict at different moments. below is the number of SMs to evict,
// starting from the lowest; 0 means all.
func Evict(c Costs, k Kernel, f Form, part float64, below int, seed uint64) Eviction {
	slots, g := float64(c.Slots(k)), float64(f.group())
	if f.Kind == Original {
		rest := (Duration(c, k, f) - c.Launch) * (1 - part)
		return Eviction{Latency: rest + c.Gone, Done: uint64(part * float64(k.Tasks)), After: k.Tasks}
	}
	parts := uint64(1)
	if below <= 0 && k.Tasks >= few*uint64(slots) {
		parts = uint64(c.parts())
		c = c.part(int(parts))
		k.Tasks /= parts
		slots = float64(c.Slots(k))
	}
	// Simulate enough units before the eviction that blocks are as much out of step as they would
	// be.
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
	// At a random point of a unit, and then of a task.
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
	l := Eviction{Done: r.done * parts}
	r.gone = r.evictAt
	// Persistent blocks that are evicted don't come back, and what other blocks do no longer
	// matters.
	for !(f.Kind == Persistent && r.inBelow == 0) && r.step() {
	}
	l.Latency = r.gone - r.evictAt + r.c.Gone
	if cut > 0 {
		l.Latency += float64(cut) * max(r.skippedAt.each(), 0)
	}
	l.After = r.done * parts
	return l
}

// end returns the time of the next event, or now if there is none.
func (r *run) end() float64 {
	if len(r.q) == 0 {
		return r.now
	}
	return r.q[0].at
}

// Evictions evicts the kernel n times, at parts from low to high.
func Evictions(c Costs, k Kernel, f Form, low, high float64, n int) []Eviction {
	all := make([]Eviction, n)
	for i := range all {
		part := low + (high-low)*(float64(i)+0.5)/float64(n)
		all[i] = Evict(c, k, f, part, 0, uint64(i)+1)
	}
	return all
}

// Quantile returns the q-quantile of the latencies.
func Quantile(all []Eviction, q float64) float64 {
	if len(all) == 0 {
		return math.NaN()
	}
	return sortedLatencies(all)[int(q*float64(len(all)-1)+0.5)]
}

func sortedLatencies(all []Eviction) []float64 {
	l := make([]float64, len(all))
	for i := range all {
		l[i] = all[i].Latency
	}
	slices.Sort(l)
	return l
}
