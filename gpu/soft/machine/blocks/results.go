package blocks

import (
	"math"
	"slices"
)

// Simulated holds how many tasks a run of [Duration] simulates for each slot at least before it goes on by the rate
// that the middle of the run had.
const simulated = 48

// Duration is how long the kernel lasts in a form, alone and left alone, in nanoseconds from when the GPU has the
// launch. Grids of very many tasks are simulated in part: their middle goes on as it went.
func Duration(c Costs, k Kernel, f Form) float64 {
	slots := uint64(c.Slots(k))
	some := k
	some.Tasks = min(k.Tasks, slots*max(simulated, 6*uint64(f.group())))
	if k.Tasks < some.Tasks+some.Tasks/4 {
		some.Tasks = k.Tasks
	}
	r := newRun(&c, some, f, 1)
	r.marks = [2]uint64{some.Tasks / 3, some.Tasks * 2 / 3}
	r.start(0)
	r.finish()
	rest := float64(k.Tasks-some.Tasks) * (r.marked[1] - r.marked[0]) / float64(r.marks[1]-r.marks[0])
	if k.Tasks == some.Tasks {
		rest = 0
	}
	return c.Launch + r.now + rest
}

// Leaving is one eviction.
type Leaving struct {
	// Latency is from the host's write of the word until it knows that the GPU is left, or the SMs that were asked for.
	Latency float64
	// Done is how many tasks were done when the word was written, and After how many when the last block left.
	Done, After uint64
}

// Evict asks a kernel to leave when about the given part of its tasks is done. Seeds give different moments. Below is
// how many SMs are asked for, the lowest numbers; 0 is all.
func Evict(c Costs, k Kernel, f Form, part float64, below int, seed uint64) Leaving {
	slots := float64(c.Slots(k))
	g := float64(f.group())
	// Enough tasks before that blocks are out of step as much as they would be.
	warm := min(part*float64(k.Tasks), slots*g*float64(4)+slots)
	done := uint64(max(0, part*float64(k.Tasks)-warm))
	r := newRun(&c, k, f, seed)
	if below > 0 {
		r.below = min(below, c.SMs)
	}
	r.start(done)
	target := done + uint64(warm*(0.75+0.25*r.rng.Float64()))
	for r.done < target && r.step() {
	}
	// Anywhere until one more unit a slot will be done.
	at := r.now
	more := target + uint64(slots*g*r.rng.Float64())
	for r.done < min(more, k.Tasks) && len(r.q) > 0 && r.q[0].at < at+1e9 && r.step() {
	}
	r.evictAt = r.now
	l := Leaving{Done: r.done}
	if r.inBelow == 0 {
		r.gone = r.now
	}
	r.finish()
	if r.gone < r.evictAt {
		r.gone = r.now
	}
	l.Latency = r.gone - r.evictAt + r.c.Gone
	l.After = r.done
	return l
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
