package accounting

import "time"

// Unrecorded is an [EventSource] for hardware that records no context switches, or is not asked to.
// A [RecordMeter] then goes by the executors' reports alone, and contexts that had work at the same
// time share it equally. That is what they got if the hardware gives them slices of one length and
// each launch is over within one: the GPU stamps a launch's start when it has the engine.
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
