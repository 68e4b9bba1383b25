package accounting

import (
	"context"
	"iter"
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
	Group GroupID
	// On is true where the group was put on the engine, and false where its
	// state had been saved.
	On bool
}

// EventSource is hardware that records its own context switches. An idle
// context that stays resident looks busy in it, so its spans are clipped to
// the times when their guest had work outstanding.
//
// The sequence ends with ctx, or after it yielded an error.
type EventSource interface {
	Switches(ctx context.Context) iter.Seq2[Switch, error]
}
