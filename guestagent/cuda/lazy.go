package cuda

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"vgpud/guestagent/driver"
	"vgpud/guestagent/fatbin"
	"vgpud/guestagent/preempt/tune/cache"
	"vgpud/guestagent/tasks"
	"vgpud/mediator/vgpu/abi"
)

// Where the virtual GPU floats over GPUs that are alike, the program's first context is made without a
// GPU. The program's calls with it are recorded (package tasks) until one comes that can't be, such as
// a launch: then the context's task begins. [Driver.Call] sees to that for all functions but those of
// [recorded], which do so themselves where they must. While the task begins, calls on the context wait
// with their thread's signals.
//
// A second context would have to begin its task beside the first, and objects of both have
// addresses that are unique in the process. So at most one context's task has not begun, and it is
// the only context: making a second begins the first's task.

// lazyVariable is the environment variable that turns the lazy runtime off.
const lazyVariable = "VGPU_TASK_LAZY"

// beginFirst is the result of something that can't be done before the task has begun. Programs don't
// get it.
const beginFirst Result = 0xfffffffe

// task is the GPU task of a context that was made without a GPU.
//
// mu comes before Context.mu. It is not held while the host is waited for.
type task struct {
	x     *Context
	begun atomic.Bool

	mu     sync.Mutex
	record *tasks.Record // after the task has begun: which regions still have objects
	limits map[uint32]uint64
	// modules and functions are those that the program has; they are loaded when the task begins.
	modules   []*module
	functions []*function
	starting  *start      // nil while nothing is under way
	freed     []uint64    // objects that were freed while the task began
	first     driver.Task // the launch that begins the task, without memory
	gone      bool        // the context was destroyed

	// Written by the attempt, before begun.
	entry   cache.Entry // what is kept of the task, without its peak
	known   cache.Peak  // of earlier runs
	less    bool        // it asked for less than the program may have, for what is known
	outgrew atomic.Bool // and that was not enough

	most driver.Task // of the launches so far, without memory; guarded by Context.mu
}

// start is one attempt to begin a task.
type start struct {
	cancel context.CancelFunc
	done   chan struct{} // closed at its end
	result Result        // set before that
}

// pending reports whether the context has no GPU yet.
func (x *Context) pending() bool { return x.task != nil && !x.task.begun.Load() }

// lazy reports whether contexts may be made without a GPU.
func (d *Driver) lazy() bool {
	const needs = abi.FeatureFloating | abi.FeatureAlike | abi.FeatureChosenAddresses
	info := d.gpu.Info()
	return info.Features&needs == needs && info.MemoryBytes > 0 && !strings.EqualFold(d.getenv(lazyVariable), "off")
}

// newTask returns the task of the process's only context, or nil if the context is to have a GPU from
// the start; d.mu is held.
func (d *Driver) newTask(x *Context) *task {
	a := d.addresses.Load()
	if a == nil || len(d.contexts) > 0 || d.spare != nil || a.Grain == 0 || grain%a.Grain != 0 {
		return nil
	}
	return &task{x: x, limits: map[uint32]uint64{}, record: tasks.New(tasks.Options{
		Base: uint64(a.Base), Bytes: a.Bytes, Grain: a.Grain, Limit: d.taskLimit(),
		Usable: func(base, bytes uint64) bool { return !x.space.takes(base, bytes) && d.reserved.reserve(base, bytes) },
	})}
}

// beginTask has the task of a context begin, unless it has begun, and then calls then.
func (c *Call) beginTask(x *Context, then func() Result) Result {
	return c.await(x.task.start(), then)
}

// await waits for an attempt to begin a task, and then calls then.
func (c *Call) await(s *start, then func() Result) Result {
	slice := c.slice()
	select {
	case <-s.done:
	default:
		select {
		case <-s.done:
		case <-slice.Done():
			return c.later(func() Result { return c.await(s, then) })
		}
	}
	if s.result != Success {
		return s.result
	}
	return then()
}

// ended is a start that has succeeded.
var ended = func() *start {
	s := &start{done: make(chan struct{})}
	close(s.done)
	return s
}()

// start returns the attempt that is under way, or makes one.
func (t *task) start() *start {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.begun.Load():
		return ended
	case t.starting != nil:
		return t.starting
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &start{cancel: cancel, done: make(chan struct{})}
	if t.gone {
		cancel()
		s.result = ErrorContextIsDestroyed
		close(s.done)
		return s
	}
	t.starting = s
	go t.run(ctx, s)
	return s
}

