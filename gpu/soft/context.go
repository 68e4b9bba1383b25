package soft

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
	"vgpud/gpu/soft/machine"
	"vgpud/gpu/soft/ring"
	"vgpud/gpu/soft/simt"
	"vgpud/gpu/soft/vram"
	"vgpud/internal/memfd"
)

// engineContext is the engine's side of a context. It implements [ContextDriver].
type engineContext struct {
	e     *Engine
	o     gpu.ContextOptions
	owner *owner
	group *machine.Group
	base  uint64
	file  *os.File
	data  []byte
	print printBuffer
	fault atomic.Pointer[error]
	over  atomic.Bool

	mu        sync.Mutex
	table     *vram.Table
	local     uint64 // reserved for the local memory of resident threads
	limits    limits
	placed    map[gpu.Ptr]uint64 // offsets of what is at addresses of the program's choice
	hosts     [][]byte           // memory of the host that is mapped
	eventArea []byte             // mapped; nil: none
	hostMaps  int                // how many of them there are, or will be
	code      uint64             // of the host's memory, used by modules
	modules   map[uint32]*engineModule
	channels  int
	freed     bool
	lastID    uint32

	// Owned by the pacing thread.
	mem     simt.Memory
	kernels map[uint32]*simt.Kernel
	queues  map[uint32]*queue
	events  *eventPoller // nil: it has no event area
	clocks  []uint64     // of the SMs, in the time that the context has executed
}

// NewContext makes a context, as [Driver] says. Its owner is its label.
func (e *Engine) NewContext(_ context.Context, o gpu.ContextOptions) (ContextDriver, ContextInfo, error) {
	return e.NewContextOf(o.Label, o)
}

// NewContextOf is NewContext for an owner that differs from the label. Anybody may choose a label,
// which appears in the GPU's records; the owner determines the limit of the host's memory.
func (e *Engine) NewContextOf(owner string, o gpu.ContextOptions) (ContextDriver, ContextInfo, error) {
	c, info, err := e.newContext(owner, o)
	if err != nil {
		return nil, info, err
	}
	return c, info, nil
}

func (e *Engine) newContext(owner string, o gpu.ContextOptions) (*engineContext, ContextInfo, error) {
	size := o.MemoryLimit
	if size == 0 || size > e.o.MemoryBytes {
		size = e.o.MemoryBytes
	}
	size = max(size&^(1<<12-1), 1<<12)
	if len(o.Label) > 256 {
		o.Label = o.Label[:256]
	}
	c := &engineContext{
		e: e, o: o, table: vram.New(size, e.o.Allocations), modules: map[uint32]*engineModule{},
		kernels: map[uint32]*simt.Kernel{}, queues: map[uint32]*queue{}, limits: defaultLimits,
		placed: map[gpu.Ptr]uint64{}, clocks: make([]uint64, e.o.Machine.SMs),
	}
	c.print.max = int(c.limits.printf)
	if err := c.mapMemory(size); err != nil {
		return nil, ContextInfo{}, err
	}
	c.owner = e.acquireOwner(owner)
	var err error
	if derr := e.do(func() {
		if len(e.contexts) >= e.o.Contexts {
			err = fmt.Errorf("new context beside %d: %w", len(e.contexts), gpu.ErrFull)
			return
		}
		if c.group, err = e.m.NewGroup(); err == nil {
			e.contexts = append(e.contexts, c)
		} else if errors.Is(err, machine.ErrFull) {
			err = fmt.Errorf("%w: %w", gpu.ErrFull, err)
		}
	}); derr != nil {
		err = derr
	}
	if err != nil {
		e.releaseOwner(c.owner)
		return nil, ContextInfo{}, errors.Join(err, c.unmapMemory())
	}
	c.base = contextBase + uint64(c.group.ID())*contextSpace
	info := ContextInfo{Group: c.Group(), Base: gpu.Ptr(c.base), Size: size}
	fd, err := unix.FcntlInt(c.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, ContextInfo{}, errors.Join(fmt.Errorf("hand out a context's memory: %w", err), c.Close())
	}
	info.Memory = os.NewFile(uintptr(fd), c.file.Name())
	return c, info, nil
}

// owner is the host's resources that the contexts of one owner share.
type owner struct {
	name     string
	contexts int
	code     budget
	channels budget // counts channels, not bytes
}

// channelShares limits one owner to 1/channelShares of all channels: a guest has 64, and its
// executors some.
const channelShares = 4

// acquireOwner returns the owner of a new context. A context without a name is its own owner.
func (e *Engine) acquireOwner(name string) *owner {
	e.mu.Lock()
	defer e.mu.Unlock()
	o := e.owners[name]
	if o == nil {
		o = &owner{
			name: name, code: budget{limit: e.o.CodeBytes / codeShares},
			channels: budget{limit: max(uint64(e.o.Machine.Channels/channelShares), 1)},
		}
		if name != "" {
			e.owners[name] = o
		}
	}
	o.contexts++
	return o
}

