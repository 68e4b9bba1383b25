package rm

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/gpu/nvidia/rm/abi"
)

// MaxChannels bounds how many channels a context may have that is controlled, so that
// who hands over handles can't make much work of it. libcuda makes 128 at most.
const MaxChannels = 1024

// The time slices that SetTimeslice sets. Below about 50 µs a group of an H100 makes no
// progress at all, and above a second the hardware takes something else.
const (
	MinTimeslice = 100 * time.Microsecond
	MaxTimeslice = time.Second
)

// Control is power over one CUDA context. It is used by one goroutine at a time.
type Control struct {
	call    caller
	objects Objects
	batches []abi.NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS
}

// ControlOptions say what is controlled. The zero value is usable.
type ControlOptions struct {
	// ComputeOnly leaves the channels of copy engines alone: copies go on while the
	// context is disabled.
	ComputeOnly bool
}

// NewControl takes control of the context that o names, through n, an open control node
// of the context's process. It takes n over, also where it fails; it checks that the
// objects are what they are said to be and of a client of n's, so that nothing else
// can be reached by them.
func NewControl(n Node, o Objects, opt ControlOptions) (*Control, error) {
	c := &Control{call: caller{node: n, client: o.Client}, objects: o}
	if err := c.check(); err != nil {
		return nil, errors.Join(fmt.Errorf("control a CUDA context by its handles: %w", err), n.Close())
	}
	// Kernels before copies: on an H100 they stand still 0.32 ms after the call begins
	// then, and 0.58 ms with all channels in one call.
	c.batches = batches(o.Client, o.Channels)
	if !opt.ComputeOnly {
		c.batches = append(c.batches, batches(o.Client, o.Copies)...)
	}
	return c, nil
}

// batches makes channels into calls, each of as many as one takes.
func batches(client abi.Handle, channels []abi.Handle) []abi.NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS {
	var calls []abi.NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS
	for chunk := range slices.Chunk(channels, abi.NV2080_CTRL_FIFO_DISABLE_CHANNELS_MAX_ENTRIES) {
		b := abi.NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS{Count: uint32(len(chunk))}
		for i, ch := range chunk {
			b.Clients[i], b.Channels[i] = client, ch
		}
		calls = append(calls, b)
	}
	return calls
}

// check asks the driver about every object.
func (c *Control) check() error {
	o := &c.objects
	if n := len(o.Channels) + len(o.Copies); len(o.Channels) == 0 || n > MaxChannels {
		return fmt.Errorf("%d channels of %d for compute: want 1 to %d", n, len(o.Channels), MaxChannels)
	}
	if err := c.call.known(); err != nil {
		return err
	}
	is := func(h abi.Handle, what string, ok func(abi.Class) bool) error {
		class, err := c.call.class(h)
		if err == nil && !ok(class) {
			err = fmt.Errorf("object %#x of class %#x is no %s", uint32(h), uint32(class), what)
		}
		return err
	}
	if err := is(o.Subdevice, "subdevice", func(k abi.Class) bool { return k == abi.NV20_SUBDEVICE_0 }); err != nil {
		return err
	}
	if err := is(o.Group, "channel group", func(k abi.Class) bool { return k == abi.KEPLER_CHANNEL_GROUP_A }); err != nil {
		return err
	}
	for _, h := range slices.Concat(o.Channels, o.Copies) {
		if err := is(h, "channel", abi.Class.Channel); err != nil {
			return err
		}
	}
	return nil
}

// Disable takes the context's channels off the GPU and keeps them off, what runs
// included. The driver counts disables for each channel, whoever makes them, and keeps
// them when their caller ends. Where the driver refuses some of the channels, those
// before them are enabled again.
func (c *Control) Disable() error {
	for i, b := range c.batches {
		if err := c.set(b, true); err != nil {
			for _, done := range c.batches[:i] {
				err = errors.Join(err, c.set(done, false))
			}
			return err
		}
	}
	return nil
}

// Enable takes one Disable back. One too many does no harm. All channels are tried.
func (c *Control) Enable() error {
	var errs []error
	for _, b := range c.batches {
		errs = append(errs, c.set(b, false))
	}
	return errors.Join(errs...)
}

func (c *Control) set(b abi.NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS, disable bool) error {
	b.Disable = disable
	what := "enable channels"
	if disable {
		what = "disable channels"
	}
	return c.call.control(what, c.objects.Subdevice, abi.NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS, &b)
}

// SetTimeslice sets how long the compute group runs before the next one's turn. The
// driver takes whole microseconds, the hardware steps of 1.024 µs.
func (c *Control) SetTimeslice(d time.Duration) error {
	if d < MinTimeslice || d > MaxTimeslice {
		return fmt.Errorf("time slice of %v: want %v to %v", d, MinTimeslice, MaxTimeslice)
	}
	return c.call.control("set a time slice", c.objects.Group, abi.NVA06C_CTRL_CMD_SET_TIMESLICE, &abi.NVA06C_CTRL_TIMESLICE_PARAMS{Microseconds: uint64(d / time.Microsecond)})
}

// Timeslice is what was set, or the driver's own choice.
func (c *Control) Timeslice() (time.Duration, error) {
	var p abi.NVA06C_CTRL_TIMESLICE_PARAMS
	err := c.call.control("get a time slice", c.objects.Group, abi.NVA06C_CTRL_CMD_GET_TIMESLICE, &p)
	return time.Duration(p.Microseconds) * time.Microsecond, err
}

// Preempt takes the compute group off the engine and waits until it is. It comes back at
// its next turn, at once where nobody else wants the engine.
func (c *Control) Preempt() error {
	return c.call.control("preempt a channel group", c.objects.Group, abi.NVA06C_CTRL_CMD_PREEMPT, &abi.NVA06C_CTRL_PREEMPT_PARAMS{Wait: true})
}

// HardwareID is the compute group's number on its runlist, which the GPU's status
// registers show.
func (c *Control) HardwareID() (uint16, error) {
	var p abi.NVA06C_CTRL_GET_INFO_PARAMS
	if err := c.call.control("get a channel group's number", c.objects.Group, abi.NVA06C_CTRL_CMD_GET_INFO, &p); err != nil {
		return 0, err
	}
	return uint16(p.ID), nil
}

// Share is what another process needs for a Control of its own: the names, and a
// descriptor of the file that they belong to, which the caller closes. Whoever keeps one
// keeps the memory of the context's process too, beyond its end.
func (c *Control) Share() (Objects, *os.File, error) {
	fd, err := unix.FcntlInt(uintptr(c.call.node.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return Objects{}, nil, fmt.Errorf("duplicate a descriptor of the driver: %w", err)
	}
	return c.objects, os.NewFile(uintptr(fd), ControlNode), nil
}

// Close lets go of the process's file. What is disabled stays so.
func (c *Control) Close() error { return c.call.node.Close() }
