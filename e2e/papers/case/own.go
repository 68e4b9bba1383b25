package main

import (
	"time"

	"vgpud/fairshare"
	"vgpud/fairshare/place"
)

// own is the product's scheduler: a queue of fairshare/place, which carries out moves to the host.
type own struct {
	s       *sim
	q       *place.Queue
	workers int
	acts    []place.Action
	// away are those whose memory is on the host, or on its way there or back.
	away map[*run]bool
	// moves is how often memory went to the host.
	moves int
}

func newOwn(cfg place.Config, workers int) func(*sim) scheduler {
	return func(s *sim) scheduler {
		return &own{s: s, q: newQueue(s, cfg), workers: workers, away: make(map[*run]bool)}
	}
}

func (b *own) start(*run) bool { return b.workers == 0 || b.s.running < b.workers }

func (b *own) begin(r *run) {
	must(b.q.Submit(b.s.now, place.TaskID(r.id), fairshare.GuestID(r.id), r.request))
}

func (b *own) quiet(r *run, quiet bool) { must(b.q.SetQuiet(b.s.now, place.TaskID(r.id), quiet)) }
func (b *own) free(r *run)              { must(b.q.Free(b.s.now, place.TaskID(r.id))) }
func (b *own) exit(*run)                {}

func (b *own) settle() time.Duration {
	b.acts = b.q.Begin(b.s.now, b.acts[:0])
	for _, a := range b.acts {
		r := b.s.runs[a.Task]
		switch a.Kind {
		case place.Begin:
			if !b.away[r] {
				b.s.at(0, func() { b.s.place(r, a.GPU) })
				continue
			}
			// Its memory comes back.
			delete(b.away, r)
			b.s.at(b.transfer(r), func() { b.s.place(r, a.GPU) })
		case place.Leave:
			b.moves++
			b.away[r], r.leaving = true, true
			b.s.at(b.transfer(r), func() {
				if r.freed {
					return
				}
				b.s.take(r)
				must(b.q.Left(b.s.now, a.Task))
			})
		}
	}
	at, ok := b.q.Next(b.s.now)
	if !ok {
		return 0
	}
	return at
}

// transfer is how long a task's memory takes to the host, or back.
func (b *own) transfer(r *run) time.Duration {
	return seconds(float64(r.request.Memory) / b.s.h.pcie)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
