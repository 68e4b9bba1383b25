package daemon

import (
	"testing"
	"time"
)

func TestEvictionsAreSummed(t *testing.T) {
	var e evictions
	if s := e.show(); s.Count != 0 || s.P50 != 0 || s.P99 != 0 {
		t.Errorf("before any: %+v", s)
	}
	for i := range 200 {
		e.add(time.Duration(i+1) * 100 * time.Microsecond) // 0.1 to 20 ms
	}
	e.add(time.Minute)
	s := e.show()
	if s.Count != 201 || s.Seconds != (60*time.Second+201*10*ms).Seconds() {
		t.Errorf("%d evictions in %v s", s.Count, s.Seconds)
	}
	if s.P50 != 0.0101 || s.P99 != 0.0199 {
		t.Errorf("median %v s, 99%% %v s; want 0.0101 and 0.0199", s.P50, s.P99)
	}
	want := map[float64]uint64{10e-6: 0, 100e-6: 1, 250e-6: 2, 1e-3: 10, 10e-3: 100, 25e-3: 200, 1: 200}
	for _, b := range s.Buckets {
		if n, ok := want[b.UpTo]; ok && b.Count != n {
			t.Errorf("%d of at most %v s, want %d", b.Count, b.UpTo, n)
		}
	}
	// The quantiles are of the newest.
	for range newestKept {
		e.add(ms)
	}
	if s := e.show(); s.P50 != 1e-3 || s.P99 != 1e-3 || s.Count != 201+newestKept {
		t.Errorf("after many of 1 ms: %+v", s)
	}
	e.anew()
	e.add(2 * ms)
	if s := e.show(); s.P50 != 2e-3 || s.P99 != 2e-3 || s.Count != 202+newestKept {
		t.Errorf("after one of 2 ms under another policy: %+v", s)
	}
	for range 2 * newestKept {
		e.add(ms)
	}
	if n := len(e.newest); n != newestKept {
		t.Errorf("%d are kept", n)
	}
}
