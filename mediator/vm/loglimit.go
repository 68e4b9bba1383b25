package vm

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"vgpud/clock"
	"vgpud/internal/tokenbucket"
)

// A guest can repeat the events behind a log message as often as it likes.
const (
	// Each message may be logged messageBurst times at once, and then once in messageEvery.
	messageEvery = time.Second
	messageBurst = 10
	// maxMessages bounds memory. Messages are constants of the program, of which there are fewer;
	// any beyond it share one limit.
	maxMessages = 256
)

// LimitLog returns a handler that passes on to h each message at most 10 times at once and then
// once a second, whatever a guest does. A record that follows dropped ones has their number in its
// attribute "more". Records below Info are all passed on, for debugging.
func LimitLog(h slog.Handler, c clock.Clock) slog.Handler {
	return &limitedLog{Handler: h, limit: &messageLimits{clock: c, of: make(map[string]*messageLimit)}}
}

type limitedLog struct {
	slog.Handler
	limit *messageLimits // shared by all handlers derived from one
}

// messageLimits holds the limits of all messages.
type messageLimits struct {
	clock clock.Clock
	mu    sync.Mutex
	of    map[string]*messageLimit
}

// messageLimit is the limit of one message.
type messageLimit struct {
	bucket tokenbucket.Bucket
	more   uint64 // dropped since the last that was passed on
}

// allow reports whether a message may be logged, and how many were dropped before it.
func (s *messageLimits) allow(message string) (more uint64, ok bool) {
	now := s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.of[message]
	if w == nil {
		if len(s.of) >= maxMessages {
			message = ""
		}
		if w = s.of[message]; w == nil {
			w = &messageLimit{bucket: tokenbucket.Bucket{Every: messageEvery, Burst: messageBurst}}
			s.of[message] = w
		}
	}
	if w.bucket.Next(now) > now {
		w.more++
		return 0, false
	}
	w.bucket.Take(now)
	more, w.more = w.more, 0
	return more, true
}

// Handle implements [slog.Handler].
func (q *limitedLog) Handle(ctx context.Context, r slog.Record) error {
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
func (q *limitedLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &limitedLog{Handler: q.Handler.WithAttrs(attrs), limit: q.limit}
}

// WithGroup implements [slog.Handler].
func (q *limitedLog) WithGroup(name string) slog.Handler {
	return &limitedLog{Handler: q.Handler.WithGroup(name), limit: q.limit}
}
