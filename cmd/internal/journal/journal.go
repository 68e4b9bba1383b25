// Package journal writes a log for systemd's journal, which reads a service's standard error. Each
// record begins with its priority, as sd-daemon(3) describes, and has no time, because the journal
// notes when it received the record.
package journal

import (
	"context"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Connected reports whether a file is the journal's stream of this service. JOURNAL_STREAM has the
// stream's device and inode. A child inherits the variable, but may have another standard error.
func Connected(f *os.File) bool {
	device, inode, ok := strings.Cut(os.Getenv("JOURNAL_STREAM"), ":")
	if !ok {
		return false
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return false
	}
	return device == strconv.FormatUint(st.Dev, 10) && inode == strconv.FormatUint(st.Ino, 10)
}

// Handler writes records of another handler to the journal.
type Handler struct {
	slog.Handler
	w *writer
}

// New returns a handler that writes to w. format returns the handler whose records are written,
// such as [slog.NewTextHandler] with the options of the caller; its options are the second argument.
func New(w io.Writer, o slog.HandlerOptions, format func(io.Writer, *slog.HandlerOptions) slog.Handler) *Handler {
	replace := o.ReplaceAttr
	o.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
		// Attributes of the caller's may have these names.
		_, level := a.Value.Any().(slog.Level)
		time := a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime
		if len(groups) == 0 && (time || level && a.Key == slog.LevelKey) {
			return slog.Attr{}
		}
		if replace != nil {
			return replace(groups, a)
		}
		return a
	}
	to := &writer{w: w}
	return &Handler{Handler: format(to, &o), w: to}
}

// Handle implements [slog.Handler].
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	h.w.priority = priority(r.Level)
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Handler{Handler: h.Handler.WithAttrs(attrs), w: h.w}
}

// WithGroup implements [slog.Handler].
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{Handler: h.Handler.WithGroup(name), w: h.w}
}

// The priorities of syslog(3).
const (
	priorityError   = '3'
	priorityWarning = '4'
	priorityInfo    = '6'
	priorityDebug   = '7'
)

func priority(l slog.Level) byte {
	switch {
	case l >= slog.LevelError:
		return priorityError
	case l >= slog.LevelWarn:
		return priorityWarning
	case l >= slog.LevelInfo:
		return priorityInfo
	}
	return priorityDebug
}

// writer puts the priority before each record. A handler writes a record in one call.
type writer struct {
	mu       sync.Mutex
	priority byte // of the record that is written
	w        io.Writer
}

// Write implements [io.Writer].
//
// Preconditions: w.mu is held.
func (w *writer) Write(record []byte) (int, error) {
	line := append([]byte{'<', w.priority, '>'}, record...)
	if _, err := w.w.Write(line); err != nil {
		return 0, err
	}
	return len(record), nil
}
