package libvirt

import (
	"context"
	"sync"
)

// Pending are events that nobody has taken yet, at most one a domain. Its
// methods may be called from any goroutine; Add and Fail don't wait.
type Pending struct {
	mu    sync.Mutex
	order []string
	of    map[string]Event
	err   error
	wake  chan struct{} // has room for one
}

// NewPending makes one without events.
func NewPending() *Pending {
	return &Pending{of: make(map[string]Event), wake: make(chan struct{}, 1)}
}

// Add adds an event to what there is of its domain.
func (p *Pending) Add(e Event) {
	p.mu.Lock()
	old, there := p.of[e.UUID]
	if !there {
		p.order = append(p.order, e.UUID)
	}
	e.Metadata = e.Metadata || old.Metadata
	p.of[e.UUID] = e
	p.mu.Unlock()
	p.signal()
}

// Fail lets Next fail once the events are taken that there are. The first error
// stays.
func (p *Pending) Fail(err error) {
	p.mu.Lock()
	if p.err == nil {
		p.err = err
	}
	p.mu.Unlock()
	p.signal()
}

func (p *Pending) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Next takes the oldest event, and waits for one where there is none.
func (p *Pending) Next(ctx context.Context) (Event, error) {
	for {
		p.mu.Lock()
		if len(p.order) > 0 {
			e := p.of[p.order[0]]
			delete(p.of, e.UUID)
			p.order = p.order[1:]
			p.mu.Unlock()
			p.signal() // another one may wait too
			return e, nil
		}
		err := p.err
		p.mu.Unlock()
		if err != nil {
			p.signal()
			return Event{}, err
		}
		select {
		case <-p.wake:
		case <-ctx.Done():
			return Event{}, context.Cause(ctx)
		}
	}
}
