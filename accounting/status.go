package accounting

import (
	"errors"
	"time"
)

// GroupID is the hardware's number for a channel group: NVIDIA's TSG id, 12
// bits wide, unique on its runlist.
type GroupID uint16

// Status is what the GPU's compute engine shows at one instant.
type Status struct {
	// Clock is the GPU's own time at the reading (PTIMER, nanoseconds).
	Clock time.Duration
	// Valid is whether a group's state is on the engine at all; Group is that
	// group. A valid group need not be busy: a context that has run dry stays
	// until another is wanted.
	Valid bool
	Group GroupID
	// Switch is what the engine's context switch is doing, and Next the group
	// that it loads, where it loads one.
	Switch SwitchState
	Next   GroupID
	// Busy is the engine's own busy bit.
	Busy bool
	// Entry is what the entry of the channel on the engine says, which LoGA §4.1
	// went by.
	Entry EntryState
}

// SwitchState is how far the engine is with a context switch.
type SwitchState uint8

// The states of a context switch. Saving puts Group's state away and Loading
// brings Next's in; Switching is a switch from Group to Next that shows neither.
const (
	NoSwitch SwitchState = iota
	Saving
	Loading
	Switching
)

// EntryState is what the GPU's table of channels says of the channel on the
// engine: whether it executes or has work waiting.
type EntryState uint8

// A source that doesn't read the table says EntryUnknown.
const (
	EntryUnknown EntryState = iota
	EntryIdle
	EntryPending
)

// Source says what the compute engine is executing. It is used by one
// goroutine at a time. Sample allocates nothing and is cheap: the sampler calls
// it about once a microsecond.
//
// An error means that the GPU can't be read any more: it fell off the bus, or
// the process that owned the page is gone.
type Source interface {
	Sample() (Status, error)
}

// Watcher is a Source that can tell with one read whether anything changed
// since its last Sample. A register read over PCIe takes most of a microsecond
// and a full Sample needs several, the clock's among them; so the sampler spins
// on Changed, and samples when it says yes and at both ends of a phase.
type Watcher interface {
	Source
	// Changed reports whether Sample would answer other than the last time,
	// apart from its Clock.
	Changed() bool
}

// EntryReader is a Source that reads the channel's entry only where it is told to,
// since that takes longer: a [Sampler] tells it before its first Sample, as
// Config.Idle needs it.
type EntryReader interface {
	Source
	// ReadEntries says whether Sample is to read the entry from now on.
	ReadEntries(yes bool)
}

// Steady is a Source in simulated time. SteadyUntil is an instant on the GPU's
// clock before which Sample's answer can't change, so that a [Poller] may skip
// ahead with the result of polling every tick.
type Steady interface {
	Source
	SteadyUntil() time.Duration
}

// Switch is one context switch as the hardware recorded it.
type Switch struct {
	Clock time.Duration // on the GPU's clock
	// PID is the process that owns the group, as the host's kernel numbers it; 0:
	// not known, and Group names it. Where it is known Group may be 0.
	PID   int
	Group GroupID
	// On is true where the group was put on the engine, and false where its
	// state had been saved.
	On bool
}

// NoProcess is the PID of a [Switch] whose group is nobody's but the driver's.
const NoProcess = -1

// ErrDropped says that the hardware had no room left for its records: switches
// after those that were read are not known. Those that come later are right again.
var ErrDropped = errors.New("records of context switches were lost")

// EventSource is hardware that records its own context switches. An idle
// context that stays resident looks busy in it, and one that is alone causes no
// records at all, so what it shows is clipped to the times when the context had
// work outstanding: see [SpanMeter].
//
// It is used by one goroutine at a time.
type EventSource interface {
	// Read moves records into buf, oldest first, and returns how many; it does not
	// wait. Fewer than len(buf) are all that there are: every switch before a Now
	// that was asked before. With [ErrDropped] the n records are valid too, and
	// lost are those that came after them. Any other error means that the record
	// can't be read any more.
	Read(buf []Switch) (n int, err error)
	// Now reads the GPU's clock, which the records' stamps are on.
	Now() (time.Duration, error)
	// Close ends the recording.
	Close() error
}
