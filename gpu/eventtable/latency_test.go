package eventtable

import (
	"testing"
	"time"
)

// TestLatencies: quantiles are of the right class.
func TestLatencies(t *testing.T) {
	var l Latencies
	if got := l.Quantile(0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
	for i := range 100 {
		l.Add(time.Duration(i+1) * time.Microsecond)
	}
	for q, want := range map[float64]time.Duration{0.5: 50 * time.Microsecond, 0.99: 99 * time.Microsecond} {
		if got := l.Quantile(q); got < want || got > want*5/4 {
			t.Errorf("quantile %v is %v, want %v to a quarter", q, got, want)
		}
	}
	l.Add(-1)
	l.Add(1<<63 - 1)
	if got := l.Quantile(1); got < maxLatency {
		t.Errorf("of all times: %v", got)
	}
}
