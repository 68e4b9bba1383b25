package preempt

import (
	"flag"
	"fmt"
	"sync"
	"testing"

	"vgpud/gpu/corpus"
	"vgpud/mediator/vgpu/abi"
	"vgpud/ptx"
)

var (
	runs = flag.Int("runs", enough, "random runs of the corpus, all kernels together")
	from = flag.Uint64("from", 0, "the first run's seed; the others follow")
	seed = flag.Uint64("seed", 0, "repeat the one run of this seed, and say what it does")
)

// one reports whether a single run was requested.
func one() (asked bool) {
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "seed" })
	return asked
}

// tally counts the events of runs, in order to detect a harness that evicts nothing.
type tally struct {
	mu      sync.Mutex
	runs    int
	evicted int // runs that left tasks undone at least once
	again   int // launches after an eviction
	forms   map[abi.PreemptForm]int
}

func (y *tally) add(d *drive) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.runs++
	if d.evicted > 0 {
		y.evicted++
	}
	y.again += d.evicted
	if y.forms == nil {
		y.forms = map[abi.PreemptForm]int{}
	}
	for f, n := range d.used {
		y.forms[f] += n
	}
}

// sound performs the given number of runs of a transformed module, cycling through the cases.
func sound(t *testing.T, m *ptx.Module, times int, sum *tally, cases ...*corpus.Case) {
	t.Helper()
	var rigs []*rig
	for _, c := range cases {
		r, err := newRig(t.Context(), m, c)
		if err != nil {
			t.Fatal(err)
		}
		rigs = append(rigs, r)
	}
	soundRigs(t, times, sum, rigs...)
}

// soundRigs is sound for loaded modules.
func soundRigs(t *testing.T, times int, sum *tally, rigs ...*rig) {
	t.Helper()
	for _, r := range rigs {
		if err := r.settle(1, 4); err != nil {
			t.Fatal(err)
		}
	}
	first, last := *from, *from+uint64(times)
	if one() {
		first, last = *seed, *seed+1
	}
	for n := first; n < last; n++ {
		d := newDrive(rigs[n%uint64(len(rigs))], n)
		err := d.run()
		if one() {
			t.Logf("%v\n%v", d, err)
		}
		if err != nil {
			t.Fatalf("%v\n%v\nrepeat with: go test ./e2e/preempt -run '%s' -seed %d", err, d, t.Name(), n)
		}
		sum.add(d)
	}
}

// String describes a run.
func (d *drive) String() string {
	s := fmt.Sprintf("%v, %.1f evictions in the time of the original, refill %v, %d times launched again", d.schedule, d.often, d.refill, d.evicted)
	for _, line := range d.description {
		s += "\n\t" + line
	}
	return s
}
