package soft

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/accounting"
	"vgpud/accounting/nvreg"
	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/internal/memfd"
)

// Device implements gpu.Device for a soft GPU over any Driver. In addition it can suspend contexts,
// set their time slices, provide a status source, and report its exact usage. mu guards contexts,
// maps and closed.
type Device struct {
	d     Driver
	props gpu.Properties

	mu       sync.Mutex
	contexts map[*deviceContext]struct{}
	maps     [][]byte // of the register file
	closed   bool
}

var (
	_ gpu.Device    = (*Device)(nil)
	_ gpu.Sampled   = (*Device)(nil)
	_ gpu.Suspender = (*Device)(nil)
	_ gpu.Slicer    = (*Device)(nil)
	_ gpu.Losable   = (*Device)(nil)
)

// NewDevice returns a device over a driver, and takes over the driver.
func NewDevice(d Driver) *Device {
	return &Device{d: d, props: d.Properties(), contexts: map[*deviceContext]struct{}{}}
}

// NewLocal starts a soft GPU in this process, for tests. Close ends it.
func NewLocal(o Options) (*Device, error) {
	e, err := Start(o)
	if err != nil {
		return nil, err
	}
	return NewDevice(&localDriver{Engine: e}), nil
}

// localDriver is the driver of an engine in the same process. Closing it closes the engine.
type localDriver struct{ *Engine }

// Kick wakes the pacing thread.
func (d *localDriver) Kick() { d.own.ring() }

// Properties returns the GPU's properties.
func (d *Device) Properties() gpu.Properties { return d.props }

// Now returns the GPU's time, which is the host's CLOCK_MONOTONIC.
func (d *Device) Now() (time.Duration, error) {
	if err := d.lost(); err != nil {
		return 0, err
	}
	return clock.Real{}.Now(), nil
}

// Lost returns a channel that is closed when the GPU is gone.
func (d *Device) Lost() <-chan struct{} { return d.d.Lost() }

func (d *Device) lost() error {
	select {
	case <-d.d.Lost():
		return fmt.Errorf("soft GPU: %w", gpu.ErrLost)
	default:
		return nil
	}
}

// NewContext makes a context.
func (d *Device) NewContext(ctx context.Context, o gpu.ContextOptions) (_ gpu.Context, err error) {
	c := &deviceContext{d: d, account: account{budget: o.Budget}, channels: map[*channel]struct{}{}}
	if err := c.account.reserve(ContextBytes, "a context"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.account.close()
		}
	}()
	cd, info, err := d.d.NewContext(ctx, o)
	if err != nil {
		return nil, err
	}
	var mem []byte
	if err = memfd.Check(info.Memory, int64(info.Size)); err == nil {
		mem, err = unix.Mmap(int(info.Memory.Fd()), 0, int(info.Size), unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_SHARED|unix.MAP_NORESERVE)
	}
	if cerr := info.Memory.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map a context's memory: %w", err), cd.Close())
	}
	c.cd, c.info, c.mem = cd, info, mem
	d.mu.Lock()
	closed := d.closed
	if !closed {
		d.contexts[c] = struct{}{}
	}
	d.mu.Unlock()
	if closed {
		return nil, errors.Join(fmt.Errorf("soft GPU is closed: %w", gpu.ErrLost), c.Close())
	}
	return c, nil
}

// Source returns a status source that reads the GPU's registers, like one over a mapped BAR0.
func (d *Device) Source() (accounting.Source, error) {
	f, err := d.d.Registers()
	if err != nil {
		return nil, err
	}
	mem, space, err := MapRegisters(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.maps = append(d.maps, mem)
	d.mu.Unlock()
	return OpenSource(space)
}

// OpenSource returns a status source over a mapped register file.
func OpenSource(space nvreg.Space) (accounting.Source, error) {
	return accounting.OpenRegisters(space, clock.Real{}.Now, accounting.RegisterOptions{})
}

// RegisterFile returns the register file. The caller closes it.
func (d *Device) RegisterFile() (*os.File, error) { return d.d.Registers() }

// Usage returns the GPU's exact usage.
func (d *Device) Usage() (Usage, error) { return d.d.Usage() }

// Suspend takes a context's channels off the GPU. With time slices a launch that executes is
// preempted; otherwise it runs to its end.
func (d *Device) Suspend(c gpu.Context) error {
	sc, err := d.own(c)
	if err != nil {
		return err
	}
	return sc.cd.SetEnabled(false)
}

// Resume puts a context's channels back.
func (d *Device) Resume(c gpu.Context) error {
	sc, err := d.own(c)
	if err != nil {
		return err
	}
	return sc.cd.SetEnabled(true)
}

// SetTimeslice sets how long a context runs before another context's turn.
func (d *Device) SetTimeslice(c gpu.Context, slice time.Duration) error {
	sc, err := d.own(c)
	if err != nil {
		return err
	}
	return sc.cd.SetTimeslice(slice)
}

func (d *Device) own(c gpu.Context) (*deviceContext, error) {
	sc, ok := c.(*deviceContext)
	if !ok || sc.d != d {
		return nil, fmt.Errorf("context %T is not one of this GPU", c)
	}
	return sc, nil
}

// Close closes all contexts and the driver. Sources must not be used afterwards.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	var contexts []*deviceContext
	for c := range d.contexts {
		contexts = append(contexts, c)
	}
	maps := d.maps
	d.maps = nil
	d.mu.Unlock()
	var errs []error
	for _, c := range contexts {
		errs = append(errs, c.Close())
	}
	errs = append(errs, d.d.Close())
	for _, m := range maps {
		errs = append(errs, unix.Munmap(m))
	}
	return errors.Join(errs...)
}
