package nvidia

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/rm"
)

// Beneath returns the interface to the kernel driver below CUDA, for Options.Kernel. It returns an
// error if the driver's calls are not known. root is the root of the file system.
func Beneath(root fs.FS) (rm.Kernel, error) {
	if err := knownDriver(root); err != nil {
		return nil, err
	}
	return rm.Linux{}, nil
}

// knownDriver returns an error unless the driver's calls are known.
func knownDriver(root fs.FS) error {
	version, err := rm.DriverVersion(root)
	if err != nil {
		return err
	}
	if nearest, known := rm.KnownDriver(version); !known {
		return fmt.Errorf("NVIDIA driver %s is not known, the nearest known one is %s: install that, or set allow_unknown_driver and do without its abilities: %w",
			version, nearest, gpu.ErrUnsupported)
	}
	return nil
}

// channelControl controls a context's own channels through the kernel driver.
type channelControl struct {
	mu      sync.Mutex
	control *rm.Control
	why     error // why control is nil
}

// handles finds the context's channels among the driver's objects, and the number of their group.
// The context works without them too.
func (c *Context) handles() error {
	g := &c.channelControl
	if c.d.o.Kernel == nil {
		g.why = fmt.Errorf("the kernel driver below CUDA is not in use: %w", gpu.ErrUnsupported)
		return nil
	}
	own, err := rm.FindOwn(c.d.o.Kernel, c.d.kernelClient)
	if err == nil {
		g.control, err = rm.NewControl(own.Node, own.Objects, rm.ControlOptions{})
	}
	if err != nil {
		g.why = fmt.Errorf("%w: %w", err, gpu.ErrUnsupported)
		c.d.o.Log.Warn("GPU context can't be suspended by the hardware", "label", c.o.Label, "err", err)
		return nil
	}
	id, err := g.control.HardwareID()
	if err != nil {
		c.d.o.Log.Warn("GPU context's number on the hardware is not known", "label", c.o.Label, "err", err)
		return nil
	}
	c.group = gpu.GroupID(id)
	return nil
}

// do calls f with the context's control.
func (g *channelControl) do(f func(*rm.Control) error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.control == nil {
		return g.why
	}
	return f(g.control)
}

// close releases the channels.
func (g *channelControl) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.control == nil {
		return nil
	}
	err := g.control.Close()
	g.control, g.why = nil, fmt.Errorf("context is closed: %w", gpu.ErrLost)
	return err
}

// Handles returns the context's channels for a process that is to control it: one descriptor of the
// control node that libcuda opened, and the objects' handles.
func (c *Context) Handles() (h gpu.Handles, err error) {
	err = c.channelControl.do(func(k *rm.Control) error {
		objects, f, err := k.Share()
		if err != nil {
			return err
		}
		h.Files = []*os.File{f}
		h.Names, err = json.Marshal(objects)
		return err
	})
	if err != nil {
		return gpu.Handles{}, fmt.Errorf("hand over a context's channels: %w", err)
	}
	return h, nil
}

// Suspend takes the context's channels off the GPU, including running kernels and copies. It may be
// called from any goroutine.
func (d *Device) Suspend(c gpu.Context) error {
	return d.controlOf(c, "suspend", (*rm.Control).Disable)
}

// Resume puts the channels back. It undoes another process's suspension as well as its own, and
// does no harm without one.
func (d *Device) Resume(c gpu.Context) error { return d.controlOf(c, "resume", (*rm.Control).Enable) }

// SetTimeslice sets the time that the context's kernels run before the next context's turn.
func (d *Device) SetTimeslice(c gpu.Context, t time.Duration) error {
	return d.controlOf(c, "set the time slice of", func(k *rm.Control) error { return k.SetTimeslice(t) })
}

func (d *Device) controlOf(c gpu.Context, what string, f func(*rm.Control) error) error {
	x, ok := c.(*Context)
	if !ok {
		return fmt.Errorf("%s a context: %T is not this device's", what, c)
	}
	err := x.channelControl.do(f)
	if err == nil {
		return nil
	}
	if rm.Lost(err) {
		d.lose()
		err = fmt.Errorf("%w: %w", err, gpu.ErrLost)
	}
	return fmt.Errorf("%s a context: %w", what, err)
}
