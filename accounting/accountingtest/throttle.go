package accountingtest

import (
	"math/rand/v2"
	"time"

	"vgpud/accounting"
)

// Throttle is LoGA's load generator (§5.2): kernels of a fixed length, one at a time, each followed
// by a sleep such that alone it loads the GPU by the given part. Lengths vary by one per cent,
// since no two runs of a kernel take the same number of nanoseconds. A load of 1 keeps four
// launches outstanding.
func Throttle(id accounting.GroupID, length time.Duration, load float64, seed uint64) *Group {
	r := rand.New(rand.NewPCG(seed, uint64(id)))
	g := &Group{ID: id, Depth: 1, Ahead: 1}
	var think time.Duration
	if load >= 1 {
		g.Depth, g.Ahead = 4, 2
	} else {
		think = time.Duration(float64(length) * (1 - load) / load)
	}
	vary := func(d time.Duration) time.Duration {
		return time.Duration(float64(d) * (0.99 + 0.02*r.Float64()))
	}
	g.Kernel = func() (time.Duration, time.Duration) { return vary(length), vary(think) }
	return g
}
