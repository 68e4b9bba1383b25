package nvidia

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
)

// Context is the process's CUDA context. It implements [gpu.Context].
type Context struct {
	d              *Device
	drv            Driver
	o              gpu.ContextOptions
	ctx            cuda.Context
	group          gpu.GroupID
	channelControl channelControl // control of its own channels; handles.go
	window         window
	places         places

	clock        *gpuClock
	lag          time.Duration // launch lag of kernels on an idle GPU
	memory       memoryUse
	table        table        // allocations and modules' variables
	host         ranges       // registered memory of the program
	zero         *Channel     // zeroes fresh memory
	zeroes       sync.Mutex   // held while a zeroing is queued
	pendingFrees pendingFrees // memory freed by the guest and not yet returned by the GPU
	pool         pool         // the driver's memory pool
	frees        sync.Mutex   // guards free
	free         cuda.Stream  // frees memory that several channels may use; 0: not needed yet
	pauses       pauses
	events       eventKernels

	fault atomic.Pointer[error]
	hung  chan struct{}
	hang  sync.Once
	over  atomic.Bool
	// pinned is set once one goroutine, on whose thread the context is current, queues all commands.
	pinned atomic.Bool
	// asleep is the number of callers that wait for an event or query one, for which Close has to
	// wait.
	asleep   atomic.Int32
	checking atomic.Bool // a goroutine started by watch is querying events

	mu       sync.Mutex
	channels []*Channel
	idle     []*lane // of closed channels, for reuse
	local    uint64  // charged for local memory of resident threads
	stop     chan struct{}
	// timeLimit is a kernel's in nanoseconds; 0 is none. limitChanged wakes watch.
	timeLimit    atomic.Int64
	limitChanged chan struct{}
	watching     sync.WaitGroup
}

// newContext makes a context on d.
func newContext(d *Device, o gpu.ContextOptions) (*Context, error) {
	c := &Context{
		d: d, drv: d.drv, o: o, hung: make(chan struct{}), stop: make(chan struct{}), limitChanged: make(chan struct{}, 1),
		group: gpu.GroupID(os.Getpid() & 0xfff),
	}
	c.events.kick = make(chan struct{}, 1)
	c.memory.limit, c.memory.budget = o.MemoryLimit, o.Budget
	c.timeLimit.Store(int64(max(o.KernelTimeLimit, 0)))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	steps := newStopwatch(d.o.Clock)
	var err error
	if c.ctx, err = d.drv.CtxCreate(cuda.CtxSchedBlockingSync, d.dev); err != nil {
		return nil, meaning(err)
	}
	steps.lap("create")
	if err := c.begin(steps); err != nil {
		c.memory.close()
		return nil, errors.Join(meaning(err), d.drv.CtxDestroy(c.ctx))
	}
	c.watching.Go(c.watch)
	d.o.Log.Debug("context created", steps.attrs...)
	return c, nil
}

// stopwatch collects how long the steps of something took, as a log entry's attributes.
type stopwatch struct {
	clock clock.Clock
	last  time.Duration
	attrs []any
}

func newStopwatch(c clock.Clock) *stopwatch { return &stopwatch{clock: c, last: c.Now()} }

// lap adds the time since the last one.
func (w *stopwatch) lap(what string) {
	now := w.clock.Now()
	w.attrs = append(w.attrs, what, now-w.last)
	w.last = now
}

// begin creates the resources that a context has from the start. The context is current.
func (c *Context) begin(steps *stopwatch) error {
	for _, limit := range []int{cuda.LimitPrintfFIFOSize, cuda.LimitMallocHeapSize} {
		n, err := c.drv.CtxGetLimit(limit)
		if err != nil {
			return fmt.Errorf("ask for a limit: %w", err)
		}
		if err := c.memory.take(n, "what kernels print and their heap"); err != nil {
			return err
		}
	}
	c.openPool()
	steps.lap("pool")
	l, err := newLane(c.drv)
	if err != nil {
		return err
	}
	c.zero = &Channel{c: c, lane: l, gone: make(chan struct{})}
	steps.lap("stream")
	if c.clock, err = newGPUClock(c, c.d.o.Clock); err != nil {
		return err
	}
	steps.lap("clock")
	if c.lag, err = c.measureLag(context.Background()); err != nil {
		return err
	}
	steps.lap("lag")
	if err := c.handles(); err != nil {
		return err
	}
	steps.lap("handles")
	c.openWindow()
	steps.lap("window")
	return nil
}

// enter makes the context current for driver calls until leave.
func (c *Context) enter() error {
	runtime.LockOSThread()
	if c.over.Load() {
		return fmt.Errorf("context is closed: %w", gpu.ErrLost)
	}
	return c.drv.CtxSetCurrent(c.ctx)
}

// enterPinned is enter for what only the pinned goroutine does, if there is one.
func (c *Context) enterPinned() error {
	if !c.pinned.Load() {
		return c.enter()
	}
	runtime.LockOSThread()
	if c.over.Load() {
		return fmt.Errorf("context is closed: %w", gpu.ErrLost)
	}
	return nil
}

// Pin implements [gpu.Pinner].
func (c *Context) Pin() error {
	if err := c.do("make the context current", func() error { return nil }); err != nil {
		return err
	}
	c.pinned.Store(true)
	return nil
}

