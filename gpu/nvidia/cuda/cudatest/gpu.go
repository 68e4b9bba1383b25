// Package cudatest is a CUDA driver in software, for tests of the users of package cuda. Memory,
// copies, streams and events are real, kernels are Go functions, and every call can be made to
// fail. It is as strict as the driver: a call without a current context on its thread, an invalid
// handle, or a copy outside an allocation is an error, and a fault ends all contexts of the
// process.
package cudatest

import (
	"encoding/binary"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/gpu/nvidia/cuda"
)

// Launch is the argument of a kernel.
type Launch struct {
	GPU         *GPU
	Grid, Block [3]uint32
	Shared      uint32
	Params      []byte
}

// Param returns the i-th parameter; all have 64 bits.
func (l *Launch) Param(i int) uint64 { return binary.LittleEndian.Uint64(l.Params[8*i:]) }

// Kernel is the code of a kernel. An error that it returns is a fault. It is called from a
// goroutine of its stream.
type Kernel func(l *Launch) error

// Attributes are the resources that a kernel uses, and the sizes of its parameters.
type Attributes struct {
	Local  int // bytes per thread
	Params []int
}

// GPU is the driver with one GPU. Exported fields must be set before it is used.
type GPU struct {
	// Kernels are the entries that modules may have, by name. "stamp" is predefined: it stores the
	// clock at its parameter's address, and again after that.
	Kernels map[string]Kernel
	// Attributes are those of kernels that don't have one parameter of 64 bits and no local memory.
	Attributes map[string]Attributes
	// Memory is the size of the GPU's memory in bytes, 1 GiB by default.
	Memory uint64
	// Output receives the text that kernels write with Print.
	Output func(text string)
	// OnAlloc, if set, is called with the memory that MemAlloc allocates.
	OnAlloc func(mem []byte)

	mu    sync.Mutex
	wake  *sync.Cond
	fails map[string]cuda.Error
	calls map[string]int
	// interrupts counts the reached events that raise one.
	interrupts int
	fault      cuda.Error
	current    map[int]cuda.Context
	context    cuda.Context
	next       uint64
	device     map[uint64][]byte
	host       map[uint64][]byte // page-locked, including registered memory
	used       uint64
	pooled     uint64 // freed in a stream's order and still held by the process
	streams    map[cuda.Stream]*stream
	events     map[cuda.Event]*event
	modules    map[cuda.Module]*module
	kernels    map[cuda.Function]string
	limits     map[int]uint64 // those that were set
	reserved   map[cuda.DevicePtr]uint64
	physical   map[cuda.MemHandle][]byte
	mapped     map[cuda.DevicePtr]mapped
	arrays     map[cuda.Array]*array
	objects    map[uint64]Bound // textures and surfaces
	bound      map[string]Bound // references by name
	began      time.Time
	busy       sync.WaitGroup
	ended      atomic.Bool
}

type module struct {
	functions map[string]cuda.Function
	globals   map[string]uint64
	sizes     map[string]uint64
}

// event counts its records: it is reached when the newest one is.
type event struct {
	recorded, reached int
	at                time.Duration
	interrupts        bool // when it is reached
}

// New returns a GPU.
func New() *GPU {
	g := &GPU{
		Kernels: map[string]Kernel{}, Attributes: map[string]Attributes{}, Memory: 1 << 30, fails: map[string]cuda.Error{},
		calls: map[string]int{}, current: map[int]cuda.Context{}, device: map[uint64][]byte{}, host: map[uint64][]byte{},
		streams: map[cuda.Stream]*stream{}, events: map[cuda.Event]*event{}, modules: map[cuda.Module]*module{},
		kernels: map[cuda.Function]string{}, limits: map[int]uint64{},
		reserved: map[cuda.DevicePtr]uint64{}, physical: map[cuda.MemHandle][]byte{}, mapped: map[cuda.DevicePtr]mapped{},
		arrays: map[cuda.Array]*array{}, objects: map[uint64]Bound{}, bound: map[string]Bound{}, began: time.Now().Add(-1000 * time.Hour), next: 1 << 40,
	}
	g.wake = sync.NewCond(&g.mu)
	g.Kernels["stamp"] = func(l *Launch) error {
		for at := l.Param(0); at <= l.Param(0)+8; at += 8 {
			if err := g.Store(cuda.DevicePtr(at), uint64(g.Clock())); err != nil {
				return err
			}
		}
		return nil
	}
	return g
}

