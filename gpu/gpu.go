// Package gpu is the physical GPU behind one interface: what an executor needs
// to carry out a guest's commands. Its implementations are packages beneath it:
// soft, a GPU in software, and nvidia, the driver's.
//
// All sizes and offsets are bytes; all GPU times are nanoseconds on the GPU's
// own clock (PTIMER), as a [time.Duration] since that clock's epoch.
package gpu

import (
	"context"
	"time"
)

// Ptr is an address in a context's GPU address space. Zero is never valid.
type Ptr uint64

// GroupID names a hardware channel group (NVIDIA's TSG) on its runlist: what
// the status registers show while one of the context's channels executes.
type GroupID uint16

// Fence is a position in a channel: commands are numbered from 1 in the order
// in which they were queued, and complete in that order.
type Fence uint64

// Dim3 is the extent of a grid in thread blocks or of a block in threads.
type Dim3 struct{ X, Y, Z uint32 }

// Count is the number of elements. It can overflow: callers bound the
// factors first.
func (d Dim3) Count() uint64 { return uint64(d.X) * uint64(d.Y) * uint64(d.Z) }

// Properties describe a device. They never change while it is open.
type Properties struct {
	Name                 string
	UUID                 [16]byte
	Major, Minor         int // compute capability
	SMs                  int
	ThreadsPerSM         int
	BlocksPerSM          int
	ThreadsPerBlock      int
	SharedPerSM          uint64 // bytes
	SharedPerBlock       uint64 // bytes a block gets without asking for more
	SharedPerBlockOptin  uint64 // bytes a block may ask for
	RegistersPerSM       int
	MemoryBytes          uint64
	ClockHz              uint64 // SM cycles a second
	MaxGrid, MaxBlockDim Dim3
	L2Bytes              uint64
	// Preempts is whether a [Suspender]'s Suspend takes off what executes, rather
	// than after its end.
	Preempts bool
	// CoRuns is whether kernels of different channels and contexts can be on the GPU
	// side by side, as far as there is room.
	CoRuns bool
}

// Monitor is one GPU as it is for who watches it and runs nothing on it. It is
// safe for concurrent use.
type Monitor interface {
	Properties() Properties
	// Now reads the GPU's clock.
	Now() (time.Duration, error)
	Close() error
}

// Device is one GPU, opened by one process. It is safe for concurrent use.
type Device interface {
	Monitor
	// NewContext makes an address space with a channel group of its own. The
	// caller closes it.
	NewContext(ctx context.Context, o ContextOptions) (Context, error)
	// Close gives the device back with all its contexts. What runs is ended.
	Close() error
}

// ContextOptions say how much a context may take. The zero value is usable.
type ContextOptions struct {
	// Label names the context's owner in the device's own records.
	Label string
	// MemoryLimit caps, in bytes, what allocations, modules, the printf buffer
	// and local memory of resident threads may take together; 0 is the
	// device's memory.
	MemoryLimit uint64
	// Budget, if set, is what all of that comes out of too, shared with the
	// owner's other contexts. The context gives back what it took when it closes.
	Budget Budget
	// KernelTimeLimit ends a kernel after that much GPU time, with
	// [ErrTimeLimit]; 0 is no limit.
	KernelTimeLimit time.Duration
	// Elapsed, if set, is the clock of KernelTimeLimit where the device itself can't
	// tell a kernel's time from its neighbours': it must have gone on by as much as
	// the context has used of the GPU, at least. It is called from any goroutine.
	Elapsed func() time.Duration
}

// Budget is GPU memory that an owner's contexts share, whatever process each is
// in. A device asks it before it takes memory, or at once where it learns only
// then how much that was, and answers [ErrMemoryLimit] where the budget has no
// more. It is safe for concurrent use.
type Budget interface {
	// Take takes n bytes, or nothing where there are not as many.
	Take(n uint64) bool
	// Give gives back n bytes that were taken.
	Give(n uint64)
	// Room is how many bytes may still be taken, and how many there are in all.
	Room() (free, total uint64)
}

