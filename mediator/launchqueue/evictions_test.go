package launchqueue

import (
	"testing"
	"time"
)

func TestEvictionsAreSummed(t *testing.T) {
	var e Evictions
	if s := e.Summary(); s.Count != 0 || s.P50 != 0 || s.P99 != 0 {
		t.Errorf("before any: %+v", s)
	}
	for i := range 200 {
		e.Add(time.Duration(i+1) * 100 * time.Microsecond) // 0.1 to 20 ms
	}
	e.Add(time.Minute)
	s := e.Summary()
	if s.Count != 201 || s.Sum != 60*time.Second+201*10*ms {
		t.Errorf("%d evictions in %v", s.Count, s.Sum)
	}
	if s.P50 != 101*ms/10 || s.P99 != 199*ms/10 {
		t.Errorf("median %v, 99 %% %v; want 10.1ms and 19.9ms", s.P50, s.P99)
	}
	want := map[time.Duration]uint64{10 * time.Microsecond: 0, 100 * time.Microsecond: 1, 250 * time.Microsecond: 2, ms: 10, 10 * ms: 100, 25 * ms: 200, time.Second: 200}
	for i, bound := range EvictionBounds {
		if n, ok := want[bound]; ok && s.UpTo[i] != n {
			t.Errorf("%d of at most %v, want %d", s.UpTo[i], bound, n)
		}
	}
	// The quantiles are of the newest.
	for range newestKept {
		e.Add(ms)
	}
	if s := e.Summary(); s.P50 != ms || s.P99 != ms || s.Count != 201+newestKept {
		t.Errorf("after many of 1 ms: %+v", s)
	}
	e.Restart()
	e.Add(2 * ms)
	if s := e.Summary(); s.P50 != 2*ms || s.P99 != 2*ms || s.Count != 202+newestKept {
		t.Errorf("after one of 2 ms under another policy: %+v", s)
	}
	for range 2 * newestKept {
		e.Add(ms)
	}
	if n := len(e.newest); n != newestKept {
		t.Errorf("%d are kept", n)
	}
}
