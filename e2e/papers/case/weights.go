package main

import (
	"container/heap"
	"math/rand/v2"
	"time"

	"vgpud/fairshare"
	"vgpud/fairshare/place"
)

// shares returns by how much a guest's part of the memory-time differs from its part by weight at
// most, for n guests that always ask for more than their share, and for how long a task was passed
// at most.
func shares(n int, seed uint64) (off float64, passed time.Duration) {
	const length = time.Hour
	r := rand.New(rand.NewPCG(seed, uint64(n)))
	specs := make([]place.Spec, max(1, n/8))
	for i := range specs {
		specs[i] = v100s.spec
		specs[i].Memory = 32 * gib
	}
	q, err := place.NewQueue(place.Config{}, specs)
	must(err)
	weights, most, mean := make([]float64, n), make([]float64, n), make([]float64, n)
	sum := 0.0
	of := make(map[place.TaskID]int)
	var now time.Duration
	id := place.TaskID(0)
	// more submits tasks of a guest until its limit is reached.
	more := func(i int) {
		for {
			id++
			size := uint64(gib * (1 + most[i]*r.Float64()))
			if q.Submit(now, id, fairshare.GuestID(i), place.Request{Memory: size, Blocks: 100, Threads: 256}) != nil {
				return
			}
			of[id] = i
		}
	}
	for i := range n {
		weights[i], most[i], mean[i] = float64(1+r.IntN(2)), float64(1+r.IntN(7)), 1+9*r.Float64()
		sum += weights[i]
		must(q.Admit(0, fairshare.GuestID(i), place.Guest{Weight: weights[i], Memory: specs[0].Memory}))
		more(i)
	}
	var ends timers
	for seq := 0; now < length; seq++ {
		for _, a := range q.Begin(now, nil) {
			ended := a.Task
			heap.Push(&ends, timer{now + seconds(0.2+2*mean[of[ended]]*r.Float64()), int(ended), func() {
				must(q.Free(now, ended))
				more(of[ended])
				delete(of, ended)
			}})
		}
		if at, ok := q.Next(now); ok && at > now && at < ends[0].at {
			now = at
			continue
		}
		now = ends[0].at
		heap.Pop(&ends).(timer).do()
	}
	used, total := make([]float64, n), 0.0
	for i := range n {
		used[i] = q.Used(now, fairshare.GuestID(i)) * weights[i]
		total += used[i]
	}
	for i := range n {
		d := used[i]/total - weights[i]/sum
		off = max(off, d, -d)
	}
	return off, q.Passed()
}