// Clock returns the GPU's clock.
func (g *GPU) Clock() time.Duration { return time.Since(g.began) }

// Fail makes all calls of a method fail from now on, or none with 0.
func (g *GPU) Fail(method string, e cuda.Error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fails[method] = e
}

// Fault ends all contexts with an error, as a kernel's fault does.
func (g *GPU) Fault(e cuda.Error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fault == 0 {
		g.fault = e
	}
	g.wake.Broadcast()
}

// Calls returns the number of calls of a method.
func (g *GPU) Calls(method string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls[method]
}

// Interrupts returns the number of interrupts raised: one each time that an event is reached on
// which threads can sleep.
func (g *GPU) Interrupts() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.interrupts
}

// Allocated returns the number of allocated bytes of GPU memory.
func (g *GPU) Allocated() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.used
}

// call begins a method: it counts the call and returns the error with which it fails. It locks mu,
// which the caller unlocks.
func (g *GPU) call(method string) error {
	g.mu.Lock()
	g.calls[method]++
	if e := g.fails[method]; e != 0 {
		return e
	}
	return nil
}

// inContext is call for methods that need a context.
func (g *GPU) inContext(method string) error {
	if err := g.call(method); err != nil {
		return err
	}
	if c := g.current[unix.Gettid()]; c == 0 || c != g.context {
		return cuda.ErrInvalidContext
	}
	if g.fault != 0 {
		return g.fault
	}
	return nil
}

// handle returns a unique number.
func (g *GPU) handle() uint64 {
	g.next += 1 << 12
	return g.next
}

// Init is [cuda.Library.Init].
func (g *GPU) Init() error {
	defer g.mu.Unlock()
	return g.call("Init")
}

// DriverGetVersion is [cuda.Library.DriverGetVersion].
func (g *GPU) DriverGetVersion() (int, error) { return 13000, nil }

// DeviceGetCount is [cuda.Library.DeviceGetCount].
func (g *GPU) DeviceGetCount() (int, error) {
	defer g.mu.Unlock()
	return 1, g.call("DeviceGetCount")
}

// DeviceGet is [cuda.Library.DeviceGet].
func (g *GPU) DeviceGet(i int) (cuda.Device, error) {
	if i != 0 {
		return 0, cuda.ErrInvalidDevice
	}
	return 0, nil
}

// DeviceGetName is [cuda.Library.DeviceGetName].
func (g *GPU) DeviceGetName(cuda.Device) (string, error) { return "CUDA in software", nil }

// DeviceGetUUID is [cuda.Library.DeviceGetUUID].
func (g *GPU) DeviceGetUUID(cuda.Device) ([16]byte, error) {
	return [16]byte{0: 0xab, 15: 0xcd}, nil
}

// DeviceGetPCIBusID is [cuda.Library.DeviceGetPCIBusID].
func (g *GPU) DeviceGetPCIBusID(cuda.Device) (string, error) { return "0000:00:05.0", nil }

// DeviceTotalMem is [cuda.Library.DeviceTotalMem].
func (g *GPU) DeviceTotalMem(cuda.Device) (uint64, error) { return g.Memory, nil }

