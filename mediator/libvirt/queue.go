package libvirt

import (
	"context"
	"sync"
)

// EventQueue holds events that were not received yet, at most one for each domain. Its methods may
// be called from any goroutine; Add and Fail don't block.
type EventQueue struct {
	mu    sync.Mutex
	order []string
	of    map[string]Event
	err   error
	wake  chan struct{} // has room for one
}

// NewEventQueue returns an empty queue.
func NewEventQueue() *EventQueue {
	return &EventQueue{of: make(map[string]Event), wake: make(chan struct{}, 1)}
}

// Add adds an event, or merges it with the domain's earlier one.
func (q *EventQueue) Add(e Event) {
	q.mu.Lock()
	old, there := q.of[e.UUID]
	if !there {
		q.order = append(q.order, e.UUID)
	}
	e.Metadata = e.Metadata || old.Metadata
	q.of[e.UUID] = e
	q.mu.Unlock()
	q.signal()
}

// Fail makes Next fail after the remaining events. Only the first error counts.
func (q *EventQueue) Fail(err error) {
	q.mu.Lock()
	if q.err == nil {
		q.err = err
	}
	q.mu.Unlock()
	q.signal()
}

func (q *EventQueue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Next removes the oldest event, and waits for one if there is none.
func (q *EventQueue) Next(ctx context.Context) (Event, error) {
	for {
		q.mu.Lock()
		if len(q.order) > 0 {
			e := q.of[q.order[0]]
			delete(q.of, e.UUID)
			q.order = q.order[1:]
			q.mu.Unlock()
			q.signal() // another one may wait too
			return e, nil
		}
		err := q.err
		q.mu.Unlock()
		if err != nil {
			q.signal()
			return Event{}, err
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
			return Event{}, context.Cause(ctx)
		}
	}
}
