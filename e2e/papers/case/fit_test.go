package main

import (
	"math"
	"testing"
)

// TestSingleAssignmentGivesTable7: what the model of jobs is made from. Of 16 workloads one is off
// by 6 %, the others by less than 4 %.
func TestSingleAssignmentGivesTable7(t *testing.T) {
	sum := 0.0
	off := misfits()
	for i, o := range off {
		if math.Abs(o) > 0.06 {
			t.Errorf("workload %d of the hosts' 16, or W7's utilisation, is off by %+.1f %%", i+1, 100*(math.Exp(o)-1))
		}
		sum += math.Abs(o)
	}
	if mean := sum / float64(len(off)); mean > 0.025 {
		t.Errorf("off by %.1f %% on average", 100*mean)
	}
}

// TestTable1: small jobs need 1 to 4 GB and large ones more, up to 13 (§5.2), in order of size.
func TestTable1(t *testing.T) {
	before := uint64(0)
	for i, b := range table1 {
		m := b.on(&v100s, 1).request.Memory
		if isSmall := m <= 4<<30; isSmall != (i < small) || m < 1e9 || m > 14e9 {
			t.Errorf("%v needs %.1f GB", b, float64(m)/1e9)
		}
		if m < before*95/100 {
			t.Errorf("%v needs %.1f GB, less than the row before", b, float64(m)/1e9)
		}
		before = m
	}
}

// TestMixes: each workload has its jobs and its ratio, whichever the seed, and the same each time.
func TestMixes(t *testing.T) {
	for _, w := range table2 {
		for seed := range uint64(20) {
			mix := w.mix(seed)
			n := 0
			for _, b := range mix {
				if b.on(&v100s, 1).request.Memory <= 4<<30 {
					n++
				}
			}
			if len(mix) != w.jobs || n != w.jobs/(w.large+1) {
				t.Errorf("%s, seed %d: %d small jobs of %d", w.name, seed, n, len(mix))
			}
			for i, b := range w.mix(seed) {
				if b != mix[i] {
					t.Fatalf("%s, seed %d: job %d differs from one time to the next", w.name, seed, i)
				}
			}
		}
	}
}
