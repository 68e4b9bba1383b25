// Package audit records who changed what over the API, and which changes were refused.
//
// A record is one line of JSON in a file of its own, which is rotated at a size, so that the records
// take a bounded part of the disk; or one line of the daemon's log. Refused requests, which a caller
// without rights may send at any rate, are recorded at a limited rate and counted beyond it.
package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"vgpud/mediator/access"
	"vgpud/mediator/events"
)

// Record is one request.
type Record struct {
	Time time.Time `json:"time"`
	// By describes the caller; the fields after it are its parts.
	By          string `json:"by"`
	Role        string `json:"role"`
	UID         *int64 `json:"uid,omitempty"`
	PID         int    `json:"pid,omitempty"`
	User        string `json:"user,omitempty"`
	Certificate string `json:"certificate,omitempty"`
	Serial      string `json:"serial,omitempty"`
	Address     string `json:"address,omitempty"`
	Method      string `json:"method"`
	// Path is the request's, with its query, and Arguments its body.
	Path      string          `json:"path"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	// Status is HTTP's, and Error the reason if the request failed.
	Status int    `json:"status"`
	Error  string `json:"error,omitempty"`
	// Unrecorded counts requests that were refused for want of a role, and left out before this
	// one.
	Unrecorded uint64 `json:"unrecorded,omitempty"`
}

// NewRecord returns a record of a caller's request.
func NewRecord(c access.Caller, method, path string, body []byte) Record {
	r := Record{
		By: c.String(), Role: c.Role.String(), Certificate: c.Certificate, Serial: c.Serial, Address: c.Address,
		Method: method, Path: events.Line(path), Arguments: arguments(body),
	}
	if p := c.Process; p != nil {
		uid := int64(p.UID)
		r.UID, r.PID, r.User = &uid, p.PID, p.User
	}
	return r
}

// maxArguments bounds the recorded part of a request's body, in bytes.
const maxArguments = 4 << 10

// arguments returns a body as JSON in one line: as it is, or quoted if it is no JSON or too long.
func arguments(body []byte) json.RawMessage {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	var b bytes.Buffer
	if err := json.Compact(&b, body); err == nil && b.Len() <= maxArguments {
		return b.Bytes()
	}
	quoted, err := json.Marshal(events.Line(string(body[:min(len(body), maxArguments)])))
	if err != nil {
		return nil
	}
	return quoted
}

// Defaults of [Options].
const (
	DefaultMaxBytes = 16 << 20
	DefaultKeep     = 4
)

// Options configure where records go.
type Options struct {
	// File is an absolute path; "" means the log.
	File string
	// MaxBytes is the size at which the file is rotated, and Keep how many older files are kept.
	MaxBytes int64
	Keep     int
	Log      *slog.Logger
}

// Log takes records. It is safe for concurrent use.
type Log struct {
	o       Options
	refused *rate.Limiter

	mu         sync.Mutex
	file       *os.File // nil until the first record, and after a failure
	size       int64
	unrecorded uint64
	failing    bool
}

// New returns a log. The file is opened at the first record.
func New(o Options) *Log {
	return &Log{o: o, refused: rate.NewLimiter(1, 10)}
}

// Write records a request. A record that can't be written to the file goes to the daemon's log, with
// the reason.
func (l *Log) Write(r Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Role != access.Operator.String() && !l.refused.Allow() {
		l.unrecorded++
		return
	}
	r.Unrecorded, l.unrecorded = l.unrecorded, 0
	if l.o.File != "" {
		err := l.append(&r)
		if err == nil {
			l.failing = false
			return
		}
		if !l.failing {
			l.o.Log.Error("changes can't be recorded in the audit file, and are in this log instead", events.Kind(events.AuditProblem), "file", l.o.File, "err", err)
		}
		l.failing = true
	}
	level := slog.LevelInfo
	if r.Error != "" {
		level = slog.LevelWarn
	}
	attrs := []any{"request", r.Method + " " + r.Path, "arguments", string(r.Arguments), "status", r.Status, "by", r.By, "role", r.Role}
	if r.Error != "" {
		attrs = append(attrs, "err", r.Error)
	}
	if r.Unrecorded > 0 {
		attrs = append(attrs, "unrecorded", r.Unrecorded)
	}
	l.o.Log.Log(context.Background(), level, "audit", attrs...)
}

// Problem returns why records are not in the file; "" if they are.
func (l *Log) Problem() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.failing {
		return ""
	}
	return "changes can't be recorded in " + l.o.File
}

// append writes a record to the file with one call.
//
// Preconditions: l.mu is held.
func (l *Log) append(r *Record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode a record: %w", err)
	}
	b = append(b, '\n')
	if err := l.open(); err != nil {
		return err
	}
	if l.size > 0 && l.size+int64(len(b)) > l.o.MaxBytes {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	n, err := l.file.Write(b)
	l.size += int64(n)
	if err != nil {
		// Opened anew for the next record: the file may have been moved or its disk remounted.
		return errors.Join(err, l.close())
	}
	return nil
}

// open opens the file if it is not open or another one is in its place.
func (l *Log) open() error {
	if l.file != nil {
		have, herr := l.file.Stat()
		want, werr := os.Stat(l.o.File)
		if herr == nil && werr == nil && os.SameFile(have, want) {
			return nil
		}
		if err := l.close(); err != nil {
			l.o.Log.Debug("close an audit file that was moved away", "err", err)
		}
	}
	// Not blocking, should there be a pipe in its place.
	f, err := os.OpenFile(l.o.File, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", l.o.File)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.file, l.size = f, info.Size()
	return nil
}

// rotate moves the file to FILE.1, the one there to FILE.2 and so on, and begins a new one.
func (l *Log) rotate() error {
	older := func(n int) string { return fmt.Sprintf("%s.%d", l.o.File, n) }
	var errs []error
	errs = append(errs, l.close())
	for n := l.o.Keep; n > 1; n-- {
		if err := os.Rename(older(n-1), older(n)); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if l.o.Keep > 0 {
		errs = append(errs, os.Rename(l.o.File, older(1)))
	} else {
		errs = append(errs, os.Remove(l.o.File))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("rotate %s: %w", filepath.Base(l.o.File), err)
	}
	return l.open()
}

func (l *Log) close() error {
	if l.file == nil {
		return nil
	}
	f := l.file
	l.file, l.size = nil, 0
	return f.Close()
}

// Close closes the file.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.close()
}
