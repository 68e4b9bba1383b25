package soft

import (
	"context"
	"os"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/soft/machine"
	"vgpud/gpu/soft/texture"
)

// Driver is the control path to a soft GPU's engine. Launches go through rings in shared memory
// instead. An [Engine] is one for its own process; package remote has one over a socket. A Driver
// is safe for concurrent use.
type Driver interface {
	Properties() gpu.Properties
	// NewContext makes a context. The caller closes it, and closes ContextInfo.Memory after mapping
	// it.
	NewContext(ctx context.Context, o gpu.ContextOptions) (ContextDriver, ContextInfo, error)
	// Registers returns the register file for reading. The caller closes it.
	Registers() (*os.File, error)
	// Usage returns the GPU's exact usage.
	Usage() (Usage, error)
	// Kick wakes the pacing thread. It is called if a ring requests it.
	Kick()
	// Lost returns a channel that is closed when the engine is gone.
	Lost() <-chan struct{}
	// Close closes all contexts.
	Close() error
}

// ContextBytes is the part of a context's memory limit that the context itself uses: its kernels'
// print buffer.
const ContextBytes = printBytes

// ContextInfo describes a context to the program that uses it.
type ContextInfo struct {
	Group  gpu.GroupID
	Base   gpu.Ptr  // address of the memory
	Size   uint64   // size of the memory in bytes
	Memory *os.File // the memory
}

// ContextDriver is the part of a [Driver] for one context. Its errors wrap those of package gpu.
type ContextDriver interface {
	Alloc(size uint64) (gpu.Ptr, error)
	// AllocAt allocates memory at an address; its bytes are at an offset of the context's memory.
	AllocAt(p gpu.Ptr, size uint64) (offset uint64, err error)
	Free(p gpu.Ptr) error
	Memory() (free, total uint64, err error)
	// MapHost maps size bytes of a file at offset; see [gpu.HostMapper].
	MapHost(f *os.File, offset, size uint64, at gpu.Ptr) (gpu.Ptr, error)
	// LoadModule compiles PTX, and has its variables at an address; 0 is any. It gives up when ctx
	// ends.
	LoadModule(ctx context.Context, image []byte, at gpu.Ptr) (ModuleInfo, error)
	UnloadModule(id uint32) error
	Global(module uint32, name string) (gpu.Ptr, uint64, error)
	// NewChannel makes a channel. The caller closes ChannelInfo.Ring after mapping it.
	NewChannel() (ChannelInfo, error)
	// AddTexture returns the handle of a texture or surface, and DropTexture ends it.
	AddTexture(t texture.Texture) (uint64, error)
	DropTexture(handle uint64) error
	// Reference returns the address of the handle in a module's variable that names a texture, or
	// a surface.
	Reference(module uint32, name string) (p gpu.Ptr, surface bool, err error)
	CloseChannel(id uint32) error
	Printf(max int) ([]byte, error)
	Fault() error
	Limit(l gpu.Limit) (uint64, error)
	SetLimit(l gpu.Limit, value uint64) error
	SetEnabled(on bool) error
	SetTimeslice(d time.Duration) error
	// MapEvents, RegisterEvents, UnregisterEvents, HoldEvents and EventCounts are as [gpu.EventKernels]
	// says; the kernel is that of a [KernelInfo].
	MapEvents(f *os.File) (gpu.Ptr, error)
	RegisterEvents(k EventKernel) error
	UnregisterEvents(number int) (gone bool, err error)
	HoldEvents(on bool) error
	EventCounts() (EventCounts, error)
	// SetKernelTimeLimit is as [gpu.TimeLimited] says.
	SetKernelTimeLimit(d time.Duration) error
	Close() error
}

// EventKernel is a kernel to be registered; see [gpu.EventKernel].
type EventKernel struct {
	Number      int
	Kernel      uint32 // [KernelInfo].ID
	Function    uint64 // what the row in the event area says
	Grid, Block gpu.Dim3
	Shared      uint64
	Params      []byte
	Entries     int
}

// EventCounts are those of a context's event kernels.
type EventCounts struct {
	Kernels []gpu.EventKernelCounts
	Faulted bool // ask for the context's fault
}

// ModuleInfo is a loaded module.
type ModuleInfo struct {
	ID      uint32
	Kernels []KernelInfo
	// Image is the address of the module's variables, which have ImageBytes, and ImageOffset where
	// they are in the context's memory.
	Image       gpu.Ptr
	ImageOffset uint64
	ImageBytes  uint64
	// CodeBytes is the size of the code. LocalBytes is the local memory of all threads that the GPU
	// holds at a time, for the kernel that needs most. Modules of a context share the latter.
	CodeBytes, LocalBytes uint64
	// HeapBytes is the size of the context's heap, if a kernel of the module allocates memory.
	HeapBytes uint64 `json:",omitempty"`
}

// KernelInfo is a kernel with the number that identifies it in ring entries.
type KernelInfo struct {
	ID         uint32
	Attributes gpu.FunctionAttributes
	Refused    string `json:",omitempty"` // why it can't be launched on this GPU
}

// ChannelInfo is a channel with its ring.
type ChannelInfo struct {
	ID   uint32
	Ring *os.File
}

// Usage is the GPU's exact usage, with which accounting is compared.
type Usage struct {
	Now     time.Duration // on the GPU's clock
	Machine machine.Totals
	// Groups are the contexts. Labels are the sums over all contexts with the same label, past ones
	// included.
	Groups []GroupUsage
	Labels []LabelUsage
	Pacing Pacing
}

// GroupUsage is the usage of one context.
type GroupUsage struct {
	Group gpu.GroupID
	Label string
	machine.Usage
}

// LabelUsage is the usage of all contexts with one label.
type LabelUsage struct {
	Label string
	machine.Usage
}

// Pacing describes the pacing thread.
type Pacing struct {
	Realtime bool   // SCHED_FIFO was granted
	Level    int    // its priority
	Reason   string // why it was not granted
	CPU      time.Duration
	// Late is the sum of the delays with which the thread woke, MaxLate the greatest. Sleeps counts
	// its sleeps.
	Late, MaxLate time.Duration
	Sleeps        uint64
	Instructions  uint64 // warp instructions interpreted, of launches that have ended
}
