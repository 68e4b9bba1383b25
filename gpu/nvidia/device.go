package nvidia

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
	"vgpud/gpu/nvidia/rm"
)

// Options select the GPU to open and how.
type Options struct {
	// Device selects one of the GPUs that this process sees by UUID, PCI address or index, as for
	// [Find]. The empty string selects the only one.
	Device string
	// Connections is the number of hardware channels that a context's streams share, 2 to 32; 0
	// keeps CUDA's default, 8. Streams that share one wait for one another. With fewer channels a
	// context is disabled faster, and the driver attributes context switches among fewer channels.
	// It applies to the whole process, and takes effect when the driver is opened.
	Connections int
	// Driver defaults to libcuda.
	Driver Driver
	// Clock is the host's clock, by default the real one.
	Clock clock.Clock
	// GPUClock reads the GPU's clock without the GPU's help, so that it can be read while the
	// context is off the GPU. By default it is Kernel's clock or, without Kernel, extrapolated from
	// the times of commands.
	GPUClock func() (time.Duration, error)
	// Kernel reaches the kernel driver below CUDA ([Beneath]). Only it can take a context's
	// channels off the GPU and export them to another process. It also reads the GPU's clock.
	// Without it contexts have no handles, and the properties say that kernels can't be preempted.
	Kernel rm.Kernel
	// CaptureOutput takes over the process's standard output, where the driver writes the output of
	// kernels. Otherwise that output is not available.
	CaptureOutput bool
	Log           *slog.Logger
}

// Device is one GPU in an executor's process. It implements [gpu.Device].
type Device struct {
	o            Options
	drv          Driver
	dev          cuda.Device
	info         Info
	out          output
	lost         chan struct{}
	loss         sync.Once
	mu           sync.Mutex
	over         bool
	ctx          *Context
	kernelClient *rm.Client // for the clock; nil: none
	now          readings
}

var (
	_ gpu.Device        = (*Device)(nil)
	_ gpu.Losable       = (*Device)(nil)
	_ gpu.Suspender     = (*Device)(nil)
	_ gpu.Slicer        = (*Device)(nil)
	_ gpu.HostRegistrar = (*Context)(nil)
	_ gpu.Handled       = (*Context)(nil)
	_ gpu.Windowed      = (*Context)(nil)
	_ gpu.Pausing       = (*Context)(nil)
	_ gpu.Hanging       = (*Context)(nil)
	_ gpu.Pinner        = (*Context)(nil)
	_ gpu.Prompt        = (*Channel)(nil)
)

// Open opens a GPU. The caller must close it.
func Open(o Options) (*Device, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = clock.Real{}
	}
	if o.Driver == nil {
		if err := setEnvironment(o.Connections); err != nil {
			return nil, err
		}
		l, err := cuda.Open()
		if err != nil {
			return nil, err
		}
		o.Driver = l
	}
	if err := o.Driver.Init(); err != nil {
		return nil, fmt.Errorf("start the CUDA driver: %w", meaning(err))
	}
	all, err := List(o.Driver)
	if err != nil {
		return nil, err
	}
	info, err := Find(all, o.Device)
	if err != nil {
		return nil, err
	}
	info.Properties.Preempts = o.Kernel != nil
	d := &Device{o: o, drv: o.Driver, info: info, lost: make(chan struct{})}
	if d.dev, err = d.drv.DeviceGet(info.Index); err != nil {
		return nil, fmt.Errorf("open GPU %d: %w", info.Index, meaning(err))
	}
	if o.CaptureOutput {
		out, err := capture()
		if err != nil {
			return nil, err
		}
		d.out = out
	}
	if o.Kernel != nil && o.GPUClock == nil {
		d.readClock()
	}
	return d, nil
}

// environment holds variables that the driver reads when it is opened, unless the operator has set
// them.
var environment = map[string]string{
	// A kernel that is loaded lazily, at its first launch, waits in that launch for running
	// kernels.
	"CUDA_MODULE_LOADING": "EAGER",
}

// setEnvironment sets the variables that the driver reads when it is opened. connections is
// Options.Connections.
func setEnvironment(connections int) error {
	if connections > 0 {
		if err := os.Setenv("CUDA_DEVICE_MAX_CONNECTIONS", strconv.Itoa(connections)); err != nil {
			return fmt.Errorf("set up the CUDA driver: %w", err)
		}
	}
	for name, value := range environment {
		if _, set := os.LookupEnv(name); set {
			continue
		}
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("set up the CUDA driver: %w", err)
		}
	}
	return nil
}

// readClock makes Now read the clock through the kernel driver.
func (d *Device) readClock() {
	g, err := rm.Lookup(os.DirFS("/"), d.info.PCI)
	if err == nil {
		d.kernelClient, err = rm.Open(d.o.Kernel, g)
	}
	if err != nil {
		d.o.Log.Warn("the GPU's clock is extrapolated while nothing runs", "err", err)
		return
	}
	d.o.GPUClock = d.kernelClient.Now
}

// Properties returns the GPU's properties.
func (d *Device) Properties() gpu.Properties { return d.info.Properties }

// Info returns the GPU's entry in [List].
func (d *Device) Info() Info { return d.info }

// Now returns the GPU's clock. If only commands read the clock, Now needs a context.
func (d *Device) Now() (time.Duration, error) {
	now := d.o.Clock.Now()
	if d.o.GPUClock != nil {
		t, err := d.now.at(now, d.o.Clock, d.o.GPUClock)
		if rm.Lost(err) {
			d.lose()
			err = fmt.Errorf("%w: %w", err, gpu.ErrLost)
		}
		return t, err
	}
	d.mu.Lock()
	c := d.ctx
	d.mu.Unlock()
	if c == nil {
		return 0, errors.New("read the GPU's clock: no context has read it yet")
	}
	return c.clock.estimate(now), nil
}

// NewContext makes the process's context. There can be one at a time.
func (d *Device) NewContext(_ context.Context, o gpu.ContextOptions) (gpu.Context, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.over:
		return nil, fmt.Errorf("new context: the device is closed: %w", gpu.ErrLost)
	case d.ctx != nil:
		return nil, errors.New("new context: this process has one, and a fault in one ends all of a process")
	}
	c, err := newContext(d, o)
	if err != nil {
		return nil, fmt.Errorf("new context on %s: %w", d.info.Properties.Name, err)
	}
	d.ctx = c
	return c, nil
}

// leave forgets a closed context.
func (d *Device) leave(c *Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx == c {
		d.ctx = nil
	}
}

// Lost is closed when the driver reports that the GPU is gone, or by Close.
func (d *Device) Lost() <-chan struct{} { return d.lost }

func (d *Device) lose() { d.loss.Do(func() { close(d.lost) }) }

// Close closes the context, if there is one, and releases the GPU.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.over {
		d.mu.Unlock()
		return nil
	}
	d.over = true
	c := d.ctx
	d.mu.Unlock()
	var errs []error
	if c != nil {
		errs = append(errs, c.Close())
	}
	if d.kernelClient != nil {
		errs = append(errs, d.kernelClient.Close())
	}
	if d.out != nil {
		errs = append(errs, d.out.Close())
	}
	d.lose()
	return errors.Join(errs...)
}
