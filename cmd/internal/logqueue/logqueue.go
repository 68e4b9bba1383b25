// Package logqueue has a service go on while nobody reads its log. A write to a pipe or to the journal
// waits for room, and the service's own locks may be held meanwhile.
//
// A goroutine writes the records, in order. It ends with [Handler.Stop].
package logqueue

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// maxRecords is how many records wait to be written. Further ones are lost.
const maxRecords = 4096

// Handler passes records on to another handler without waiting for it. A record behind lost ones has
// their number in its attribute "lost".
type Handler struct {
	slog.Handler
	q *queue
}

type queue struct {
	records chan record
	lost    atomic.Uint64
	ended   chan struct{}
}

// record is a record for a handler; without one it is the last.
type record struct {
	to slog.Handler
	r  slog.Record
}

// New returns a handler that passes records on to h. Stop must be called.
func New(h slog.Handler) *Handler {
	q := &queue{records: make(chan record, maxRecords), ended: make(chan struct{})}
	go q.run()
	return &Handler{h, q}
}

func (q *queue) run() {
	defer close(q.ended)
	for e := range q.records {
		if e.to == nil {
			return
		}
		if n := q.lost.Swap(0); n > 0 {
			e.r.AddAttrs(slog.Uint64("lost", n))
		}
		_ = e.to.Handle(context.Background(), e.r) // nobody could be told
	}
}

// Handle implements [slog.Handler].
func (h *Handler) Handle(_ context.Context, r slog.Record) error {
	select {
	case h.q.records <- record{h.Handler, r.Clone()}:
	default:
		h.q.lost.Add(1)
	}
	return nil
}

// WithAttrs implements [slog.Handler].
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Handler{h.Handler.WithAttrs(attrs), h.q}
}

// WithGroup implements [slog.Handler].
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{h.Handler.WithGroup(name), h.q}
}

// Stop waits until all records are written, for at most d. Later records are lost.
func (h *Handler) Stop(d time.Duration) {
	limit := time.NewTimer(d)
	defer limit.Stop()
	select {
	case h.q.records <- record{}:
	case <-limit.C:
		return
	}
	select {
	case <-h.q.ended:
	case <-limit.C:
	}
}
