package gpu

import (
	"encoding/json"
	"os"
	"time"

	"vgpud/accounting"
)

// The interfaces below are apart from Device because not all hardware has the ability. A device
// that lacks it lacks the method.

// Sampled is a device, or a [Monitor], whose status can be read while it works.
type Sampled interface {
	// Source reads the status of the compute engine. The caller uses it from one goroutine.
	Source() (accounting.Source, error)
}

// Recording is a device, or a [Monitor], that records its own context switches.
type Recording interface {
	// Events reads the record from now on. There may be one reader at a time.
	Events() (accounting.EventSource, error)
}

// Losable is a device, or a [Monitor], that reports its loss even to users that call nothing else.
type Losable interface {
	// Lost returns a channel that is closed when the device no longer answers, at the latest by
	// Close. The device never answers again: it has to be opened anew.
	Lost() <-chan struct{}
}

// Suspender takes a context's channels off the hardware, in mid-kernel, and puts them back.
type Suspender interface {
	Suspend(c Context) error
	Resume(c Context) error
}

// Pausing is a context whose kernels' time is limited by its own process rather than by the GPU. It
// has to know when another process has its channels off the hardware, since a kernel uses no time
// then.
type Pausing interface {
	// Pause says that the channels are off the hardware from about now on, or that they are back.
	// It may be called from any goroutine and does not block. A call that changes nothing does
	// nothing.
	Pause(off bool)
}

// TimeLimited is a context whose kernels' time limit can be changed.
type TimeLimited interface {
	// SetKernelTimeLimit changes [ContextOptions.KernelTimeLimit], for kernels that run already too.
	SetKernelTimeLimit(d time.Duration) error
}

// Hanging is a context in which a kernel may run that only the end of the process stops.
type Hanging interface {
	// Hung returns a channel that is closed when that is so. The context's Close then does not wait
	// for the kernel: the process should end soon.
	Hung() <-chan struct{}
}

// Partial is a [Module] that may have been loaded with kernels that the device can't execute. These
// have all attributes of kernels, but launching one is an error.
type Partial interface {
	// Refused returns for each such kernel, in the order of the source, why it can't be executed:
	// its name, then line, instruction and the part that the device lacks, like the error of a
	// launch. The errors wrap [ErrUnsupported].
	Refused() []error
}

// Prompt is a [Channel] that can tell quickly about when a command ran, if reading the GPU's
// timestamps takes longer than many a kernel runs.
type Prompt interface {
	// Glimpse returns about what Outcome returns for a launch or a copy whose fence is reached: a
	// successful one, with times that are accurate to some microseconds. ok is false if only Outcome knows.
	// Charging goes by Outcome anyway. It may be called from any goroutine.
	Glimpse(f Fence) (o Outcome, ok bool)
}

// Train is a [Channel] that can tell of several commands' ends at once, where telling of each takes
// longer than a short command does.
type Train interface {
	// Ahead announces the next command. If joins is set, its end is told together with that of the
	// command after it, or by the next Done where none follows.
	// Times of commands whose ends are told together are equal parts of the time of all. A fault in
	// one of them is the last one's.
	Ahead(joins bool)
}

// Pinner is a [Context] of which one goroutine queues all commands.
type Pinner interface {
	// Pin has the calling goroutine, whose thread runs no other, be that goroutine from now on:
	// commands are queued sooner, as the driver need not be told each time of which context they are.
	Pin() error
}

// DriverTimeslice is the time slice that the driver sets for a new channel group, on an H100.
const DriverTimeslice = 2048 * time.Microsecond

// Slicer sets how long a context's channel group runs before the next one's turn.
type Slicer interface {
	SetTimeslice(c Context, d time.Duration) error
}

// Handled is a context with handles by which another process can control it.
type Handled interface {
	// Handles returns the context's handles. The caller closes the files.
	Handles() (Handles, error)
}

// Handles identify a context's channels to the hardware's driver, for a process that holds the
// files that they belong to. Their contents are between the [Handled] and the [Controller] of one
// kind of GPU.
type Handles struct {
	// Files are descriptors of the driver that belong to the context's process. A process that
	// keeps one also keeps the memory of the context's process, beyond its end.
	Files []*os.File
	// Names is the rest, as JSON.
	Names json.RawMessage
}