func (c *Context) leave() { runtime.UnlockOSThread() }

// do calls f with the context current and translates errors to package gpu's. An error that ends
// the context poisons it.
func (c *Context) do(what string, f func() error) error {
	err := c.enter()
	if err == nil {
		err = f()
	}
	c.leave()
	return c.failed(what, err)
}

// failed translates an error of the driver. An error that ends the context poisons it.
func (c *Context) failed(what string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[cuda.Error](err); ok && e.Sticky() {
		c.poison(poisonOf(e, c.suspect()))
		return *c.fault.Load()
	}
	return fmt.Errorf("%s: %w", what, meaning(err))
}

// suspect returns the name of the kernel that must have caused a fault, or "" if several can have.
func (c *Context) suspect() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	name, n := c.eventSuspect()
	if n > 1 {
		return ""
	}
	for _, ch := range c.channels {
		switch _, n := ch.executing(); {
		case n == "" || n == name:
		case name != "":
			return ""
		default:
			name = n
		}
	}
	return name
}

// poison ends the context for its user: queued commands are reported as not done.
func (c *Context) poison(err error) {
	if !c.fault.CompareAndSwap(nil, &err) {
		return
	}
	c.d.o.Log.Warn("GPU context ended by a fault", "label", c.o.Label, "fault", err)
	if errors.Is(err, gpu.ErrLost) {
		c.d.lose()
	}
	c.KickEvents()
	if errors.Is(err, gpu.ErrTimeLimit) {
		c.hang.Do(func() { close(c.hung) })
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range c.channels {
		ch.wake()
	}
	if c.zero != nil {
		c.zero.wake()
	}
}

// usable returns an error if the context can't be used.
func (c *Context) usable() error {
	if f := c.fault.Load(); f != nil {
		return *f
	}
	if c.over.Load() {
		return fmt.Errorf("context is closed: %w", gpu.ErrLost)
	}
	return nil
}

// Group returns the channel group of the context's kernels.
func (c *Context) Group() gpu.GroupID { return c.group }

// Fault returns the error that poisoned the context, or nil.
func (c *Context) Fault() error {
	if f := c.fault.Load(); f != nil {
		return *f
	}
	return nil
}

// Hung is closed when a kernel runs that only the end of the process will stop. Close does not wait
// for it.
func (c *Context) Hung() <-chan struct{} { return c.hung }

// closingLimit bounds the time that Close waits for running commands.
const closingLimit = 2 * time.Second

// Close frees all resources. It waits up to two seconds for running commands. A kernel that runs on
// ends with the process, and Close then returns [gpu.ErrTimeLimit].
func (c *Context) Close() error {
	if !c.over.CompareAndSwap(false, true) {
		return nil
	}
	defer c.memory.close()
	defer c.channelControl.close()
	close(c.stop)
	c.closeWindow() // while the context still owns the memory
	c.watching.Wait()
	c.mu.Lock()
	channels := slices.Clone(c.channels)
	c.mu.Unlock()
	for _, ch := range append(channels, c.zero) {
		ch.drop()
	}
	select {
	case <-c.hung:
		return nil
	default:
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := c.drv.CtxSetCurrent(c.ctx); err != nil && c.fault.Load() == nil {
		return fmt.Errorf("close a context: %w", meaning(err))
	}
	until := time.Now().Add(closingLimit)
	for ; c.busy(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			c.hang.Do(func() { close(c.hung) })
			return fmt.Errorf("close a context: a kernel runs on until the process ends: %w", gpu.ErrTimeLimit)
		}
	}
	// All events were reached, but callers that slept on one may still be inside the driver.
	for ; c.asleep.Load() > 0 && c.fault.Load() == nil && time.Now().Before(until); time.Sleep(50 * time.Microsecond) {
	}
	err := c.end()
	c.d.leave(c)
	return err
}

// busy reports whether anything is on the GPU. Nothing is after a fault, even one that nobody has
// noticed yet. The context is current.
func (c *Context) busy() bool {
	if c.fault.Load() != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.lanes() {
		if l.word.Load() != l.last.Load() {
			if done, err := c.drv.EventQuery(cuda.Event(l.tail.Load())); err != nil {
				return false
			} else if !done {
				return true
			}
		}
	}
	for _, b := range c.eventBerths() {
		if err := b.signal(c.drv); err != nil {
			return false
		}
		if b.busy() {
			if done, err := c.drv.EventQuery(b.tail); err != nil {
				return false
			} else if !done {
				return true
			}
		}
	}
	return false
}

// end destroys the context and everything in it except page-locked memory and allocated memory,
// which belongs to the driver's pool and is freed with the process.
func (c *Context) end() error {
	if c.fault.Load() == nil {
		if err := c.closePlaces(); err != nil {
			c.d.o.Log.Debug("memory on the GPU was not given back", "label", c.o.Label, "err", err)
		}
	}
	err := c.drv.CtxDestroy(c.ctx)
	if e, ok := errors.AsType[cuda.Error](err); ok && (e.Sticky() || c.fault.Load() != nil) {
		return nil // the error is the one that ended the context
	}
	if err != nil {
		return fmt.Errorf("close a context: %w", meaning(err))
	}
	return nil
}
