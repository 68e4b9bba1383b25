package soft

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
	"vgpud/gpu/soft/machine"
	"vgpud/gpu/soft/simt"
	"vgpud/gpu/soft/vram"
)

// deviceContext is a context in the program that uses it.
type deviceContext struct {
	d       *Device
	cd      ContextDriver
	info    ContextInfo
	mem     []byte
	account account
	faulted atomic.Bool // a channel has reported a poisoned context

	loading sync.Mutex // held while a module is loaded or unloaded
	locals  []uint64   // LocalBytes of each module; the context needs the greatest
	heap    uint64     // reserved for the heap, once a module needs it

	mu       sync.Mutex
	ranges   rangeList // allocations and modules' variables
	channels map[*channel]struct{}
	fault    error
	closed   bool
}

// Group returns the number of the context's channel group.
func (c *deviceContext) Group() gpu.GroupID { return c.info.Group }

// check returns an error if the context can't be used.
func (c *deviceContext) check() error {
	if c.faulted.Load() {
		return c.Fault()
	}
	return nil
}

// Fault returns the error that poisoned the context. It checks the channels, and asks the GPU only
// if one of them reports a fault.
func (c *deviceContext) Fault() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault != nil || c.closed {
		return c.fault
	}
	for ch := range c.channels {
		ch.Done()
	}
	if !c.faulted.Load() {
		return nil
	}
	if err := c.cd.Fault(); err != nil {
		c.fault = err
	} else {
		c.fault = fmt.Errorf("soft GPU: %w", gpu.ErrPoisoned)
	}
	return c.fault
}

// Alloc allocates zeroed memory.
func (c *deviceContext) Alloc(size uint64) (gpu.Ptr, error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	if err := c.account.reserve(vram.Round(size), "an allocation"); err != nil {
		return 0, err
	}
	p, err := c.cd.Alloc(size)
	if err != nil {
		c.account.release(vram.Round(size))
		return 0, err
	}
	return p, c.track(p, uint64(p-c.info.Base), size)
}

// track adds a range of the context's memory, whose bytes are at an offset of it.
func (c *deviceContext) track(p gpu.Ptr, offset, size uint64) error {
	if offset > uint64(len(c.mem)) || size > uint64(len(c.mem))-offset {
		return fmt.Errorf("the GPU answers with %d bytes at %#x of %d", size, offset, len(c.mem))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ranges.insert(memRange{p, size, c.mem[offset : offset+size : offset+size]})
	return nil
}

// untrack removes the allocation at p, and returns its size.
func (c *deviceContext) untrack(p gpu.Ptr) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ranges.remove(p).n
}

// Free frees memory that Alloc returned.
func (c *deviceContext) Free(p gpu.Ptr) error {
	if err := c.check(); err != nil {
		return err
	}
	if err := c.cd.Free(p); err != nil {
		return err
	}
	c.account.release(vram.Round(c.untrack(p)))
	return nil
}

// Memory returns how much can still be allocated, and the total.
func (c *deviceContext) Memory() (free, total uint64, err error) {
	if err := c.check(); err != nil {
		return 0, 0, err
	}
	if free, total, err = c.cd.Memory(); err != nil {
		return 0, 0, err
	}
	free, total = c.account.room(free, total)
	return free, total, nil
}

// bytes returns the n bytes of memory at p, if they are all in one allocation.
func (c *deviceContext) bytes(p gpu.Ptr, n uint64) ([]byte, error) {
	c.mu.Lock()
	data, ok := c.ranges.bytes(p, n)
	c.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("%d bytes at %#x: %w", n, uint64(p), gpu.ErrInvalidPtr)
	}
	return data, nil
}

// LoadModule compiles PTX. The memory that a module needs is known only after compilation.
func (c *deviceContext) LoadModule(image []byte) (gpu.Module, error) { return c.load(image, 0) }

// load loads a module with its variables at an address; 0 is any.
func (c *deviceContext) load(image []byte, at gpu.Ptr) (gpu.Module, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	c.loading.Lock()
	defer c.loading.Unlock()
	info, err := c.cd.LoadModule(context.Background(), image, at)
	if err != nil {
		return nil, err
	}
	if err := c.account.reserve(moduleBytes(&info)+c.local(info.LocalBytes)-c.local(0), "the module"); err != nil {
		return nil, errors.Join(err, c.cd.UnloadModule(info.ID))
	}
	if info.HeapBytes > c.heap {
		if err := c.account.reserve(info.HeapBytes-c.heap, "the heap of kernels"); err != nil {
			c.account.release(moduleBytes(&info) + c.local(info.LocalBytes) - c.local(0))
			return nil, errors.Join(err, c.cd.UnloadModule(info.ID))
		}
		c.heap = info.HeapBytes
	}
	c.locals = append(c.locals, info.LocalBytes)
	m := &module{c: c, info: info, byName: map[string]*function{}}
	for _, k := range info.Kernels {
		m.byName[k.Attributes.Name] = &function{m: m, id: k.ID, attr: k.Attributes, refused: k.Refused}
	}
	if info.ImageBytes > 0 {
		return m, c.track(info.Image, info.ImageOffset, info.ImageBytes)
	}
	return m, nil
}

// moduleBytes returns the memory of a module apart from local memory.
func moduleBytes(info *ModuleInfo) uint64 { return vram.Round(info.ImageBytes) + info.CodeBytes }

// local returns the local memory of a context that has one more module with the given need.
func (c *deviceContext) local(more uint64) uint64 {
	for _, n := range c.locals {
		more = max(more, n)
	}
	return more
}

// Printf returns the output of kernels, also of a context that a fault has poisoned.
func (c *deviceContext) Printf(max int) ([]byte, error) { return c.cd.Printf(max) }

