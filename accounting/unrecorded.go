package accounting

import "time"

// Unrecorded is an [EventSource] for hardware that records no context switches, or is not asked to.
// A [RecordMeter] then goes by the executors' reports alone.
type Unrecorded struct {
	// Clock reads the GPU's clock.
	Clock interface {
		Now() (time.Duration, error)
	}
}

// Read implements [EventSource]. It never returns a record.
func (Unrecorded) Read([]Switch) (int, error) { return 0, nil }

// Now implements [EventSource].
func (u Unrecorded) Now() (time.Duration, error) { return u.Clock.Now() }

// Close implements [EventSource].
func (Unrecorded) Close() error { return nil }
