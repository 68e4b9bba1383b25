package accounting

import "time"

// Unrecorded is an [EventSource] of hardware that records no context switches, or is not
// asked to: a [SpanMeter] goes by what is told of the contexts' work alone then, and
// those that had work at the same time share it equally. That is what they got where
// the hardware gives them slices of one length, and where each launch is over within
// one: the GPU stamps a launch's start when it has the engine.
type Unrecorded struct {
	// Clock is the GPU's.
	Clock interface {
		Now() (time.Duration, error)
	}
}

// Read implements [EventSource]: there is never any.
func (Unrecorded) Read([]Switch) (int, error) { return 0, nil }

// Now implements [EventSource].
func (u Unrecorded) Now() (time.Duration, error) { return u.Clock.Now() }

// Close implements [EventSource].
func (Unrecorded) Close() error { return nil }
