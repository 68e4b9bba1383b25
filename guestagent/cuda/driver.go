package cuda

import (
	"context"
	"os"
	"sync"
	"sync/atomic"

	"vgpud/guestagent/driver"
)

// Hooks are what the package needs of the process that it is in.
type Hooks interface {
	// Print writes a kernel's output to stdout, or what an assertion says to stderr.
	Print(text []byte, failure bool)
	// StartCallbacks starts a thread of the program's kind that calls [Driver.NextCallback] until
	// that returns false.
	StartCallbacks() error
	// SharedBytes calls a CUoccupancyB2DSize: the dynamic shared memory for a block size.
	SharedBytes(function Pointer, threads int) uint64
	// Missed returns how often each function that is not built was called, by the function's number.
	// It may be called from any goroutine; the counts may still grow.
	Missed() []uint32
}

// Options configure a Driver.
type Options struct {
	Hooks Hooks
	// Open opens the way to the virtual GPU; nil means [OpenBus].
	Open func(context.Context) (driver.Bus, error)
	// Secure is set for a program with more rights than its user (AT_SECURE): it ignores the
	// environment.
	Secure bool
}

// Driver is the state of CUDA's driver API in a process.
type Driver struct {
	o           Options
	objects     objects
	threads     threads
	device      device
	work        callbacks
	names       names
	graphs      graphs
	pools       pools
	graphMemory graphMemory
	ids         atomic.Uint64 // of contexts and streams

	// making is held while a context is made, and comes before mu: two would wait for each other's memory
	// where one of them is enough.
	making sync.Mutex

	mu       sync.Mutex
	gpu      *driver.Device // nil before Init
	preempt  *driver.PreemptOptions
	contexts map[*Context]struct{}
	spare    *driver.Context // made for questions about the device; the next context takes it
	primary  primary
	host     hostRanges
	reserved reservation
	// unbegun is the context whose task has not begun, or nil. addresses are those that objects may
	// have on every GPU, once they are known and if contexts may be made without a GPU.
	unbegun   atomic.Pointer[Context]
	addresses atomic.Pointer[driver.AddressRange]
	reports   reporter      // nil without an agent
	peaks     driver.Memory // what tasks needed at most; may be nil
}

// New returns a Driver. [Driver.Init] must succeed before any call.
func New(o Options) *Driver {
	d := &Driver{o: o, contexts: map[*Context]struct{}{}}
	if d.o.Open == nil {
		d.o.Open = func(ctx context.Context) (driver.Bus, error) { return OpenBus(ctx, d.getenv) }
	}
	d.work.init()
	return d
}

// getenv returns a variable of the environment, or "" if the program ignores that.
func (d *Driver) getenv(name string) string {
	if d.o.Secure {
		return ""
	}
	return os.Getenv(name)
}

// Init is cuInit: it opens the virtual GPU. It may be called again after it failed.
func (d *Driver) Init() Result {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gpu != nil {
		return Success
	}
	ctx := context.Background()
	bus, err := d.o.Open(ctx)
	if err != nil {
		return ErrorNoDevice
	}
	d.preempt = preemption(bus, d.getenv)
	if d.gpu, err = driver.Open(ctx, bus); err != nil {
		d.gpu = nil
		return ErrorNoDevice
	}
	d.reportMissed(bus)
	if d.lazy() {
		d.peaks = d.openPeaks(bus)
	}
	return Success
}

// Exit writes out what kernels have printed and ends the callback thread. The process is about to
// end.
func (d *Driver) Exit() {
	d.work.close()
	d.mu.Lock()
	all := make([]*Context, 0, len(d.contexts))
	for x := range d.contexts {
		all = append(all, x)
	}
	d.mu.Unlock()
	for _, x := range all {
		x.drainAtExit()
		x.learn()
	}
	d.reportAtExit()
}

// newGPUContext makes a context of the driver, or takes the spare one; d.making and d.mu are held.
func (d *Driver) newGPUContext(ctx context.Context) (*driver.Context, error) {
	if g := d.spare; g != nil {
		d.spare = nil
		return g, nil
	}
	return d.awaitGPUContext(ctx)
}

// awaitGPUContext makes a context of the driver; d.making and d.mu are held, but d.mu not while the host is
// waited for. Where the virtual GPU floats, that may be until another of the program's contexts ends, by
// another thread.
func (d *Driver) awaitGPUContext(ctx context.Context) (*driver.Context, error) {
	d.mu.Unlock()
	defer d.mu.Lock()
	return d.gpu.NewContext(ctx, d.contextOptions())
}

// madeContext returns a context of the driver for questions about the device, or nil if there is none;
// d.mu is held.
func (d *Driver) madeContext() *driver.Context {
	for x := range d.contexts {
		if x.sticky.Load() == 0 && !x.pending() {
			return x.gpu
		}
	}
	return d.spare
}

// anyContext is madeContext, and makes a context if there is none.
func (d *Driver) anyContext(ctx context.Context) (*driver.Context, error) {
	d.mu.Lock()
	g := d.madeContext()
	d.mu.Unlock()
	if g != nil {
		return g, nil
	}
	d.making.Lock()
	defer d.making.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if g := d.madeContext(); g != nil {
		return g, nil
	}
	g, err := d.awaitGPUContext(ctx)
	if err == nil {
		d.spare = g
	}
	return g, err
}
