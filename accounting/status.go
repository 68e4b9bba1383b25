package accounting

import (
	"errors"
	"time"
)

// GroupID is the hardware's number for a channel group: NVIDIA's TSG id, 12 bits wide, unique on
// its runlist.
type GroupID uint16

// Status is what the GPU's compute engine shows at one instant.
type Status struct {
	// Clock is the GPU's own time at the reading (PTIMER, nanoseconds).
	Clock time.Duration
	// Valid reports whether any group's state is on the engine; Group is that group. A valid group
	// need not be busy: a context that ran out of work stays until another one is wanted.
	Valid bool
	Group GroupID
	// Switch tells how far the engine is with a context switch, and Next which group it loads, if
	// it loads one.
	Switch SwitchState
	Next   GroupID
	// Busy is the engine's own busy bit.
	Busy bool
	// Entry is what the channel table says of the channel on the engine. LoGA §4.1 told idle from
	// busy by it.
	Entry EntryState
}

// SwitchState is how far the engine is with a context switch.
type SwitchState uint8

// The states of a context switch. Saving puts Group's state away and Loading brings Next's in;
// Switching is a switch from Group to Next that shows neither.
const (
	NoSwitch SwitchState = iota
	Saving
	Loading
	Switching
)

// EntryState reports whether the channel on the engine executes or has work waiting, by its entry
// in the GPU's channel table.
type EntryState uint8

// The states of a channel's entry. EntryUnknown comes from a source that doesn't read the table.
const (
	EntryUnknown EntryState = iota
	EntryIdle
	EntryPending
)

// Source tells what the compute engine executes. It is used by one goroutine at a time. Sample
// allocates nothing and is cheap: the sampler calls it about once a microsecond.
//
// An error means that the GPU can't be read any more: it fell off the bus, or the process that
// owned the page is gone.
type Source interface {
	Sample() (Status, error)
}

// Watcher is a Source that can tell with one read whether anything changed since its last Sample. A
// register read over PCIe takes most of a microsecond, and a full Sample needs several, one of them
// for the clock. So the sampler spins on Changed and samples only after a change and at both ends
// of a phase.
type Watcher interface {
	Source
	// Changed reports whether Sample would answer differently from the last time, apart from its
	// Clock.
	Changed() bool
}

// EntryReader is a Source that reads the channel's entry only on request, since that takes longer.
// A sampler makes the request before its first Sample, as Config.Idle needs it.
type EntryReader interface {
	Source
	// ReadEntries reports whether Sample is to read the entry from now on.
	ReadEntries(yes bool)
}

// Steady is a Source in simulated time. SteadyUntil returns an instant on the GPU's clock before
// which Sample's answer can't change, so that a [SimulatedSampler] may skip ahead with the result
// of polling every tick.
type Steady interface {
	Source
	SteadyUntil() time.Duration
}

// Switch is one context switch as the hardware recorded it.
type Switch struct {
	Clock time.Duration // on the GPU's clock
	// PID is the process that owns the group, by the host kernel's number. It is 0 if it is not
	// known; then Group names the group. Group may be 0 if PID is known.
	PID   int
	Group GroupID
	// On reports whether the group was put on the engine. Otherwise its state had been saved.
	On bool
}

// NoProcess is the PID of a [Switch] whose group belongs to the driver alone.
const NoProcess = -1

// ErrDropped means that the hardware ran out of room for its records: the switches after those that
// were read are lost. Later records are right again.
var ErrDropped = errors.New("records of context switches were lost")

// EventSource is hardware that records its own context switches. An idle context that stays
// resident looks busy in the record, and one that is alone causes no records at all. So what it
// shows is clipped to the times when the context had work outstanding: see [RecordMeter].
//
// It is used by one goroutine at a time.
type EventSource interface {
	// Read moves records into buf, oldest first, and returns how many. It does not wait. If there
	// are fewer than len(buf), they include every switch before an earlier call of Now. With
	// [ErrDropped] the n records are valid too, and those after them are lost. Any other error
	// means that the record can't be read any more.
	Read(buf []Switch) (n int, err error)
	// Now reads the GPU's clock, which stamps the records.
	Now() (time.Duration, error)
	// Close ends the recording.
	Close() error
}
