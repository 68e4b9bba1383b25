package cuda

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"vgpud/guestagent/driver"
)

// Context is a CUcontext.
type Context struct {
	d       *Driver
	handle  Handle
	id      uint64
	gpu     *driver.Context
	task    *task // nil where it had a GPU from the start
	primary bool
	gone    atomic.Bool   // it was destroyed
	sticky  atomic.Uint32 // the result of every call since a fault; 0 for none
	prints  atomic.Bool   // a module has kernels that print
	reaches atomic.Bool   // its kernels reach page-locked memory, if they can

	mu       sync.Mutex // held while commands are enqueued
	flags    uint32
	refs     int // of cuCtxAttach
	legacy   *stream
	own      map[uint32]*stream    // default streams of threads
	lanes    map[laneKey][]*stream // for the branches of graphs
	streams  map[*stream]struct{}
	calling  map[*stream]struct{} // streams with a function of the program's
	channels []*channel
	next     int    // the channel that the next stream gets
	failed   Result // the first error of a command since it was last returned
	modules  map[*module]struct{}
	memory   allocations
	textures textures
	space    addressSpace
	stale    []*driver.Texture // that references named before
	limits   map[uint32]uint64
	cache    uint32 // CUfunc_cache, which changes nothing
	banks    uint32 // CUsharedconfig, likewise
	atEnd    []func()
}

// mostChannels is how many channels the streams of a context share at most.
const mostChannels = 6

// newContext makes a context; d.making and d.mu are held, but d.mu not while the host is waited for.
func (d *Driver) newContext(flags uint32) (*Context, error) {
	x := &Context{
		d: d, id: d.ids.Add(1), flags: flags, refs: 1, own: map[uint32]*stream{},
		streams: map[*stream]struct{}{}, calling: map[*stream]struct{}{}, modules: map[*module]struct{}{}, limits: map[uint32]uint64{},
	}
	x.legacy = &stream{x: x, id: d.ids.Add(1), legacy: true}
	if x.task = d.newTask(x); x.task == nil {
		ctx := context.Background()
		gpu, err := d.newGPUContext(ctx)
		if err == nil {
			err = x.take(ctx, gpu)
		}
		if err != nil {
			if gpu != nil {
				_ = gpu.Close()
			}
			return nil, err
		}
	}
	if x.handle = d.objects.add(x); x.handle == 0 {
		if x.gpu != nil {
			_ = x.gpu.Close()
		}
		return nil, ErrorOutOfMemory
	}
	d.contexts[x] = struct{}{}
	if x.task != nil {
		d.unbegun.Store(x)
	}
	return x, nil
}

