package accountingtest

import (
	"sync/atomic"
	"time"

	"vgpud/accounting"
	"vgpud/clock"
)

// Record is the record that a [Recorded] GPU keeps, and its executors' reports of work, while time
// passes by a clock. It implements [accounting.EventSource] and [accounting.Workload], for one
// goroutine.
type Record struct {
	GPU      *Recorded
	Clock    clock.Clock
	Contexts []*RecordedContext
	// Room is how many records there is room for between two reads; 0: enough.
	Room int
	// Err, if set, is the error of every read.
	Err error
	// Closed reports whether Close was called.
	Closed atomic.Bool

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

// Close implements [accounting.EventSource].
func (r *Record) Close() error {
	r.Closed.Store(true)
	return nil
}

// Work implements [accounting.Workload].
func (r *Record) Work(_ time.Duration, f func(*accounting.Work)) {
	for _, c := range r.Contexts {
		w := c.Work()
		f(&w)
	}
}
