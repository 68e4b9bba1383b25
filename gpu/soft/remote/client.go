package remote

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/gpu/soft/texture"
	"vgpud/internal/unixmsg"
)

// The pause and the number of tries if more programs connect than the server accepts at once.
const (
	dialAgain = 20 * time.Millisecond
	dialTries = 50
)

// Dial connects to the soft GPU at the path of its socket. Closing the device closes the
// connection. The error is [gpu.ErrLost] if there is no server, and [gpu.ErrFull] if the server has
// no room.
func Dial(ctx context.Context, path string) (*soft.Device, error) {
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "unixpacket", path)
	for try := 1; errors.Is(err, unix.EAGAIN) && try < dialTries && clock.Sleep(ctx, clock.Real{}, dialAgain) == nil; try++ {
		c, err = dialer.DialContext(ctx, "unixpacket", path)
	}
	if errors.Is(err, unix.EAGAIN) {
		return nil, fmt.Errorf("connect to the soft GPU at %s: %w: %w", path, gpu.ErrFull, err)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to the soft GPU (is `vgpud softgpu` running?): %w: %w", gpu.ErrLost, err)
	}
	d, err := newDriver(c.(*net.UnixConn))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect to the soft GPU at %s: %w", path, err), c.Close())
	}
	return soft.NewDevice(d), nil
}

// driver is the program's end of the socket.
type driver struct {
	c        *net.UnixConn
	props    gpu.Properties
	doorbell *os.File
	life     *os.File
	lost     chan struct{}

	mu     sync.Mutex // serializes requests
	buf    []byte
	gone   bool
	closed bool
	watch  sync.WaitGroup
}

func newDriver(c *net.UnixConn) (*driver, error) {
	d := &driver{c: c, lost: make(chan struct{}), buf: make([]byte, maxPacket)}
	r, files, err := d.call(&request{Op: opHello, Version: protocol})
	if err != nil {
		return nil, d.refusal(err)
	}
	if len(files) != 2 || r.Properties == nil {
		return nil, errors.Join(errors.New("hello was answered without properties, doorbell and life pipe"), unixmsg.CloseAll(files))
	}
	d.doorbell, d.life, d.props = files[0], files[1], *r.Properties
	d.watch.Go(d.watchServer)
	return d, nil
}

// refusal returns the server's error for a connection that it refused, which it may have sent
// before any request, or else err.
func (d *driver) refusal(err error) error {
	if !errors.Is(err, gpu.ErrLost) {
		return err
	}
	b, files, rerr := receive(d.c, d.buf)
	if rerr = errors.Join(rerr, unixmsg.CloseAll(files)); rerr != nil {
		return err
	}
	var r reply
	if decode(b, &r) != nil || r.Error == nil {
		return err
	}
	return r.Error.result()
}

// watchServer notices that the server is gone even without a request, since a program that waits
// for a launch must be told. The server holds the other end of a pipe that is never written.
func (d *driver) watchServer() {
	var b [1]byte
	_, _ = d.life.Read(b[:])
	d.mu.Lock()
	defer d.mu.Unlock()
	d.markLost()
}

// markLost records once that the server is gone. The caller holds mu.
func (d *driver) markLost() {
	if !d.gone {
		d.gone = true
		close(d.lost)
	}
}

// lostError is gpu.ErrLost. Its text has no details: it reaches guests, for which a socket's errors
// are useless.
type lostError struct {
	op    string
	cause error
}

// Error returns the text of gpu.ErrLost.
func (e *lostError) Error() string { return fmt.Sprintf("%s: %v", e.op, gpu.ErrLost) }

// Unwrap returns gpu.ErrLost and the error that ended the connection.
func (e *lostError) Unwrap() []error { return []error{gpu.ErrLost, e.cause} }

// call sends a request and waits for the reply. The caller owns the files.
func (d *driver) call(req *request, with ...*os.File) (*reply, []*os.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone {
		return nil, nil, &lostError{req.Op, net.ErrClosed}
	}
	fail := func(err error) (*reply, []*os.File, error) {
		d.markLost()
		return nil, nil, &lostError{req.Op, err}
	}
	b, err := encode(req)
	if err != nil {
		return nil, nil, err
	}
	if len(b) > maxPacket {
		return nil, nil, fmt.Errorf("%s: request of %d bytes: want at most %d", req.Op, len(b), maxPacket)
	}
	if err := send(d.c, b, with...); err != nil {
		return fail(err)
	}
	b, files, err := receive(d.c, d.buf)
	if err != nil {
		return fail(err)
	}
	r := &reply{}
	if err := decode(b, r); err != nil {
		return fail(errors.Join(err, unixmsg.CloseAll(files)))
	}
	if r.InFile && len(files) > 0 {
		f := files[len(files)-1]
		files = files[:len(files)-1]
		b, err := readFile(f)
		r = &reply{}
		if err = errors.Join(err, f.Close()); err == nil {
			err = decode(b, r)
		}
		if err != nil {
			return fail(errors.Join(err, unixmsg.CloseAll(files)))
		}
	}
	if err := r.Error.result(); err != nil {
		return nil, nil, errors.Join(err, unixmsg.CloseAll(files))
	}
	return r, files, nil
}

