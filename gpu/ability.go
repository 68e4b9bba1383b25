package gpu

import (
	"time"

	"vgpud/accounting"
)

// The interfaces below are apart from Device because not all hardware has the
// ability; a device that lacks it lacks the method.

// Sampled is a device whose status can be read while it works.
type Sampled interface {
	// Source reads the status of the compute engine. The caller uses it from
	// one goroutine.
	Source() (accounting.Source, error)
}

// Losable is a device that tells of its end, also those that ask it nothing
// else.
type Losable interface {
	// Lost is closed when the device does not answer any more, after Close at the
	// latest. It never does again: who wants to go on opens it anew.
	Lost() <-chan struct{}
}

// Suspender takes a context's channels off the hardware and puts them back,
// in mid-kernel.
type Suspender interface {
	Suspend(c Context) error
	Resume(c Context) error
}

// Slicer sets how long a context's channel group runs before the next one's
// turn.
type Slicer interface {
	SetTimeslice(c Context, d time.Duration) error
}

// Evictor asks a preemptible launch to leave: its blocks on SMs below belowSM,
// or all with math.MaxUint32 (EffiSha §4, FLEP §4). It is for a device that has a
// quicker way than the executor's, which every device has: a copy into the
// kernel's control block on a channel beside the kernel's.
type Evictor interface {
	Evict(c Channel, f Fence, belowSM uint32) error
}

// Counted is a device that keeps its own account of who used it, exactly, which
// accounting from outside can be measured against. Of today's, only those in
// software do.
type Counted interface {
	Counts() (Counts, error)
}

// Counts is a device's own account since it started.
type Counts struct {
	// Busy is compute time by [ContextOptions].Label, of past contexts too.
	Busy map[string]time.Duration
	// Overruns are kernels that a device in software computed later than they
	// should have ended, and Overrun the time by which they were stretched.
	Overruns uint64
	Overrun  time.Duration
}
