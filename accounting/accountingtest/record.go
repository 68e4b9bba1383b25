package accountingtest

import (
	"sync/atomic"
	"time"

	"vgpud/accounting"
	"vgpud/clock"
)

// Record is the record that a [Recorded] GPU keeps, and its executors' reports of work, while time
// passes by a clock. It implements [accounting.Pausable] and [accounting.Workload], for one
// goroutine.
type Record struct {
	GPU      *Recorded
	Clock    clock.Clock
	Contexts []*RecordedContext
	// Room is how many records there is room for between two reads; 0: enough.
	Room int
	// Err, if set, is the error of every read, and ResumeErr that of Resume.
	Err, ResumeErr error
	// Alter, if set, changes what is reported.
	Alter func(*accounting.Work)
	// Closed reports whether Close was called, and Paused whether the record is paused.
	Closed, Paused atomic.Bool

	records []accounting.Switch
	dropped bool
}

// Now implements [accounting.EventSource].
func (r *Record) Now() (time.Duration, error) {
	if r.Err != nil {
		return 0, r.Err
	}
	r.GPU.AdvanceTo(r.Clock.Now())
	for _, sw := range r.GPU.Records() {
		if r.Paused.Load() {
			continue
		}
		if r.Room > 0 && len(r.records) == r.Room {
			r.dropped = true
			break
		}
		r.records = append(r.records, sw)
	}
	return r.GPU.Now(), nil
}

// Read implements [accounting.EventSource].
func (r *Record) Read(buf []accounting.Switch) (int, error) {
	if r.Err != nil {
		return 0, r.Err
	}
	n := copy(buf, r.records)
	r.records = r.records[n:]
	if len(r.records) == 0 && r.dropped {
		r.dropped = false
		return n, accounting.ErrDropped
	}
	return n, nil
}

// Pause implements [accounting.Pausable].
func (r *Record) Pause() error {
	r.Paused.Store(true)
	r.records, r.dropped = nil, false
	return r.Err
}

// Resume implements [accounting.Pausable].
func (r *Record) Resume() error {
	if r.ResumeErr != nil {
		return r.ResumeErr
	}
	r.GPU.Records()
	r.Paused.Store(false)
	return r.Err
}

// Close implements [accounting.EventSource].
func (r *Record) Close() error {
	r.Closed.Store(true)
	return nil
}

// Work implements [accounting.Workload].
func (r *Record) Work(_ time.Duration, f func(*accounting.Work)) {
	for _, c := range r.Contexts {
		w := c.Work()
		if r.Alter != nil {
			r.Alter(&w)
		}
		f(&w)
	}
}
