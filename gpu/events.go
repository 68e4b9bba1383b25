package gpu

import (
	"os"
	"time"

	"vgpud/mediator/vgpu/abi"
)

// EventKernels is a [Context] that keeps kernels ready, and launches them by itself when somebody
// stores to a doorbell in memory of the host (EDGE §III; the memory is BAR4 of docs/device.md). A
// device that can't lacks the methods.
//
// While kernels have events, the context is resident: something of it is on the GPU and polls, and
// the context is charged for that. It parks if others have work and it has none, if there was no
// event for a while, and on demand. Parked, it looks at its doorbells only when it is kicked. Calls
// of the context that wait for its kernels to end park it first.
type EventKernels interface {
	// MapEvents gives the context the event area: f is all of it, and stays the caller's. It comes
	// before the other calls, once. It returns the address at which the context's kernels reach the
	// area, for what goes in and out with events.
	MapEvents(f *os.File) (Ptr, error)
	// RegisterEventKernel makes the kernel's queue, and launches its events from now on. If it fails,
	// everything is as before. The errors are [ErrFull] if the GPU's table has no row, or none for the
	// context's owner, and those of a launch.
	RegisterEventKernel(k *EventKernel) error
	// UnregisterEventKernel ends a kernel's registration when the events that were rung for before
	// have ended. It is called until it reports that the kernel is gone.
	UnregisterEventKernel(number int) (gone bool, err error)
	// KickEvents has a parked context look at its doorbells. It may be called from any goroutine and
	// does not block.
	KickEvents()
	// HoldEvents keeps the context parked, so that nothing but the events under way is on the GPU, or
	// no longer does.
	HoldEvents(on bool) error
	// EventKernelCounts returns the counts of all registered kernels, by number. It tells of faults,
	// after which Fault returns one: nothing else may be under way that would.
	EventKernelCounts() ([]EventKernelCounts, error)
}

// EventPolling is an [EventKernels] whose kernels, while they are held, need no kicks if somebody else
// looks at their doorbells. A kick goes through another process; a look does not.
type EventPolling interface {
	// PollEvents has rings of kernels that are parked ask for no kick, or ask for one again. It reports
	// whether there are rings that were not taken. It is off when the hold ends.
	PollEvents(on bool) (rung bool)
}

// EventTimes is an [EventKernels] that says when its event kernels had something on the GPU, which
// nobody else does.
type EventTimes interface {
	// EventTimes calls f with the times, on the GPU's clock, since the call before. They may overlap, and
	// end now at the latest. It returns since when something has been there that is not told yet, or 0.
	EventTimes(f func(start, end time.Duration)) (since time.Duration, err error)
}

// EventKernel is a kernel to be registered.
type EventKernel struct {
	// Number of the kernel in the event area.
	Number int
	// Handle is what the kernel's row in the event area calls it.
	Handle uint64
	// Launch is what is launched. Its parameters are what the queue's entries have at first.
	Launch
	// Entries of the queue: the most events under way.
	Entries int
}

// EventKernelCounts are an event kernel's counts since it was registered.
type EventKernelCounts struct {
	Number int           `json:"number"`
	Kernel string        `json:"kernel"`
	Tier   abi.EventTier `json:"tier"`
	// Why says why Tier is the host.
	Why     abi.EventReason `json:"why,omitempty"`
	Started uint64          `json:"started"`
	Ended   uint64          `json:"ended"`
	Dropped uint64          `json:"dropped"` // rings that found no free entry
	Stray   uint64          `json:"stray"`   // rings while no kernel had the number, before this one
	// Pending reports whether there are rings that the GPU has not taken.
	Pending bool `json:"pending,omitempty"`
	// Resident reports whether the GPU polls the kernel's doorbell, or will in its context's turn.
	Resident bool `json:"resident"`
	// P50 and P99 are quantiles of the time from a ring, as the GPU found it, to the event's end.
	P50 time.Duration `json:"p50"`
	P99 time.Duration `json:"p99"`
}