// Context is an address space with modules and channels. A fault poisons it:
// from then on every call but Close returns the fault.
type Context interface {
	Group() GroupID
	// Alloc returns size bytes of zeroed memory, aligned to at least 256.
	Alloc(size uint64) (Ptr, error)
	// Free gives back what Alloc returned; any other pointer is an error.
	Free(p Ptr) error
	// Memory is what the context may still allocate and may have in all.
	Memory() (free, total uint64, err error)
	// LoadModule compiles PTX for this device. What is wrong with it is named
	// with kernel, line and instruction. A kernel that the device can't execute
	// need not keep the others from being loaded: see [Partial]. The context keeps
	// no reference to image.
	LoadModule(image []byte) (Module, error)
	// NewChannel makes a queue of commands that run in order, and beside the
	// context's other channels.
	NewChannel() (Channel, error)
	// Printf returns what the kernels have printed since the last call, at most
	// max bytes of whole lines where lines are shorter.
	Printf(max int) ([]byte, error)
	// Fault is the error that poisoned the context, a *[Fault] where a kernel
	// caused it, or nil.
	Fault() error
	// Close ends what runs and frees all memory.
	Close() error
}

// Module is loaded code.
type Module interface {
	// Function finds an entry by name.
	Function(name string) (Function, error)
	// Global finds a module variable by name.
	Global(name string) (p Ptr, size uint64, err error)
	// Unload frees the module; its functions must not be launched again.
	Unload() error
}

// Function is a kernel of a loaded module.
type Function interface {
	Attributes() FunctionAttributes
	// Occupancy is how many blocks of the given size an SM holds at a time.
	Occupancy(blockThreads int, sharedBytes uint64) (int, error)
}

// FunctionAttributes are what CUDA's cuFuncGetAttribute answers.
type FunctionAttributes struct {
	Name               string
	MaxThreadsPerBlock int
	SharedBytes        uint64 // static
	ConstBytes         uint64
	LocalBytes         uint64 // a thread
	Registers          int    // a thread
	Params             []Param
	ParamBytes         uint64
	PTXVersion         int // 10*major+minor
	BinaryVersion      int
	// ReqBlock is .reqntid, zero where absent.
	ReqBlock Dim3
}

// Param is one kernel parameter's place in the parameter buffer.
type Param struct{ Offset, Size uint64 }

// Launch is one execution of a kernel.
type Launch struct {
	Function    Function
	Grid, Block Dim3
	SharedBytes uint64 // dynamic
	// Params is the parameter buffer, laid out as FunctionAttributes.Params
	// says. The device copies it.
	Params []byte
}

// Channel is a queue of commands (LoGA §2.1). Its methods may be called from
// one goroutine at a time, except Done, Outcome and Wait, which may be called
// from any.
//
// A queued command's memory (src, dst) must stay valid until its fence is
// reached.
type Channel interface {
	Launch(l *Launch) (Fence, error)
	CopyIn(dst Ptr, src []byte) (Fence, error)
	CopyOut(dst []byte, src Ptr) (Fence, error)
	Copy(dst, src Ptr, n uint64) (Fence, error)
	// Copy3D copies a box in any direction. Each of its sides in GPU memory must lie
	// in one allocation from its first byte to its last.
	Copy3D(b *Copy3D) (Fence, error)
	// Set fills n elements of width 1, 2 or 4 bytes.
	Set(dst Ptr, value uint32, width int, n uint64) (Fence, error)
	// Set2D fills rows of n elements that begin pitch bytes apart.
	Set2D(dst Ptr, pitch uint64, value uint32, width int, n, rows uint64) (Fence, error)
	// Done is the newest fence reached. It reads memory and never blocks.
	Done() Fence
	// Outcome says what became of a command whose fence is reached. Outcomes
	// are kept for the newest [OutcomesKept] fences.
	Outcome(f Fence) Outcome
	// Wait blocks until f is reached or ctx ends; it spins briefly first.
	Wait(ctx context.Context, f Fence) error
	// Close waits for nothing: what is queued is dropped, what runs goes on.
	Close() error
}

// OutcomesKept is how many outcomes a channel remembers.
const OutcomesKept = 64

// Outcome is the end of a command.
type Outcome struct {
	// Start and End bound its execution on the GPU's clock.
	Start, End time.Duration
	// Err is nil, a *[Fault], or another error of this package.
	Err error
}
