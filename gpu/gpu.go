// Package gpu is the physical GPU behind one interface: what an executor needs to carry out a
// guest's commands. Its implementations are packages beneath it: soft, a GPU in software, and
// nvidia, which goes through the vendor's driver. The package holds interfaces and shared types
// only; it has no state and no locks.
//
// All sizes and offsets are bytes. All GPU times are on the GPU's own clock (PTIMER), as a
// [time.Duration] since that clock's epoch.
package gpu

import (
	"context"
	"time"
)

// Ptr is an address in a context's GPU address space. Zero is never valid.
type Ptr uint64

// GroupID is the number of a hardware channel group (NVIDIA's TSG) on its runlist. The status
// registers show it while one of the context's channels executes.
type GroupID uint16

// Fence is a position in a channel. Commands are numbered from 1 in the order in which they were
// queued, and complete in that order.
type Fence uint64

// Dim3 is the extent of a grid in thread blocks or of a block in threads.
type Dim3 struct{ X, Y, Z uint32 }

// Count returns the number of elements. It can overflow: callers bound the factors first.
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
	SharedPerBlock       uint64 // bytes a block gets without opting in to more
	SharedPerBlockOptin  uint64 // bytes a block may ask for
	RegistersPerSM       int
	MemoryBytes          uint64
	ContextBytes         uint64 // that a context takes beside what [ContextOptions] bound; about
	StartBytes           uint64 // of what [ContextOptions] bound that a context takes from its start; about
	ClockHz              uint64 // SM cycles a second
	MaxGrid, MaxBlockDim Dim3
	L2Bytes              uint64
	// Preempts reports whether a [Suspender]'s Suspend takes off what executes. Otherwise that ends
	// first.
	Preempts bool
	// CoRuns reports whether kernels of different channels and contexts can be on the GPU side by
	// side, as far as there is room.
	CoRuns bool
	// SideBySide reports whether kernels of different channels of one context start at once, side by
	// side, if there is room for all of their blocks when each kernel's are spread evenly over the
	// SMs.
	SideBySide bool
	// MachineCode reports whether LoadModule takes the vendor's machine code too.
	MachineCode bool
}

// Monitor is one GPU for a process that watches it and runs nothing on it. It is safe for
// concurrent use.
type Monitor interface {
	Properties() Properties
	// Now reads the GPU's clock.
	Now() (time.Duration, error)
	Close() error
}

// Device is one GPU, opened by one process. It is safe for concurrent use.
type Device interface {
	Monitor
	// NewContext returns an address space with a channel group of its own. The caller closes it.
	NewContext(ctx context.Context, o ContextOptions) (Context, error)
	// Close gives the device back with all its contexts, and ends what runs.
	Close() error
}

// ContextOptions bound what a context may take. The zero value is usable.
type ContextOptions struct {
	// Label names the context's owner in the device's own records.
	Label string
	// MemoryLimit caps, in bytes, the sum of allocations, modules, the printf buffer and the local
	// memory of resident threads. 0 is the device's memory.
	MemoryLimit uint64
	// Budget, if set, also bounds all of that. The owner's other contexts share it. The context
	// gives back what it took when it closes.
	Budget Budget
	// KernelTimeLimit ends a kernel after that much GPU time, with [ErrTimeLimit]. 0 is no limit.
	KernelTimeLimit time.Duration
	// Elapsed, if set, is the clock of KernelTimeLimit if the device itself can't tell a kernel's
	// time from its neighbours'. It advances at least by the context's use of the GPU. It is called
	// from any goroutine.
	Elapsed func() time.Duration
}

// Budget is GPU memory that an owner's contexts share, across processes. A device takes from it
// before it takes memory, or immediately after if it learns only then how much that was, and
// returns [ErrMemoryLimit] if the budget is exhausted. It is safe for concurrent use.
type Budget interface {
	// Take takes n bytes, or nothing if there are fewer, and reports whether it did.
	Take(n uint64) bool
	// Give gives back n bytes.
	Give(n uint64)
	// Room returns how many bytes may still be taken, and how many there are in all.
	Room() (free, total uint64)
}

// Context is an address space with modules and channels. A fault poisons it: from then on every
// call except Close returns the fault.
type Context interface {
	Group() GroupID
	// Alloc returns size bytes of zeroed memory, aligned to at least 256.
	Alloc(size uint64) (Ptr, error)
	// Free releases what Alloc returned. Any other pointer is an error.
	Free(p Ptr) error
	// Memory returns what the context may still allocate, and what it may have in all.
	Memory() (free, total uint64, err error)
	// LoadModule compiles PTX for this device. Its errors name kernel, line and instruction. If the
	// device can't execute one kernel, it may still load the others: see [Partial]. The context
	// keeps no reference to image.
	LoadModule(image []byte) (Module, error)
	// NewChannel returns a queue whose commands run in order, and concurrently with the context's
	// other channels.
	NewChannel() (Channel, error)
	// Printf returns what the kernels have printed since the last call, at most max bytes of whole
	// lines where lines are shorter. Some devices also return what was printed before a fault.
	Printf(max int) ([]byte, error)
	// Fault returns the error that poisoned the context, a *[Fault] if a kernel caused it, or nil.
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
	// Occupancy returns how many blocks of the given size an SM holds at a time.
	Occupancy(blockThreads int, sharedBytes uint64) (int, error)
}

// FunctionAttributes are the answers of CUDA's cuFuncGetAttribute.
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
	// ReqBlock is .reqntid, or zero if it is absent.
	ReqBlock Dim3
}

// Param is the place of one kernel parameter in the parameter buffer.
type Param struct{ Offset, Size uint64 }

// Launch is one execution of a kernel.
type Launch struct {
	Function    Function
	Grid, Block Dim3
	SharedBytes uint64 // dynamic
	// Params is the parameter buffer, laid out as FunctionAttributes.Params says. The device copies
	// it.
	Params []byte
}

// Channel is a queue of commands (LoGA §2.1). Its methods may be called from one goroutine at a
// time, except Done, Outcome and Wait, which may be called from any.
//
// A queued command's memory (src, dst) must stay valid until its fence is reached.
type Channel interface {
	Launch(l *Launch) (Fence, error)
	CopyIn(dst Ptr, src []byte) (Fence, error)
	CopyOut(dst []byte, src Ptr) (Fence, error)
	Copy(dst, src Ptr, n uint64) (Fence, error)
	// Copy3D copies a box in any direction. Each of its sides in GPU memory must lie in one
	// allocation from its first byte to its last.
	Copy3D(b *Copy3D) (Fence, error)
	// Set fills n elements of width 1, 2 or 4 bytes.
	Set(dst Ptr, value uint32, width int, n uint64) (Fence, error)
	// Set2D fills rows of n elements that begin pitch bytes apart.
	Set2D(dst Ptr, pitch uint64, value uint32, width int, n, rows uint64) (Fence, error)
	// Done returns the newest fence that was reached. It reads memory and never blocks.
	Done() Fence
	// Outcome returns the result of a command whose fence is reached. Outcomes are kept for the
	// newest [OutcomesKept] fences.
	Outcome(f Fence) Outcome
	// Wait waits until f is reached or ctx ends. It spins briefly first.
	Wait(ctx context.Context, f Fence) error
	// Close waits for nothing: what is queued is dropped, what runs continues.
	Close() error
}

// OutcomesKept is how many outcomes a channel remembers.
const OutcomesKept = 64

// Outcome is the result of a command.
type Outcome struct {
	// Start and End bound its execution on the GPU's clock.
	Start, End time.Duration
	// Err is nil, a *[Fault], or another error of this package.
	Err error
}