// one is call for a request whose reply has one file.
func (d *driver) one(req *request) (*reply, *os.File, error) {
	r, files, err := d.call(req)
	if err != nil {
		return nil, nil, err
	}
	if len(files) != 1 {
		return nil, nil, errors.Join(fmt.Errorf("%s was answered with %d files, want 1", req.Op, len(files)), unixmsg.CloseAll(files))
	}
	return r, files[0], nil
}

// none is call for a request whose reply has no file.
func (d *driver) none(req *request, with ...*os.File) (*reply, error) {
	r, files, err := d.call(req, with...)
	return r, errors.Join(err, unixmsg.CloseAll(files))
}

// Properties returns the GPU's properties.
func (d *driver) Properties() gpu.Properties { return d.props }

// Kick wakes the GPU's pacing thread.
func (d *driver) Kick() { soft.Ring(d.doorbell) }

// Lost returns a channel that is closed when the server is gone.
func (d *driver) Lost() <-chan struct{} { return d.lost }

// Registers returns the register file.
func (d *driver) Registers() (*os.File, error) {
	_, f, err := d.one(&request{Op: opRegisters})
	return f, err
}

// Usage returns the GPU's exact usage.
func (d *driver) Usage() (soft.Usage, error) {
	r, err := d.none(&request{Op: opUsage})
	if err != nil {
		return soft.Usage{}, err
	}
	if r.Usage == nil {
		return soft.Usage{}, errors.New("usage was answered without any")
	}
	return *r.Usage, nil
}

// NewContext makes a context.
func (d *driver) NewContext(_ context.Context, o gpu.ContextOptions) (soft.ContextDriver, soft.ContextInfo, error) {
	r, f, err := d.one(&request{Op: opNewContext, Label: o.Label, MemoryLimit: o.MemoryLimit, TimeLimit: o.KernelTimeLimit})
	if err != nil {
		return nil, soft.ContextInfo{}, err
	}
	return &remoteContext{d: d, id: r.Context}, soft.ContextInfo{Group: r.Group, Base: r.Ptr, Size: r.Size, Memory: f}, nil
}

// Close closes the connection, which closes all contexts.
func (d *driver) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.markLost()
	d.mu.Unlock()
	err := errors.Join(d.c.Close(), d.life.Close()) // ends watchServer
	d.watch.Wait()
	return errors.Join(err, d.doorbell.Close())
}

// remoteContext is a context in the server.
type remoteContext struct {
	d  *driver
	id uint32
}

func (c *remoteContext) ask(req request, with ...*os.File) (*reply, error) {
	req.Context = c.id
	return c.d.none(&req, with...)
}

// Alloc allocates zeroed memory.
func (c *remoteContext) Alloc(size uint64) (gpu.Ptr, error) {
	r, err := c.ask(request{Op: opAlloc, Size: size})
	if err != nil {
		return 0, err
	}
	return r.Ptr, nil
}

// AllocAt allocates zeroed memory at an address.
func (c *remoteContext) AllocAt(p gpu.Ptr, size uint64) (offset uint64, err error) {
	r, err := c.ask(request{Op: opAllocAt, Ptr: p, Size: size})
	if err != nil {
		return 0, err
	}
	return r.Offset, nil
}

// Free frees memory.
func (c *remoteContext) Free(p gpu.Ptr) error {
	_, err := c.ask(request{Op: opFree, Ptr: p})
	return err
}

// Memory returns the free and the total memory.
func (c *remoteContext) Memory() (free, total uint64, err error) {
	r, err := c.ask(request{Op: opMemory})
	if err != nil {
		return 0, 0, err
	}
	return r.Free, r.Size, nil
}

// LoadModule compiles PTX. The server gives up if this program disconnects.
func (c *remoteContext) LoadModule(_ context.Context, image []byte, at gpu.Ptr) (soft.ModuleInfo, error) {
	if len(image) > maxImage {
		return soft.ModuleInfo{}, fmt.Errorf("module of %d bytes: want at most %d: %w", len(image), maxImage, gpu.ErrInvalidModule)
	}
	f, err := writeMemfd(image)
	if err != nil {
		return soft.ModuleInfo{}, err
	}
	r, err := c.ask(request{Op: opLoad, Ptr: at}, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return soft.ModuleInfo{}, err
	}
	if r.Module == nil {
		return soft.ModuleInfo{}, errors.New("load was answered without a module")
	}
	return *r.Module, nil
}

// UnloadModule unloads a module.
func (c *remoteContext) UnloadModule(id uint32) error {
	_, err := c.ask(request{Op: opUnload, ID: id})
	return err
}

// Global returns a variable of a module.
func (c *remoteContext) Global(module uint32, name string) (gpu.Ptr, uint64, error) {
	r, err := c.ask(request{Op: opGlobal, ID: module, Name: name})
	if err != nil {
		return 0, 0, err
	}
	return r.Ptr, r.Size, nil
}