var attributes = map[cuda.Attribute]int{
	cuda.MaxThreadsPerBlock: 1024, cuda.MaxBlockDimX: 1024, cuda.MaxBlockDimY: 1024, cuda.MaxBlockDimZ: 64,
	cuda.MaxGridDimX: 1<<31 - 1, cuda.MaxGridDimY: 65535, cuda.MaxGridDimZ: 65535, cuda.MaxSharedMemoryPerBlock: 48 << 10,
	cuda.ClockRate: 1_980_000, cuda.MultiprocessorCount: 4, cuda.L2CacheSize: 1 << 20, cuda.MaxThreadsPerMultiprocessor: 2048,
	cuda.ComputeCapabilityMajor: 9, cuda.MaxSharedPerMultiprocessor: 228 << 10, cuda.MaxRegsPerMultiprocessor: 65536,
	cuda.MaxSharedPerBlockOptin: 227 << 10, cuda.MaxBlocksPerMultiprocessor: 32,
}

// DeviceGetAttribute is [cuda.Library.DeviceGetAttribute].
func (g *GPU) DeviceGetAttribute(_ cuda.Device, a cuda.Attribute) (int, error) {
	return attributes[a], nil
}

// CtxCreate is [cuda.Library.CtxCreate].
func (g *GPU) CtxCreate(uint32, cuda.Device) (cuda.Context, error) {
	defer g.mu.Unlock()
	if err := g.call("CtxCreate"); err != nil {
		return 0, err
	}
	if g.fault != 0 {
		return 0, g.fault
	}
	g.ended.Store(false)
	clear(g.limits)
	g.context = cuda.Context(g.handle())
	g.current[unix.Gettid()] = g.context
	return g.context, nil
}

// CtxDestroy waits for running commands, unless a fault has ended them. It also frees the pool's
// memory, which the driver does when the process ends.
func (g *GPU) CtxDestroy(c cuda.Context) error {
	err := g.call("CtxDestroy")
	fault := g.fault
	g.mu.Unlock()
	if err != nil {
		return err
	}
	if fault != 0 {
		return fault
	}
	g.ended.Store(true)
	g.mu.Lock()
	g.wake.Broadcast()
	g.mu.Unlock()
	g.busy.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.device)
	clear(g.streams)
	clear(g.events)
	clear(g.arrays)
	clear(g.objects)
	g.used, g.pooled, g.context = 0, 0, 0
	return nil
}

// CtxSetCurrent is [cuda.Library.CtxSetCurrent].
func (g *GPU) CtxSetCurrent(c cuda.Context) error {
	defer g.mu.Unlock()
	if err := g.call("CtxSetCurrent"); err != nil {
		return err
	}
	g.current[unix.Gettid()] = c
	return nil
}

// limits are what a context has at first.
var limits = map[int]uint64{cuda.LimitStackSize: 1 << 10, cuda.LimitPrintfFIFOSize: 1 << 20, cuda.LimitMallocHeapSize: 1 << 20}

// CtxSetLimit rounds to 512 bytes.
func (g *GPU) CtxSetLimit(limit int, value uint64) error {
	defer g.mu.Unlock()
	if err := g.inContext("CtxSetLimit"); err != nil {
		return err
	}
	if _, known := limits[limit]; !known {
		return cuda.ErrUnsupportedLimit
	}
	g.limits[limit] = (value + 511) &^ 511
	return nil
}

// CtxGetLimit is [cuda.Library.CtxGetLimit].
func (g *GPU) CtxGetLimit(limit int) (uint64, error) {
	defer g.mu.Unlock()
	if err := g.inContext("CtxGetLimit"); err != nil {
		return 0, err
	}
	v, set := g.limits[limit]
	if !set {
		var known bool
		if v, known = limits[limit]; !known {
			return 0, cuda.ErrUnsupportedLimit
		}
	}
	return v, nil
}

var (
	entry  = regexp.MustCompile(`\.entry\s+(\w+)`)
	global = regexp.MustCompile(`\.global\s+\.b8\s+(\w+)\[(\d+)\]`)
)