// releaseOwner undoes acquireOwner.
func (e *Engine) releaseOwner(o *owner) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if o.contexts--; o.contexts == 0 && o.name != "" {
		delete(e.owners, o.name)
	}
}

// releaseCode releases the host's memory that code used.
func (c *engineContext) releaseCode(n uint64) {
	c.owner.code.release(n)
	c.e.code.release(n)
}

// mapMemory creates the context's memory: a sparse file whose pages exist once they are touched.
func (c *engineContext) mapMemory(size uint64) error {
	fd, err := unix.MemfdCreate("vgpud-soft-memory", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return fmt.Errorf("create a context's memory: %w", err)
	}
	c.file = os.NewFile(uintptr(fd), "vgpud-soft-memory")
	if err := c.file.Truncate(int64(size)); err != nil {
		return closing(c.file, fmt.Errorf("size a context's memory: %w", err))
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, memfd.Seals); err != nil {
		return closing(c.file, fmt.Errorf("seal a context's memory: %w", err))
	}
	c.data, err = unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return closing(c.file, fmt.Errorf("map a context's memory: %w", err))
	}
	return nil
}

func (c *engineContext) unmapMemory() error {
	return errors.Join(unix.Munmap(c.data), c.file.Close())
}

// Group returns the number of the context's channel group.
func (c *engineContext) Group() gpu.GroupID { return gpu.GroupID(c.group.ID()) }

// usable returns an error if the context can't be used.
func (c *engineContext) usable() error {
	if f := c.fault.Load(); f != nil {
		return *f
	}
	return c.open()
}

// open returns an error if the context is closed.
func (c *engineContext) open() error {
	if c.over.Load() {
		return fmt.Errorf("context is closed: %w", gpu.ErrLost)
	}
	return nil
}

// Fault returns the error that poisoned the context.
func (c *engineContext) Fault() error {
	if f := c.fault.Load(); f != nil {
		return *f
	}
	return nil
}

// poison ends the context, on the pacing thread. The launch that caused it ends with the fault; the
// others are dropped.
func (c *engineContext) poison(by *command, fault *gpu.Fault) {
	var err error = fault
	if !c.fault.CompareAndSwap(nil, &err) {
		return
	}
	c.e.o.Log.Warn("soft GPU: context ended by a fault", "group", c.Group(), "label", c.o.Label, "fault", err)
	for _, q := range c.queues {
		q.flush(func(cmd *command) ring.Code {
			if cmd == by {
				return ring.Fault
			}
			return ring.Poisoned
		})
	}
	c.events.fail()
}

// SetEnabled takes the context's channels off the GPU or puts them back.
func (c *engineContext) SetEnabled(on bool) error {
	if err := c.usable(); err != nil {
		return err
	}
	return c.e.do(func() {
		c.e.step(c.e.now())
		c.group.SetEnabled(on)
	})
}

// SetTimeslice sets how long the context runs before another context's turn.
func (c *engineContext) SetTimeslice(d time.Duration) error {
	if err := c.usable(); err != nil {
		return err
	}
	if d < time.Microsecond || d > time.Second {
		return fmt.Errorf("time slice of %v: want 1µs to 1s", d)
	}
	return c.e.do(func() { c.group.SetSlice(d) })
}

// SetKernelTimeLimit changes how long a kernel may run; 0 is no limit.
func (c *engineContext) SetKernelTimeLimit(d time.Duration) error {
	if err := c.usable(); err != nil {
		return err
	}
	return c.e.do(func() {
		c.o.KernelTimeLimit = max(d, 0)
		for _, q := range c.queues {
			for _, cmd := range q.cmds {
				cmd.Limit = c.o.KernelTimeLimit
			}
		}
		c.events.setLimit(c.o.KernelTimeLimit)
	})
}

// NewChannel makes a channel and its ring.
func (c *engineContext) NewChannel() (ChannelInfo, error) {
	if err := c.usable(); err != nil {
		return ChannelInfo{}, err
	}
	c.mu.Lock()
	if c.channels >= c.e.o.Channels {
		c.mu.Unlock()
		return ChannelInfo{}, fmt.Errorf("new channel beside %d: %w", c.channels, gpu.ErrOutOfMemory)
	}
	if !c.owner.channels.reserve(1) {
		c.mu.Unlock()
		return ChannelInfo{}, fmt.Errorf("new channel beside %d of the same owner: %w", c.owner.channels.taken(), gpu.ErrFull)
	}
	c.channels++
	c.lastID++
	id := c.lastID
	c.mu.Unlock()
	info, err := c.newQueue(id)
	if errors.Is(err, machine.ErrFull) {
		err = fmt.Errorf("%w: %w", gpu.ErrFull, err)
	}
	if err != nil {
		c.uncountChannel()
	}
	return info, err
}

// uncountChannel uncounts a freed channel.
func (c *engineContext) uncountChannel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.channels--
	c.owner.channels.release(1)
}

