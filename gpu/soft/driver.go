package soft

import (
	"context"
	"os"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/soft/machine"
)

// Driver is the way to a soft GPU's engine, apart from launches: those go through rings in shared memory. An [Engine]
// gives one for its own process; package remote has one over a socket. It is safe for concurrent use.
type Driver interface {
	Properties() gpu.Properties
	// NewContext makes a context. The caller closes it, and ContextInfo.Memory once it has mapped it.
	NewContext(ctx context.Context, o gpu.ContextOptions) (ContextDriver, ContextInfo, error)
	// Registers is the register file, for reading. The caller closes it.
	Registers() (*os.File, error)
	// Usage is the GPU's own account.
	Usage() (Usage, error)
	// Kick wakes the pacing thread. It is called when a ring asks for it.
	Kick()
	// Lost is closed when the engine is gone.
	Lost() <-chan struct{}
	// Close closes all contexts.
	Close() error
}

// ContextBytes is what a context takes of its memory limit by itself: the buffer that its kernels print to.
const ContextBytes = printBytes

// ContextInfo is what a program needs to use a context.
type ContextInfo struct {
	Group  gpu.GroupID
	Base   gpu.Ptr  // address of the memory's first byte
	Size   uint64   // bytes of it
	Memory *os.File // the memory
}

// ContextDriver is one context's part of a [Driver]. Its errors wrap those of package gpu.
type ContextDriver interface {
	Alloc(size uint64) (gpu.Ptr, error)
	Free(p gpu.Ptr) error
	Memory() (free, total uint64, err error)
	// LoadModule compiles PTX. It gives up when ctx ends.
	LoadModule(ctx context.Context, image []byte) (ModuleInfo, error)
	UnloadModule(id uint32) error
	Global(module uint32, name string) (gpu.Ptr, uint64, error)
	// NewChannel makes a channel. The caller closes ChannelInfo.Ring once it has mapped it.
	NewChannel() (ChannelInfo, error)
	CloseChannel(id uint32) error
	Printf(max int) ([]byte, error)
	Fault() error
	SetEnabled(on bool) error
	SetTimeslice(d time.Duration) error
	Close() error
}

// ModuleInfo is a loaded module.
type ModuleInfo struct {
	ID      uint32
	Kernels []KernelInfo
	// Image is where its variables are, ImageBytes of them.
	Image      gpu.Ptr
	ImageBytes uint64
	// CodeBytes is what its code takes, and LocalBytes what the local memory of all threads that the GPU holds at a time
	// takes for the greediest of its kernels. Modules of a context share the latter.
	CodeBytes, LocalBytes uint64
}

// KernelInfo is a kernel and the number that entries of a ring name it by.
type KernelInfo struct {
	ID         uint32
	Attributes gpu.FunctionAttributes
	Refused    string `json:",omitempty"` // why it can't be launched on this GPU
}

// ChannelInfo is a channel and its ring.
type ChannelInfo struct {
	ID   uint32
	Ring *os.File
}

// Usage is the GPU's own account: the truth that accounting is measured against.
type Usage struct {
	Now     time.Duration // on the GPU's clock
	Machine machine.Totals
	// Groups are the contexts, and Labels the sums for all contexts, past ones too, that had the same label.
	Groups []GroupUsage
	Labels []LabelUsage
	Pacing Pacing
}

// GroupUsage is one context's account.
type GroupUsage struct {
	Group gpu.GroupID
	Label string
	machine.Usage
}

// LabelUsage is the account of all contexts of one label.
type LabelUsage struct {
	Label string
	machine.Usage
}

// Pacing says how the pacing thread fares.
type Pacing struct {
	Realtime bool   // SCHED_FIFO was granted
	Level    int    // its priority
	Reason   string // why it was not granted
	CPU      time.Duration
	// Late is how much later than due the thread woke, in all, and MaxLate at worst; Sleeps is how often it slept.
	Late, MaxLate time.Duration
	Sleeps        uint64
	Instructions  uint64 // warp instructions interpreted, of launches that have ended
}
