package eventtable

import (
	"math/bits"
	"time"
)

// Latencies counts times in classes, four to each doubling. The zero value has none.
type Latencies struct {
	classes [64 * 4]uint64
	n       uint64
}

// maxLatency is the longest time that is distinguished.
const maxLatency = time.Hour

// Add counts a time.
func (l *Latencies) Add(d time.Duration) {
	l.classes[classOf(min(max(d, 0), maxLatency))]++
	l.n++
}

// classOf returns the class of a time: its highest bit and the next two.
func classOf(d time.Duration) int {
	v := uint64(d) | 4
	top := bits.Len64(v) - 1
	return top*4 + int(v>>(top-2)&3)
}

// Quantile returns the upper end of the class that has the quantile, or 0 if there is no time.
func (l *Latencies) Quantile(q float64) time.Duration {
	if l.n == 0 {
		return 0
	}
	want := max(uint64(q*float64(l.n)+0.5), 1)
	for i, n := range l.classes {
		if want <= n {
			return time.Duration(uint64(i%4+5) << (i/4 - 2))
		}
		want -= n
	}
	return 0
}
