package vm

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"vgpud/clock"
)

// A guest can have the same thing happen, and said, as often as it likes. Of
// each message so many are written at once, and so many after that.
const (
	sayEvery = time.Second
	sayBurst = 10
	// maxSayings bounds what is kept. Messages are constants of the program, and
	// fewer than this; more of them share one pace.
	maxSayings = 256
)

// Quiet is a handler that passes on to h as much of each message as a log can
// bear, whatever a guest does: 10 at once, and one a second. A record that
// follows some that were left out says how many in its attribute "more". Records
// below Info are all passed on, since who wants them wants them all.
func Quiet(h slog.Handler, c clock.Clock) slog.Handler {
	return &quiet{Handler: h, limit: &sayings{clock: c, of: make(map[string]*saying)}}
}

type quiet struct {
	slog.Handler
	limit *sayings // common to all handlers that derive from one
}

// sayings are the paces of all messages.
type sayings struct {
	clock clock.Clock
	mu    sync.Mutex
	of    map[string]*saying
}

type saying struct {
	pace pace
	more uint64 // left out since the last that was passed on
}

// allow is whether a message may be written, and how many were left out before.
func (s *sayings) allow(message string) (more uint64, ok bool) {
	now := s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.of[message]
	if w == nil {
		if len(s.of) >= maxSayings {
			message = ""
		}
		if w = s.of[message]; w == nil {
			w = &saying{pace: pace{every: sayEvery, burst: sayBurst}}
			s.of[message] = w
		}
	}
	if w.pace.next(now) > now {
		w.more++
		return 0, false
	}
	w.pace.take(now)
	more, w.more = w.more, 0
	return more, true
}

// Handle implements [slog.Handler].
func (q *quiet) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelInfo {
		return q.Handler.Handle(ctx, r)
	}
	more, ok := q.limit.allow(r.Message)
	if !ok {
		return nil
	}
	if more > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Uint64("more", more))
	}
	return q.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (q *quiet) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &quiet{Handler: q.Handler.WithAttrs(attrs), limit: q.limit}
}

// WithGroup implements [slog.Handler].
func (q *quiet) WithGroup(name string) slog.Handler {
	return &quiet{Handler: q.Handler.WithGroup(name), limit: q.limit}
}
