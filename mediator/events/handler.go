package events

import (
	"context"
	"log/slog"
	"slices"
)

// kindKey is the key of the attribute that makes a log record an event.
const kindKey = "event"

// Kind returns the attribute that makes a log record an event of a kind.
func Kind(kind string) slog.Attr { return slog.String(kindKey, kind) }

// Handler is a log handler that adds records with a kind to a ring, and passes all records on.
type Handler struct {
	next  slog.Handler
	ring  *Ring
	attrs []slog.Attr // of the logger
}

// NewHandler returns a handler in front of next.
func NewHandler(next slog.Handler, ring *Ring) *Handler { return &Handler{next: next, ring: ring} }

// Enabled implements [slog.Handler]. Events are added even if the log leaves them out.
func (h *Handler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.next.Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	if e, ok := h.event(r); ok {
		h.ring.add(e)
	}
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// event returns the event that a record is; false if it is none.
func (h *Handler) event(r slog.Record) (Event, bool) {
	e := Event{Time: r.Time, Severity: severity(r.Level), Message: Line(r.Message)}
	add := func(a slog.Attr) bool {
		value := Line(a.Value.Resolve().String())
		switch a.Key {
		case kindKey:
			e.Kind = value
		case "guest":
			e.VM = value
		case "gpu":
			e.GPU = value
		case "domain":
			e.Domain = value
		case "by":
			e.By = value
		default:
			if e.Details == nil {
				e.Details = make(map[string]string)
			}
			e.Details[Line(a.Key)] = value
		}
		return true
	}
	isEvent := slices.ContainsFunc(h.attrs, func(a slog.Attr) bool { return a.Key == kindKey })
	r.Attrs(func(a slog.Attr) bool {
		isEvent = isEvent || a.Key == kindKey
		return !isEvent
	})
	if !isEvent {
		return Event{}, false
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(add)
	return e, true
}

func severity(l slog.Level) string {
	switch {
	case l >= slog.LevelError:
		return "error"
	case l >= slog.LevelWarn:
		return "warning"
	default:
		return "info"
	}
}

// WithAttrs implements [slog.Handler].
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Handler{next: h.next.WithAttrs(attrs), ring: h.ring, attrs: append(slices.Clip(h.attrs), attrs...)}
}

// WithGroup implements [slog.Handler]. The names of an event's details are without the group.
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{next: h.next.WithGroup(name), ring: h.ring, attrs: h.attrs}
}
