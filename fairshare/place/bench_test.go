package place

import (
	"fmt"
	"testing"
	"time"

	"vgpud/fairshare"
)

// crowd returns a queue of 16 GPUs that are nearly full, in which n tasks of some guests wait.
func crowd(t testing.TB, p Placer, n, guests int) (*Queue, []TaskID) {
	t.Helper()
	r := newRand(7)
	specs := make([]Spec, 16)
	for i := range specs {
		specs[i] = v100
		specs[i].Memory = 80 * gib
	}
	q, err := NewQueue(Config{Placer: p}, specs)
	must(t, err)
	for id := range guests {
		must(t, q.Admit(0, fairshare.GuestID(id), Guest{Weight: float64(1 + r.IntN(4)), Memory: 80 * gib}))
	}
	threads := []uint32{32, 64, 128, 256, 512, 1024}
	request := func() Request {
		return Request{Memory: uint64(float64(gib) * (0.5 + 13*r.Float64())), Blocks: uint64(10 + r.IntN(2000)), Threads: threads[r.IntN(len(threads))]}
	}
	id := TaskID(0)
	var placed []TaskID
	for waiting := 0; waiting < n; {
		id++
		if q.Submit(0, id, fairshare.GuestID(r.IntN(guests)), request()) != nil {
			continue
		}
		if as := q.Begin(0, nil); len(as) > 0 {
			for _, a := range as {
				placed = append(placed, a.Task)
			}
		} else {
			waiting++
		}
	}
	return q, placed
}

// BenchmarkBegin is a pass over 1,000 waiting tasks of 16 GPUs after one task has ended.
func BenchmarkBegin(b *testing.B) {
	for _, p := range []Placer{Warps{}, Blocks{}} {
		for _, guests := range []int{250, 1000} {
			b.Run(fmt.Sprintf("%T/%d guests", p, guests), func(b *testing.B) {
				q, placed := crowd(b, p, 1000, guests)
				now := time.Second
				var as []Action
				next := TaskID(1 << 30)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					// The task that ended is followed by another like it.
					v := q.tasks[placed[i%len(placed)]]
					req, of := v.req, v.guest.id
					must(b, q.Free(now, v.id))
					next++
					must(b, q.Submit(now, next, of, req))
					as = q.Begin(now, as[:0])
					now += 10 * time.Millisecond
					placed = append(placed[:i%len(placed)], placed[i%len(placed)+1:]...)
					for _, a := range as {
						placed = append(placed, a.Task)
					}
				}
			})
		}
	}
}

// BenchmarkPlace is one decision for a task that fits nowhere, on 16 GPUs.
func BenchmarkPlace(b *testing.B) {
	for _, p := range []Placer{Warps{}, GridWarps{}, LeastBusy{}, Blocks{}} {
		b.Run(fmt.Sprintf("%T", p), func(b *testing.B) {
			q, _ := crowd(b, p, 10, 100)
			r := Request{Memory: gib, Blocks: 500, Threads: 256}
			may := Set(1<<16 - 1)
			for b.Loop() {
				p.Place(q.gpus, may, &r)
			}
		})
	}
}