// run is the goroutine of an attempt. The context's end waits for it.
func (t *task) run(ctx context.Context, s *start) {
	defer s.cancel()
	err := t.run1(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.result = resultOnly(err); err != nil && context.Cause(ctx) != nil {
		s.result = ErrorContextIsDestroyed
	}
	t.starting = nil
	if err == nil {
		t.forget()
		t.begun.Store(true)
		t.x.d.unbegun.Store(nil)
	}
	for _, p := range t.freed {
		_ = t.freeLocked(p) // or the context has failed, which a later call tells
	}
	t.freed = nil
	close(s.done)
}

// forget forgets what the GPU has from now on: all but which regions have objects. t.mu is held.
func (t *task) forget() {
	t.record.Forget()
	for _, m := range t.modules {
		m.image = nil
	}
	t.modules, t.functions, t.limits = nil, nil, nil
}

// run1 gets the context a GPU that has what was recorded.
func (t *task) run1(ctx context.Context) error {
	o := t.x.d.contextOptions()
	if o.Task != nil { // the program's user knows
		o.Task.Blocks, o.Task.Threads = t.first.Blocks, t.first.Threads
		return t.make(ctx, o)
	}
	t.known = t.recall(ctx)
	o.Task = tasks.Request(t.record, t.known, t.first)
	t.less = o.Task != nil
	err := t.make(ctx, o)
	if t.less && resultOnly(err) == ErrorOutOfMemory {
		// The run before had less code or smaller stacks.
		o.Task, t.less = nil, false
		err = t.make(ctx, o)
	}
	return err
}

// make makes a context of the driver that has what was recorded, for this one.
func (t *task) make(ctx context.Context, o driver.ContextOptions) error {
	x := t.x
	gpu, err := x.d.gpu.NewContext(ctx, o)
	if err != nil {
		return err
	}
	if err = t.fill(ctx, gpu); err == nil {
		err = x.take(ctx, gpu)
	}
	if err != nil {
		return errors.Join(err, gpu.Close())
	}
	return nil
}

// fill makes what was recorded in a context of the driver. Nobody else uses what it reads: the
// attempt is under way.
func (t *task) fill(ctx context.Context, gpu *driver.Context) error {
	for limit, v := range t.limits {
		if err := gpu.SetLimit(ctx, limit, v); err != nil {
			return err
		}
	}
	for _, m := range t.modules {
		dm, err := gpu.LoadModule(ctx, m.image)
		if m.failed, err = late(err); err != nil {
			return err
		}
		m.m = dm
	}
	for _, f := range t.functions {
		if f.failed = f.m.failed; f.failed != Success {
			continue
		}
		var err error
		if f.failed, err = late(f.find(ctx, f.m.m)); err != nil {
			return err
		}
	}
	return tasks.Replay(ctx, gpu, t.record)
}

// late returns the result that every use of code has which the device refuses. With lazy loading, CUDA,
// too, tells of that when the code is first used. Other errors fail the attempt.
func late(err error) (Result, error) {
	r, sticky := resultOf(err)
	if sticky || r == ErrorOutOfMemory || r == ErrorUnknown {
		return Success, err
	}
	return r, nil
}

// take has the context be the driver's, with channels for its streams.
func (x *Context) take(ctx context.Context, gpu *driver.Context) (err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.gpu = gpu
	defer func() {
		if err != nil {
			x.gpu, x.channels, x.next = nil, nil, 0
		}
	}()
	if x.legacy.ch, err = x.newChannel(ctx); err != nil {
		return err
	}
	x.next = 1
	all := make([]*stream, 0, len(x.streams)+len(x.own))
	for s := range x.streams {
		all = append(all, s)
	}
	for _, s := range x.own {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *stream) int { return cmp.Compare(a.id, b.id) })
	for _, s := range all {
		if r := x.assign(s); r != Success {
			return r
		}
	}
	return nil
}

// hint notes the launch that is about to begin the task, if the call is one.
func (t *task) hint(function uint32, w *words) {
	if function != launchNumber {
		return
	}
	grid, threads := [3]uint32{uint32(w[1]), uint32(w[2]), uint32(w[3])}, w[4]*w[5]*w[6]
	if blocks := blocksOf(grid); blocks > 0 && threads > 0 && threads <= abi.MaxTaskThreads {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.starting == nil { // else another call begins it, and its goroutine reads this
			t.first = driver.Task{Blocks: blocks, Threads: uint32(threads)}
		}
	}
}

var launchNumber = functionNumbers["cuLaunchKernel"]