// SetKernelTimeLimit implements [gpu.TimeLimited].
func (c *deviceContext) SetKernelTimeLimit(d time.Duration) error {
	if err := c.check(); err != nil {
		return err
	}
	return c.cd.SetKernelTimeLimit(d)
}

// NewChannel makes a channel.
func (c *deviceContext) NewChannel() (gpu.Channel, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	info, err := c.cd.NewChannel()
	if err != nil {
		return nil, err
	}
	ch, err := newChannel(c, info)
	if err = errors.Join(err, info.Ring.Close()); err != nil {
		return nil, errors.Join(err, c.cd.CloseChannel(info.ID))
	}
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.channels[ch] = struct{}{}
	}
	c.mu.Unlock()
	if closed {
		return nil, errors.Join(fmt.Errorf("context is closed: %w", gpu.ErrLost), ch.stop())
	}
	return ch, nil
}

// Close ends running launches and frees all memory.
func (c *deviceContext) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	var channels []*channel
	for ch := range c.channels {
		channels = append(channels, ch)
	}
	c.mu.Unlock()
	err := c.cd.Close() // this also ends the goroutines that wait
	for _, ch := range channels {
		err = errors.Join(err, ch.stop())
	}
	c.account.close()
	c.d.mu.Lock()
	delete(c.d.contexts, c)
	c.d.mu.Unlock()
	return errors.Join(err, unix.Munmap(c.mem))
}

// module is a loaded module.
type module struct {
	c      *deviceContext
	info   ModuleInfo
	byName map[string]*function
}

// Function returns an entry of the module.
func (m *module) Function(name string) (gpu.Function, error) {
	f, ok := m.byName[name]
	if !ok {
		return nil, fmt.Errorf("function %q: %w", name, gpu.ErrNotFound)
	}
	return f, nil
}

// Global returns a variable of the module.
func (m *module) Global(name string) (gpu.Ptr, uint64, error) {
	if err := m.c.check(); err != nil {
		return 0, 0, err
	}
	return m.c.cd.Global(m.info.ID, name)
}

// Refused returns the kernels that this GPU can't execute, see [gpu.Partial].
func (m *module) Refused() []error {
	var list []error
	for i := range m.info.Kernels {
		if k := &m.info.Kernels[i]; k.Refused != "" {
			list = append(list, simt.RefusedError(k.Attributes.Name, k.Refused))
		}
	}
	return list
}

// Unload frees the module.
func (m *module) Unload() error {
	if err := m.c.check(); err != nil {
		return err
	}
	c := m.c
	c.loading.Lock()
	defer c.loading.Unlock()
	if err := c.cd.UnloadModule(m.info.ID); err != nil {
		return err
	}
	if m.info.ImageBytes > 0 {
		c.untrack(m.info.Image)
	}
	before := c.local(0)
	i := slices.Index(c.locals, m.info.LocalBytes)
	c.locals = slices.Delete(c.locals, i, i+1)
	c.account.release(moduleBytes(&m.info) + before - c.local(0))
	return nil
}

// function is a kernel.
type function struct {
	m    *module
	id   uint32
	attr gpu.FunctionAttributes
	// refused returns an error if the kernel can't be launched.
	refused string
}

// Attributes returns what CUDA's cuFuncGetAttribute returns.
func (f *function) Attributes() gpu.FunctionAttributes { return f.attr }

// Occupancy returns the number of blocks of the given size that an SM holds.
func (f *function) Occupancy(blockThreads int, sharedBytes uint64) (int, error) {
	if blockThreads < 1 || blockThreads > maxBlockThreads {
		return 0, fmt.Errorf("occupancy of blocks of %d threads: %w", blockThreads, gpu.ErrInvalidLaunch)
	}
	need, _ := blockNeed(&f.attr, gpu.Dim3{X: uint32(blockThreads), Y: 1, Z: 1}, sharedBytes)
	return f.m.c.d.shape().Occupancy(need), nil
}

// shape returns the machine that the properties describe.
func (d *Device) shape() machine.Config {
	return machine.Config{SMs: d.props.SMs, SM: machine.Resources{
		Blocks: d.props.BlocksPerSM, Threads: d.props.ThreadsPerSM, Registers: d.props.RegistersPerSM, Shared: d.props.SharedPerSM,
	}}
}

// checkLaunch returns an error if f can't be launched with these dimensions.
func (f *function) checkLaunch(l *gpu.Launch) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("launch %s: %s: %w", f.attr.Name, fmt.Sprintf(format, args...), gpu.ErrInvalidLaunch)
	}
	if f.refused != "" {
		return fmt.Errorf("launch: %w", simt.RefusedError(f.attr.Name, f.refused))
	}
	if !gridFits(l.Grid) {
		return bad("grid %v", l.Grid)
	}
	need, ok := blockNeed(&f.attr, l.Block, l.SharedBytes)
	if !ok || f.attr.MaxThreadsPerBlock > 0 && l.Block.Count() > uint64(f.attr.MaxThreadsPerBlock) {
		return bad("block %v", l.Block)
	}
	if f.attr.ReqBlock != (gpu.Dim3{}) && f.attr.ReqBlock != l.Block {
		return bad("block %v, requires %v", l.Block, f.attr.ReqBlock)
	}
	if uint64(len(l.Params)) < f.attr.ParamBytes {
		return bad("%d bytes of parameters, takes %d", len(l.Params), f.attr.ParamBytes)
	}
	if f.m.c.d.shape().Occupancy(need) == 0 {
		return bad("a block of %d threads with %d registers each and %d bytes of shared memory fits no SM",
			need.Threads, f.attr.Registers, need.Shared)
	}
	return nil
}
