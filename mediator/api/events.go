package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"vgpud/mediator/access"
	"vgpud/mediator/events"
)

// Bounds of streams of events.
const (
	// heartbeatEvery is how often a stream without events shows that it is alive.
	heartbeatEvery = 15 * time.Second
	// maxStreams is how many streams there are at a time, of which viewers have maxViewerStreams, and
	// each of them maxStreamsEach.
	maxStreams       = 64
	maxViewerStreams = 48
	maxStreamsEach   = 16
)

// streamWriteLimit is how long a reader of a stream may take to make room for an event. It is a
// variable for tests.
var streamWriteLimit = 10 * time.Second

// missedKind is the kind of the message that tells a reader of a stream what it missed.
const missedKind = "missed"

// streams counts the streams of events.
type streams struct {
	mu      sync.Mutex
	open    int
	viewers map[string]int // by identity
}

// begin admits a stream of a caller. end must be called after it.
func (s *streams) begin(c access.Caller) (end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit, who := maxStreams, ""
	if c.Role < access.Operator {
		limit, who = maxViewerStreams, c.Identity()
	}
	switch {
	case s.open >= limit:
		return nil, fmt.Errorf("there are %d streams of events, and role %v may have no more: close one, or ask without \"Accept: text/event-stream\": %w", s.open, c.Role, ErrBusy)
	case who != "" && s.viewers[who] >= maxStreamsEach:
		return nil, fmt.Errorf("%s has %d streams of events, as many as one viewer may have: close one, or ask without \"Accept: text/event-stream\": %w", who, maxStreamsEach, ErrBusy)
	}
	s.open++
	if who != "" {
		if s.viewers == nil {
			s.viewers = make(map[string]int)
		}
		s.viewers[who]++
	}
	return func() { s.end(who) }, nil
}

func (s *streams) end(who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if who == "" {
		return
	}
	if s.viewers[who]--; s.viewers[who] == 0 {
		delete(s.viewers, who)
	}
}

// serveEvents answers with the events that are kept and, if the client accepts a stream of
// server-sent events, goes on with those that happen from then on. The client names the last event
// that it has in the header Last-Event-ID or in the query as since.
func (s *handler) serveEvents(w http.ResponseWriter, r *http.Request) {
	since := r.URL.Query().Get("since")
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		since = id
	}
	if !strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		all, _, _ := s.o.Events.Since(since)
		if all == nil {
			all = []events.Event{} // not null
		}
		write(w, s.o.Log, http.StatusOK, all)
		return
	}
	end, err := s.streams.begin(callerOf(r))
	if err != nil {
		s.refuse(w, err)
		return
	}
	defer end()
	if err := s.stream(w, r.Context(), since); err != nil {
		s.o.Log.Debug("a stream of events ends", "by", callerOf(r), "err", err)
		// The connection ends with the stream: what is still buffered for a slow reader is dropped.
		panic(http.ErrAbortHandler)
	}
}

// stream sends events until ctx ends, or until the client does not take one in time.
func (s *handler) stream(w http.ResponseWriter, ctx context.Context, since string) error {
	c := http.NewResponseController(w)
	send := func(text string) error {
		if err := c.SetWriteDeadline(time.Now().Add(streamWriteLimit)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		if _, err := w.Write([]byte(text)); err != nil {
			return err
		}
		return c.Flush()
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	if err := send(": vgpud\n\n"); err != nil {
		return err
	}
	heartbeat := time.NewTicker(heartbeatEvery)
	defer heartbeat.Stop()
	for {
		all, missed, more := s.o.Events.Since(since)
		if missed != "" {
			text, err := message("", missedKind, map[string]string{"reason": missed})
			if err == nil {
				err = send(text)
			}
			if err != nil {
				return err
			}
		}
		for i := range all {
			text, err := message(all[i].ID, all[i].Kind, all[i])
			if err == nil {
				err = send(text)
			}
			if err != nil {
				return err
			}
			since = all[i].ID
		}
		if missed != "" && len(all) == 0 {
			since = ""
		}
		select {
		case <-more:
		case <-heartbeat.C:
			if err := send(": alive\n\n"); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// message returns one message of a stream. JSON has no line ends, and kinds and ids are the daemon's
// own words.
func message(id, kind string, v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode an event: %w", err)
	}
	if id != "" {
		id = "id: " + id + "\n"
	}
	return fmt.Sprintf("%sevent: %s\ndata: %s\n\n", id, kind, b), nil
}