func (c *engineContext) newQueue(id uint32) (ChannelInfo, error) {
	f, err := ring.NewFile()
	if err != nil {
		return ChannelInfo{}, err
	}
	consumer, err := ring.NewConsumer(f)
	if err != nil {
		return ChannelInfo{}, closing(f, err)
	}
	q := &queue{e: c.e, c: c, id: id, ring: consumer}
	if derr := c.e.do(func() {
		if c.over.Load() {
			err = fmt.Errorf("context is closed: %w", gpu.ErrLost)
			return
		}
		if q.ch, err = c.group.NewChannel(); err == nil {
			c.queues[id] = q
			c.e.queues = append(c.e.queues, q)
		}
	}); derr != nil {
		err = derr
	}
	if err != nil {
		return ChannelInfo{}, closing(f, errors.Join(err, consumer.Close()))
	}
	return ChannelInfo{ID: id, Ring: f}, nil
}

// CloseChannel drops the queued launches of a channel. One that executes runs on, but its end is
// not reported.
func (c *engineContext) CloseChannel(id uint32) error {
	var err error
	if derr := c.e.do(func() {
		q := c.queues[id]
		if q == nil || q.draining {
			err = fmt.Errorf("close channel %d: %w", id, gpu.ErrNotFound)
			return
		}
		c.e.step(c.e.now())
		err = q.close()
	}); derr != nil {
		return derr
	}
	return err
}

// Close ends running launches and frees all memory.
func (c *engineContext) Close() error {
	if c.over.Load() {
		return nil
	}
	err := c.e.do(c.end)
	if errors.Is(err, gpu.ErrLost) {
		<-c.e.stopped // the end of the engine ended the context
		return nil
	}
	c.free()
	return err
}

// end closes the context on the pacing thread, except for its memory, which [free] releases because
// that takes long.
func (c *engineContext) end() {
	if !c.over.CompareAndSwap(false, true) {
		return
	}
	e := c.e
	e.step(e.now())
	var errs []error
	for _, q := range c.queues {
		q.draining = false // nothing runs any more
		q.kill()
		errs = append(errs, q.free())
	}
	c.events.fail()
	e.pollers = slices.DeleteFunc(e.pollers, func(p *eventPoller) bool { return p == c.events })
	e.remember(c.o.Label, c.group.Usage())
	c.group.Close()
	e.contexts = slices.DeleteFunc(e.contexts, func(o *engineContext) bool { return o == c })
	if err := errors.Join(errs...); err != nil {
		e.o.Log.Error("soft GPU: close a context", "group", c.Group(), "error", err)
	}
}

// free releases, once, the memory of a context that has ended.
func (c *engineContext) free() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.freed {
		return
	}
	c.freed = true
	if err := c.unmapMemory(); err != nil {
		c.e.o.Log.Error("soft GPU: free a context's memory", "group", c.Group(), "error", err)
	}
	for _, data := range c.hosts {
		if err := unix.Munmap(data); err != nil {
			c.e.o.Log.Error("soft GPU: unmap memory of the host", "group", c.Group(), "error", err)
		}
	}
	c.hosts = nil
	if err := c.unmapEvents(); err != nil {
		c.e.o.Log.Error("soft GPU: unmap the event area", "group", c.Group(), "error", err)
	}
	c.e.used.release(c.table.Used() + c.local + max(c.limits.printf, printBytes) - printBytes)
	c.limits = defaultLimits
	c.releaseCode(c.code)
	c.e.releaseOwner(c.owner)
	c.table, c.local, c.code = vram.New(0, 0), 0, 0
	clear(c.modules)
}

// printBuffer holds the output of kernels, up to a limit.
type printBuffer struct {
	mu   sync.Mutex
	text []byte
	max  int
}

const printBytes = 1 << 20

// resize sets the limit. Output beyond it is dropped.
func (p *printBuffer) resize(max int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.max = max
	p.text = slices.Clone(p.text[:min(len(p.text), max)])
}

// Write implements io.Writer for the interpreter. Output that does not fit is dropped, as in CUDA.
func (p *printBuffer) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.text)+len(b) <= p.max {
		p.text = append(p.text, b...)
	}
	return len(b), nil
}

// take returns at most max bytes, and only complete lines if they fit.
func (p *printBuffer) take(max int) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := min(max, len(p.text))
	if n < len(p.text) {
		if i := slices.Index(reversed(p.text[:n]), '\n'); i >= 0 {
			n -= i
		}
	}
	out := slices.Clone(p.text[:n])
	p.text = append(p.text[:0], p.text[n:]...)
	return out
}

func reversed(b []byte) []byte {
	r := slices.Clone(b)
	slices.Reverse(r)
	return r
}

// Printf returns the output of the context's kernels, also after a fault.
func (c *engineContext) Printf(max int) ([]byte, error) {
	if err := c.open(); err != nil {
		return nil, err
	}
	if max < 0 {
		return nil, fmt.Errorf("printf of %d bytes", max)
	}
	return c.print.take(max), nil
}