// AddTexture returns the handle of a texture or surface.
func (c *remoteContext) AddTexture(t texture.Texture) (uint64, error) {
	req := request{Op: opTexture, Texture: &t}
	for i, b := range t.Border {
		req.Border[i] = math.Float32bits(b)
	}
	t.Border = [4]float32{}
	r, err := c.ask(req)
	if err != nil {
		return 0, err
	}
	return r.Handle, nil
}

// DropTexture ends a texture or surface.
func (c *remoteContext) DropTexture(handle uint64) error {
	_, err := c.ask(request{Op: opDropTexture, Handle: handle})
	return err
}

// Reference returns the address of the handle in a module's variable.
func (c *remoteContext) Reference(module uint32, name string) (gpu.Ptr, bool, error) {
	r, err := c.ask(request{Op: opReference, ID: module, Name: name})
	if err != nil {
		return 0, false, err
	}
	return r.Ptr, r.Surface, nil
}

// NewChannel makes a channel.
func (c *remoteContext) NewChannel() (soft.ChannelInfo, error) {
	r, f, err := c.d.one(&request{Op: opNewChannel, Context: c.id})
	if err != nil {
		return soft.ChannelInfo{}, err
	}
	return soft.ChannelInfo{ID: r.ID, Ring: f}, nil
}

// CloseChannel closes a channel.
func (c *remoteContext) CloseChannel(id uint32) error {
	_, err := c.ask(request{Op: opCloseChannel, ID: id})
	return err
}

// Printf returns the output of kernels.
func (c *remoteContext) Printf(max int) ([]byte, error) {
	r, err := c.ask(request{Op: opPrintf, Max: max})
	if err != nil {
		return nil, err
	}
	return r.Text, nil
}

// Fault returns the error that poisoned the context.
func (c *remoteContext) Fault() error {
	_, err := c.ask(request{Op: opFault})
	return err
}

// MapHost maps a part of a file.
func (c *remoteContext) MapHost(f *os.File, offset, size uint64, at gpu.Ptr) (gpu.Ptr, error) {
	r, err := c.ask(request{Op: opMapHost, Offset: offset, Size: size, Ptr: at}, f)
	if err != nil {
		return 0, err
	}
	return r.Ptr, nil
}

// MapEvents maps the event area.
func (c *remoteContext) MapEvents(f *os.File) (gpu.Ptr, error) {
	r, err := c.ask(request{Op: opMapEvents}, f)
	if err != nil {
		return 0, err
	}
	return r.Ptr, nil
}

// RegisterEvents registers an event kernel.
func (c *remoteContext) RegisterEvents(k soft.EventKernel) error {
	_, err := c.ask(request{Op: opRegister, Events: &k})
	return err
}

// UnregisterEvents unregisters an event kernel.
func (c *remoteContext) UnregisterEvents(number int) (gone bool, err error) {
	if number < 0 {
		return false, fmt.Errorf("unregister event kernel %d: %w", number, gpu.ErrNotFound)
	}
	r, err := c.ask(request{Op: opUnregister, ID: uint32(number)})
	if err != nil {
		return false, err
	}
	return r.Gone, nil
}

// HoldEvents keeps the context's event kernels off the GPU, or no longer does.
func (c *remoteContext) HoldEvents(on bool) error {
	_, err := c.ask(request{Op: opHoldEvents, On: on})
	return err
}

// EventCounts returns the counts of the context's event kernels.
func (c *remoteContext) EventCounts() (soft.EventCounts, error) {
	r, err := c.ask(request{Op: opEventCounts})
	if err != nil {
		return soft.EventCounts{}, err
	}
	return r.Events, nil
}

// Limit returns a limit of the context.
func (c *remoteContext) Limit(l gpu.Limit) (uint64, error) {
	r, err := c.ask(request{Op: opLimit, Limit: l})
	if err != nil {
		return 0, err
	}
	return r.Size, nil
}

// SetLimit sets a limit of the context.
func (c *remoteContext) SetLimit(l gpu.Limit, value uint64) error {
	_, err := c.ask(request{Op: opSetLimit, Limit: l, Size: value})
	return err
}

// SetEnabled takes the context's channels off the GPU or puts them back.
func (c *remoteContext) SetEnabled(on bool) error {
	_, err := c.ask(request{Op: opEnable, On: on})
	return err
}

// SetTimeslice sets the context's time slice.
func (c *remoteContext) SetTimeslice(s time.Duration) error {
	_, err := c.ask(request{Op: opSlice, Slice: s})
	return err
}

// SetKernelTimeLimit changes how long the context's kernels may run.
func (c *remoteContext) SetKernelTimeLimit(d time.Duration) error {
	_, err := c.ask(request{Op: opTimeLimit, TimeLimit: d})
	return err
}

// Close closes the context. It succeeds if the server is gone.
func (c *remoteContext) Close() error {
	_, err := c.ask(request{Op: opCloseContext})
	if errors.Is(err, gpu.ErrLost) {
		return nil
	}
	return err
}

func dupCloexec(f *os.File) (int, error) { return unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0) }
