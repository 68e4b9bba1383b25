package main

import (
	"testing"
)

// The model has the forms in the order that an H100 had them in, and their
// eviction latencies within a factor of two.
func TestNotes(t *testing.T) {
	for _, k := range notes() {
		t.Run(k.name, func(t *testing.T) {
			original, all := k.hold(5)
			if off := original/k.original - 1; off < -0.03 || off > 0.03 {
				t.Errorf("the original takes %.0f µs, and %.0f on an H100", original, k.original)
			}
			for _, h := range all {
				t.Logf("%-45s %+9.1f %% (H100 %+9.1f)   %8.1f µs (%8.1f)", h.name, h.overheadModel, h.overhead, h.latencyModel, h.latency)
			}
			for _, p := range misordered(all) {
				t.Error(p)
			}
			for _, l := range slow(all) {
				t.Error(l)
			}
		})
	}
}