// destroy ends a context with everything in it; d.mu is held.
func (x *Context) destroy() {
	if x.gone.Swap(true) {
		return
	}
	d := x.d
	d.pools.forget(x)
	d.graphMemory.forget(x)
	x.space.forget(d)
	d.objects.remove(x.handle)
	delete(d.contexts, x)
	if x.task != nil {
		x.task.end()
		x.learn()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.print(context.Background())
	for _, f := range x.atEnd {
		f()
	}
	for m := range x.modules {
		m.forget()
	}
	for s := range x.streams {
		d.objects.remove(s.handle)
	}
	if x.gpu != nil {
		_ = x.gpu.Close() // the host ends it in any case
	}
	d.host.removeOf(x) // which its kernels could reach
	x.memory.releaseAll(&d.reserved)
}

// context returns the thread's current context. The result is not Success if there is none, or if
// it is of no use any more.
func (c *Call) context() (*Context, Result) {
	h := c.t.current()
	if h == 0 {
		return nil, ErrorInvalidContext
	}
	x := get[Context](&c.d.objects, h)
	if x == nil {
		return nil, ErrorContextIsDestroyed
	}
	return x, Result(x.sticky.Load())
}

// contextOf returns a context by its handle; 0 is the current one.
func (c *Call) contextOf(h Handle) (*Context, Result) {
	if h == 0 {
		return c.context()
	}
	x := get[Context](&c.d.objects, h)
	if x == nil {
		return nil, ErrorInvalidContext
	}
	return x, Success
}

// fail returns the result for an error of a command or of a question. An error after which the
// context is of no use is kept.
func (x *Context) fail(err error) Result {
	r, sticky := resultOf(err)
	if r == ErrorOutOfMemory && x.task != nil {
		x.task.outgrew.Store(true)
	}
	if sticky && x.sticky.CompareAndSwap(0, uint32(r)) {
		x.report(r, err)
	}
	return r
}

// report tells the program's user about an assertion.
func (x *Context) report(r Result, err error) {
	if r != ErrorAssert {
		return
	}
	detail := fmt.Sprintf("%+v\n", err)
	if s := x.gpu.Fault(context.Background()); s != "" {
		detail = s + "\n"
	}
	x.d.o.Hooks.Print([]byte(detail), true)
}

// contextFlags are the flags that a context may have.
const contextFlags = CtxSchedMask | CtxMapHost | CtxLmemResizeToMax | CtxCoredumpEnable | CtxUserCoredumpEnable | CtxSyncMemops

func validContextFlags(flags uint32) bool {
	schedule := flags & CtxSchedMask
	return flags&^contextFlags == 0 && schedule&(schedule-1) == 0
}

// CtxCreateV2 is cuCtxCreate_v2.
func (c *Call) CtxCreateV2(out *Handle, flags uint32, dev int32) Result {
	d := c.d
	if out == nil || !validContextFlags(flags) {
		return ErrorInvalidValue
	}
	if dev != 0 {
		return ErrorInvalidDevice
	}
	if x := d.unbegun.Load(); x != nil { // see lazy.go
		return c.beginTask(x, func() Result { return c.CtxCreateV2(out, flags, dev) })
	}
	if r := d.learnAlike(); r != Success {
		return r
	}
	d.making.Lock()
	defer d.making.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	x, err := d.newContext(flags)
	if err != nil {
		return resultOnly(err)
	}
	if !c.t.push(x.handle) {
		x.destroy()
		return ErrorOutOfMemory
	}
	put(out, x.handle)
	return Success
}

// CtxDestroyV2 is cuCtxDestroy_v2. Kernels' output still appears.
func (c *Call) CtxDestroyV2(h Handle) Result {
	if x := get[Context](&c.d.objects, h); x != nil && !x.primary && x.prints.Load() {
		return c.waitFor(x.everything(), func() Result { return c.destroyContext(h) })
	}
	return c.destroyContext(h)
}

func (c *Call) destroyContext(h Handle) Result {
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	x := get[Context](&d.objects, h)
	switch {
	case h == 0:
		return ErrorInvalidValue
	case x == nil:
		return ErrorContextIsDestroyed
	case x.primary:
		return ErrorInvalidContext
	}
	if c.t.current() == h {
		c.t.setCurrent(0)
	}
	x.destroy()
	return Success
}

// CtxPushCurrentV2 is cuCtxPushCurrent_v2.
func (c *Call) CtxPushCurrentV2(h Handle) Result {
	if get[Context](&c.d.objects, h) == nil {
		return ErrorInvalidContext
	}
	if !c.t.push(h) {
		return ErrorOutOfMemory
	}
	return Success
}

// CtxPopCurrentV2 is cuCtxPopCurrent_v2.
func (c *Call) CtxPopCurrentV2(out *Handle) Result {
	h := c.t.current()
	if h == 0 {
		return ErrorInvalidContext
	}
	c.t.setCurrent(0)
	if out != nil {
		put(out, h)
	}
	return Success
}

// CtxSetCurrent is cuCtxSetCurrent.
func (c *Call) CtxSetCurrent(h Handle) Result {
	if h != 0 && get[Context](&c.d.objects, h) == nil {
		return ErrorInvalidContext
	}
	c.t.setCurrent(h)
	return Success
}

// CtxGetDevice is cuCtxGetDevice.
func (c *Call) CtxGetDevice(out *int32) Result {
	if out == nil {
		return ErrorInvalidValue
	}
	if h := c.t.current(); h == 0 {
		return ErrorInvalidContext
	} else if get[Context](&c.d.objects, h) == nil {
		return ErrorContextIsDestroyed
	}
	put(out, 0)
	return Success
}

// CtxSynchronize is cuCtxSynchronize.
func (c *Call) CtxSynchronize() Result {
	x, r := c.context()
	if r != Success {
		return r
	}
	return c.synchronize(x)
}

// synchronize waits for all commands of a context.
func (c *Call) synchronize(x *Context) Result {
	if r := c.unsafeIn(x); r != Success {
		return r
	}
	return c.waitFor(x.everything(), func() Result { return x.settle(c) })
}