// Controller is a [Monitor] that controls other processes' contexts.
type Controller interface {
	// Control takes over the handles with their files, even if it fails.
	Control(h Handles) (Control, error)
}

// Control controls one context of another process. Its methods may be called from one goroutine at
// a time. They take up to a millisecond.
type Control interface {
	// Suspend takes the context's channels off the hardware, in mid-kernel, and Resume puts them
	// back. The hardware may count suspensions and keep them when their caller ends: the caller
	// makes one at a time and undoes it. A Resume too many does no harm.
	Suspend() error
	Resume() error
	// SetTimeslice is the same as [Slicer]'s.
	SetTimeslice(d time.Duration) error
	Close() error
}

// HostRegistrar is a context that copies to and from registered host memory without an intermediate
// buffer.
type HostRegistrar interface {
	// RegisterHost registers mem, a mapping that must stay until release has returned. release
	// waits for copies under way, unless the context was closed before.
	RegisterHost(mem []byte) (release func() error, err error)
}

// Windowed is a context with memory on the GPU that its process stores to and loads from directly.
// A running kernel sees a store sooner than the result of a copy, which goes through the driver and
// a queue.
type Windowed interface {
	// Window returns the memory, its size, and the way to access it. It is zero at first, belongs
	// to the context and ends with it. w is nil if there is none.
	Window() (p Ptr, bytes uint64, w Window)
}

// Window is memory on the GPU in the process's own address space.
type Window interface {
	// Store32 stores a word at an offset that is a multiple of 4. Kernels see stores in their
	// order, at the latest when a later Load32 returns; a launch may overtake them. It does nothing
	// in a context that has ended. It may be called from any goroutine.
	Store32(off uint64, v uint32)
	// Load32 loads the word at an offset that is a multiple of 4. A launch's writes are visible once
	// its fence is done. The result is 0 in a context that has ended.
	Load32(off uint64) uint32
}

// Counted is a device that keeps exact records of its use, with which accounting from outside can
// be compared. Only devices in software do.
type Counted interface {
	Counts() (Counts, error)
}

// Counts are a device's own records since it started.
type Counts struct {
	// Busy is compute time by [ContextOptions].Label, of closed contexts too.
	Busy map[string]time.Duration
	// Overruns counts kernels that a device in software computed later than they should have ended,
	// and Overrun sums the time by which they were stretched.
	Overruns uint64
	Overrun  time.Duration
}

// HostMapper is a context whose kernels can reach memory of the host.
type HostMapper interface {
	// MapHost gives the context's kernels all of mem at an address in their space, and returns the
	// address; the context's copies and sets within its memory may name it too. mem is a whole
	// number of pages that this process has mapped from f, a file in memory, at offset. If at is not
	// 0, the address is at, a multiple of the page's size, or the error is [ErrInvalidPtr]. The memory
	// stays mapped until the context is closed, and its contents are not the context's: nothing is
	// zeroed or charged. The call may take as long as locking all pages. It may be called from any
	// goroutine.
	MapHost(f *os.File, offset int64, mem []byte, at Ptr) (Ptr, error)
}

// Placer is a context that allocates memory at addresses of its user's choice.
type Placer interface {
	// Places returns the range of such addresses, and their grain: addresses are multiples of it,
	// and memory is taken and counted in pieces of it.
	Places() (base Ptr, bytes, grain uint64, err error)
	// AllocAt is Alloc at an address. The error is [ErrInvalidPtr] if something is there or p is not
	// one of the addresses. If p is still used by freed memory, it is [ErrOutOfMemory]: see [Lazy].
	AllocAt(p Ptr, size uint64) error
}

// Movable is a [Placer] whose contexts can be made anew, on another GPU too, from what is to be read
// of them: their memory, their modules with the variables, and their limits.
type Movable interface {
	Placer
	// LoadModuleAt is LoadModule with the module's variables, if it has any, from p on. The error is
	// [ErrInvalidPtr] if something is there or p is not one of the addresses that Places returns.
	// Modules have to implement [Variables].
	LoadModuleAt(image []byte, p Ptr) (Module, error)
	// Stays returns why the context can't be made anew, or nil.
	Stays() error
}

// Variables is a [Module] that tells where its variables are. Copies may name all of them at once.
type Variables interface {
	// Variables returns the memory of the module's variables, of no bytes if it has none.
	Variables() (p Ptr, bytes uint64)
}
