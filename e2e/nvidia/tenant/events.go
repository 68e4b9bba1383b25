package tenant

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"vgpud/guestagent/driver"
	"vgpud/mediator/vgpu/abi/eventqueue"
)

// Events registers event kernels that do nothing, and launches them by stores. They stay registered
// until the next such request.
type Events struct {
	// Kernels are registered at a time. All are rung for before any is waited for.
	Kernels         int    `json:"kernels"`
	Blocks, Threads uint32 `json:",omitempty"`
	// Rounds are measured, at most, and the measurement ends after For if that is not 0.
	Rounds int           `json:"rounds,omitempty"`
	For    time.Duration `json:"for,omitempty"`
	// Jitter is the longest pause before a round; pauses are random.
	Jitter time.Duration `json:"jitter,omitempty"`
}

// eventLimit bounds the wait for an event: beside other guests it takes some time slices.
const eventLimit = 30 * time.Second

// eventEntries are a queue's.
const eventEntries = 8

// events carries out a request, and returns the time from each ring until its event's flag was seen.
func (t *tenant) events(ctx context.Context, e *Events) ([]time.Duration, error) {
	g, ok := t.machine.(*guest)
	if !ok {
		return nil, errors.New("only guests have event kernels")
	}
	f, err := t.fixed.function(ctx, "empty")
	if err != nil {
		return nil, err
	}
	var launches []*driver.Launch
	for range e.Kernels {
		launches = append(launches, &driver.Launch{Function: f.(guestFunction).Function, Grid: driver.Dim{X: e.Blocks}, Block: driver.Dim{X: e.Threads}})
	}
	if err := g.register(ctx, launches...); err != nil {
		return nil, err
	}
	var queues []*eventqueue.Launcher
	for _, k := range g.events {
		queues = append(queues, k.Queue())
	}
	took := make([]time.Duration, 0, e.Kernels*e.Rounds)
	rung := make([]time.Time, e.Kernels)
	begin := time.Now()
	for n := 0; n < e.Rounds && (e.For == 0 || time.Since(begin) < e.For); n++ {
		if e.Jitter > 0 {
			pause := rand.N(e.Jitter)
			for from := time.Now(); time.Since(from) < pause; {
			}
		}
		for i, k := range g.events {
			if _, ok := queues[i].Free(); !ok {
				return nil, fmt.Errorf("event kernel %d has no free entry", k.Number())
			}
			rung[i] = time.Now()
			if err := k.Launch(); err != nil {
				return nil, err
			}
		}
		for left := e.Kernels; left > 0; {
			for i, q := range queues {
				if _, ok := q.Done(); !ok || rung[i].IsZero() {
					continue
				}
				took = append(took, time.Since(rung[i]))
				rung[i] = time.Time{}
				q.Complete()
				left--
			}
			if left > 0 && time.Since(begin) > e.For+eventLimit {
				return nil, fmt.Errorf("%d events have not ended within %v", left, eventLimit)
			}
		}
	}
	return took, nil
}
