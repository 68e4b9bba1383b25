package gpu

import (
	"encoding/json"
	"os"
	"time"

	"vgpud/accounting"
)

// The interfaces below are apart from Device because not all hardware has the
// ability; a device that lacks it lacks the method.

// Sampled is a device, or a [Monitor], whose status can be read while it works.
type Sampled interface {
	// Source reads the status of the compute engine. The caller uses it from
	// one goroutine.
	Source() (accounting.Source, error)
}

// Recording is a device, or a [Monitor], that records its own context switches.
type Recording interface {
	// Events reads the record from now on. There may be one reader at a time.
	Events() (accounting.EventSource, error)
}

// Losable is a device, or a [Monitor], that tells of its end, also those that ask it nothing
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

// Pausing is a context whose kernels' time is limited by its own process, rather
// than by the GPU. It is told when another process has its channels off the
// hardware: that is no time that a kernel uses.
type Pausing interface {
	// Pause says that the channels are off the hardware from about now on, or that
	// they are back. It may be called from any goroutine, does not block, and a call
	// that says nothing new does nothing.
	Pause(off bool)
}

// Hanging is a context in which a kernel can come to run that nothing but the end of
// the process stops.
type Hanging interface {
	// Hung is closed when that is so. The context's Close does not wait for the
	// kernel then: the process is to end soon.
	Hung() <-chan struct{}
}

// Partial is a [Module] that may have been loaded with kernels that the device can't
// execute. They have all else that kernels have; a launch of one is an error.
type Partial interface {
	// Refused says of each such kernel why, in the order of the source: its name
	// first, then line, instruction and what of it the device does not have, as the
	// error of a launch does. They wrap [ErrUnsupported].
	Refused() []error
}

// Prompt is a [Channel] that can say at once about when a launch ran, where what the
// GPU stamped takes longer to read than many a kernel runs.
type Prompt interface {
	// Glimpse is about what Outcome says of a launch whose fence is reached: a
	// successful one, with times that are good to some microseconds. ok is false where
	// Outcome alone knows; what is charged for goes by that anyway. It may be called
	// from any goroutine.
	Glimpse(f Fence) (o Outcome, ok bool)
}

// DriverTimeslice is what the driver sets for a new channel group, on an H100.
const DriverTimeslice = 2048 * time.Microsecond

// Slicer sets how long a context's channel group runs before the next one's
// turn.
type Slicer interface {
	SetTimeslice(c Context, d time.Duration) error
}

// Handled is a context that the hardware knows under handles, by which another
// process can be put in control of it.
type Handled interface {
	// Handles are the context's. The caller closes the files.
	Handles() (Handles, error)
}

// Handles name a context's channels to the hardware's driver, for who holds the
// files that they belong to. What they are is between the [Handled] and the
// [Controller] of one kind of GPU.
type Handles struct {
	// Files are descriptors of the driver that belong to the context's process.
	// Whoever keeps one keeps the memory of the process too, beyond its end.
	Files []*os.File
	// Names is the rest, as JSON.
	Names json.RawMessage
}

// Controller is a [Monitor] that controls other processes' contexts.
type Controller interface {
	// Control takes the handles over, files included, also where it fails.
	Control(h Handles) (Control, error)
}

// Control is power over one context of another process. Its methods may be called
// from one goroutine at a time; they take up to a millisecond.
type Control interface {
	// Suspend takes the context's channels off the hardware, in mid-kernel, and
	// Resume puts them back. The hardware may count suspensions, and keep them when
	// their caller ends: the caller makes one at a time and undoes it. A Resume too
	// many does no harm.
	Suspend() error
	Resume() error
	// SetTimeslice is [Slicer]'s.
	SetTimeslice(d time.Duration) error
	Close() error
}

// HostRegistrar is a context whose copies to and from registered memory of the
// host's need no step between.
type HostRegistrar interface {
	// RegisterHost registers mem, a mapping that stays until release was called. That
	// waits for copies under way, unless the context was closed before.
	RegisterHost(mem []byte) (release func() error, err error)
}

// Windowed is a context with memory on the GPU that its process stores to and loads from
// by itself. A kernel that runs sees a store sooner than what any copy brings, which goes by
// way of the driver and a queue.
type Windowed interface {
	// Window is the memory, of so many bytes, all zero at first, and the way to it; w
	// is nil where there is none. It is the context's and ends with it.
	Window() (p Ptr, bytes uint64, w Window)
}

// Window is memory on the GPU in the process's own address space.
type Window interface {
	// Store32 stores a word at an offset that is a multiple of 4. Kernels see stores in
	// their order, and a launch that is made later sees them all. In a context that is
	// over it does nothing. It may be called from any goroutine.
	Store32(off uint64, v uint32)
	// Load32 reads the word at an offset that is a multiple of 4. What a launch wrote is
	// read once its fence is done. In a context that is over it is 0.
	Load32(off uint64) uint32
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