// mayLimit reports whether a limit can be recorded: no GPU has too little memory for it beside the
// program's objects. Otherwise the device is to say so at once. t.mu is held.
func (t *task) mayLimit(limit uint32, v uint64) bool {
	all := t.x.d.taskLimit()
	most := tasks.Margin(all) / 2
	cost := func(limit uint32, v uint64) uint64 {
		if v > all {
			return all
		}
		switch limit {
		case abi.LimitHeapBytes, abi.LimitPrintfBytes:
			return v
		case abi.LimitStackBytes:
			if n := t.x.d.residentThreads(); n > 0 && v <= all/n {
				return v * n
			}
		}
		return all // others are hints, or what the device knows whether it supports
	}
	sum := cost(limit, v)
	for l, v := range t.limits {
		if l != limit {
			sum += cost(l, v)
		}
	}
	return sum <= most
}

// end ends the task with its context. If it is beginning, that ends first.
func (t *task) end() {
	t.mu.Lock()
	t.gone = true
	s := t.starting
	t.mu.Unlock()
	if s != nil {
		s.cancel()
		<-s.done
	}
	t.x.d.unbegun.CompareAndSwap(t.x, nil)
}

// recorded calls f with the context's task, if that is still only recorded. Otherwise, and if f's
// error is [tasks.ErrBegin], the task begins and again is called.
func (c *Call) recorded(x *Context, f func(t *task) error, again func() Result) Result {
	t := x.task
	t.mu.Lock()
	if t.begun.Load() || t.starting != nil {
		t.mu.Unlock()
		return c.beginTask(x, again)
	}
	err := f(t)
	t.mu.Unlock()
	if errors.Is(err, tasks.ErrBegin) {
		return c.beginTask(x, again)
	}
	return resultOnly(err)
}

// allocate records an allocation and reports whether it did: otherwise the task has begun. The result
// is beginFirst if it has to.
func (t *task) allocate(n uint64) (p uint64, r Result, recorded bool) {
	if t.begun.Load() {
		return 0, Success, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.begun.Load():
		return 0, Success, false
	case t.starting != nil:
		return 0, beginFirst, true
	}
	p, err := t.record.Alloc(granular(n))
	switch {
	case err == nil:
		t.x.memory.add(allocation{p, n, t.x.d.ids.Add(1)})
		return p, Success, true
	case errors.Is(err, tasks.ErrMemory):
		return 0, ErrorOutOfMemory, true
	}
	return 0, beginFirst, true
}

// free frees memory that [Context.allocate] returned.
func (x *Context) free(p uint64) error {
	if x.task == nil {
		return x.gpu.Free(context.Background(), driver.Ptr(p))
	}
	t := x.task
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.starting != nil { // who begins the task uses the record
		t.freed = append(t.freed, p)
		return nil
	}
	return t.freeLocked(p)
}

// freeLocked is free; t.mu is held.
func (t *task) freeLocked(p uint64) error {
	g := t.record.Free(p)
	switch {
	case !t.begun.Load(), g != nil && g.Objects > 0:
		return nil
	case g != nil:
		p = g.Base
	}
	return t.x.gpu.Free(context.Background(), driver.Ptr(p))
}

// mostRecordedImage bounds the modules that are parsed so that they need not be loaded at once.
const mostRecordedImage = 1 << 20

// recordModule makes a module that is loaded when the task begins. The error is [tasks.ErrBegin] if
// the device is to say whether it can be.
func (t *task) recordModule(image []byte, log *jitLog) (*module, error) {
	if fatbin.Detect(image) != fatbin.FormatPTX || len(image) > mostRecordedImage || len(log.info)+len(log.errors) > 0 {
		return nil, tasks.ErrBegin
	}
	m := t.x.newModule(image)
	if m.image = slices.Clone(image); m.names() == nil {
		return nil, tasks.ErrBegin
	}
	if m.handle = t.x.d.objects.add(m); m.handle == 0 {
		return nil, ErrorOutOfMemory
	}
	t.modules = append(t.modules, m)
	t.x.mu.Lock()
	t.x.modules[m] = struct{}{}
	t.x.mu.Unlock()
	return m, nil
}

// recordFunction makes a kernel of a module that is not loaded yet.
func (t *task) recordFunction(m *module, name string) (*function, error) {
	if !slices.Contains(m.names(), name) {
		return nil, ErrorNotFound
	}
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	if f := m.functions[name]; f != nil {
		return f, nil
	}
	f := newFunction(m, name)
	if f.handle = t.x.d.objects.add(f); f.handle == 0 {
		return nil, ErrorOutOfMemory
	}
	m.functions[name] = f
	t.functions = append(t.functions, f)
	return f, nil
}

// forgetModule unloads a module that is not loaded yet.
func (t *task) forgetModule(m *module) {
	t.modules = slices.DeleteFunc(t.modules, func(o *module) bool { return o == m })
	t.functions = slices.DeleteFunc(t.functions, func(f *function) bool { return f.m == m })
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	m.forget()
}
