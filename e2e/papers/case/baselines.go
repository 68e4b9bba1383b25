package main

import (
	"cmp"
	"slices"
	"time"

	"vgpud/fairshare"
	"vgpud/fairshare/place"
)

// single is single assignment (SA): a job has a GPU for itself while its process lives.
type single struct {
	s    *sim
	used []bool
	of   map[*run]int
}

func newSingle(s *sim) scheduler {
	return &single{s, make([]bool, s.h.gpus), make(map[*run]int)}
}

func (b *single) start(r *run) bool {
	i := slices.Index(b.used, false)
	if i < 0 {
		return false
	}
	b.used[i], b.of[r] = true, i
	return true
}

func (b *single) begin(r *run)          { b.s.place(r, b.of[r]) }
func (b *single) quiet(*run, bool)      {}
func (b *single) free(*run)             {}
func (b *single) exit(r *run)           { b.used[b.of[r]] = false }
func (b *single) settle() time.Duration { return 0 }

// coreToGPU is CG: so many processes run at a time, each on the GPU with the fewest. None knows what
// memory the others need, and one that gets none crashes.
type coreToGPU struct {
	s       *sim
	workers int
	on      []int
	of      map[*run]int
}

func newCG(workers int) func(*sim) scheduler {
	return func(s *sim) scheduler { return &coreToGPU{s, workers, make([]int, s.h.gpus), make(map[*run]int)} }
}

func (b *coreToGPU) start(r *run) bool {
	if b.s.running >= b.workers {
		return false
	}
	i := slices.Index(b.on, slices.Min(b.on))
	b.on[i]++
	b.of[r] = i
	return true
}

func (b *coreToGPU) begin(r *run) {
	gpu := b.of[r]
	if b.s.memory[gpu]+r.request.Memory > b.s.h.spec.Memory {
		b.s.crash(r)
		return
	}
	b.s.place(r, gpu)
}

func (b *coreToGPU) quiet(*run, bool)      {}
func (b *coreToGPU) free(*run)             {}
func (b *coreToGPU) exit(r *run)           { b.on[b.of[r]]-- }
func (b *coreToGPU) settle() time.Duration { return 0 }

// schedGPU lets as many tasks onto one GPU as its memory holds, in order of arrival.
type schedGPU struct {
	s       *sim
	waiting []*run
}

func newSchedGPU(s *sim) scheduler { return &schedGPU{s: s} }

func (b *schedGPU) start(*run) bool  { return true }
func (b *schedGPU) begin(r *run)     { b.waiting = append(b.waiting, r) }
func (b *schedGPU) quiet(*run, bool) {}
func (b *schedGPU) free(*run)        {}
func (b *schedGPU) exit(*run)        {}

func (b *schedGPU) settle() time.Duration {
	for len(b.waiting) > 0 && b.s.memory[0]+b.waiting[0].request.Memory <= b.s.h.spec.Memory {
		r := b.waiting[0]
		b.waiting = b.waiting[1:]
		b.s.place(r, 0)
	}
	return 0
}

// papers is CASE as published: a placer of fairshare/place with the queue of the authors' code,
// which tries all waiting tasks in order of memory, largest first, for as long as it takes.
type papers struct {
	s       *sim
	q       *place.Queue
	workers int
	waiting []*run
	changed bool
}

func newPapers(p place.Placer, workers int) func(*sim) scheduler {
	return func(s *sim) scheduler {
		return &papers{s: s, q: newQueue(s, place.Config{Placer: p}), workers: workers}
	}
}

// newQueue returns a queue in which each job is a guest.
func newQueue(s *sim, cfg place.Config) *place.Queue {
	specs := make([]place.Spec, s.h.gpus)
	for i := range specs {
		specs[i] = s.h.spec
	}
	q, err := place.NewQueue(cfg, specs)
	if err != nil {
		panic(err)
	}
	for _, r := range s.runs {
		if err := q.Admit(0, fairshare.GuestID(r.id), place.Guest{Weight: 1, Memory: s.h.spec.Memory}); err != nil {
			panic(err)
		}
	}
	return q
}

func (b *papers) start(*run) bool { return b.workers == 0 || b.s.running < b.workers }

func (b *papers) begin(r *run) {
	// It is not there yet: no two runs are equal.
	i, _ := slices.BinarySearchFunc(b.waiting, r, func(a, b *run) int {
		return cmp.Or(cmp.Compare(b.request.Memory, a.request.Memory), cmp.Compare(a.id, b.id))
	})
	b.waiting = slices.Insert(b.waiting, i, r)
	b.changed = true
}

func (b *papers) quiet(*run, bool) {}

func (b *papers) free(r *run) {
	if err := b.q.Free(b.s.now, place.TaskID(r.id)); err != nil {
		panic(err)
	}
	b.changed = true
}

func (b *papers) exit(*run) {}

func (b *papers) settle() time.Duration {
	for ; b.changed; b.changed = false {
		b.waiting = slices.DeleteFunc(b.waiting, func(r *run) bool {
			id := place.TaskID(r.id)
			if err := b.q.Submit(b.s.now, id, fairshare.GuestID(r.id), r.request); err != nil {
				panic(err)
			}
			as := b.q.Begin(b.s.now, nil)
			if len(as) == 0 {
				if err := b.q.Free(b.s.now, id); err != nil {
					panic(err)
				}
				return false
			}
			b.s.at(0, func() { b.s.place(r, as[0].GPU) })
			return true
		})
	}
	return 0
}
