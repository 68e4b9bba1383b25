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

// MaxChannels bounds the number of channels of a controlled context, so that a process that sends
// handles can't cause much work. libcuda makes 128 at most.
const MaxChannels = 1024

// The range of time slices for SetTimeslice. Below about 50 µs a group of an H100 makes no progress
// at all, and above a second the hardware uses another value.
const (
	MinTimeslice = 100 * time.Microsecond
	MaxTimeslice = time.Second
)

// Control controls one CUDA context. It must be used by one goroutine at a time.
type Control struct {
	call    caller
	objects Objects
	batches []abi.NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS
}

// ControlOptions select the controlled channels. The zero value is usable.
type ControlOptions struct {
	// ComputeOnly leaves the channels of copy engines alone: copies go on while the context is
	// disabled.
	ComputeOnly bool
}

// NewControl takes control of the context that o names, through n, an open control node of the
// context's process. It takes ownership of n, even if it fails. It checks that the objects are of
// the expected kinds and belong to a client of n, so that nothing else can be reached through them.
func NewControl(n Node, o Objects, opt ControlOptions) (*Control, error) {
	c := &Control{call: caller{node: n, client: o.Client}, objects: o}
	if err := c.check(); err != nil {
		return nil, errors.Join(fmt.Errorf("control a CUDA context by its handles: %w", err), n.Close())
	}
	// Kernels come before copies: on an H100 kernels then stop 0.32 ms after the call begins,
	// instead of 0.58 ms with all channels in one call.
	c.batches = batches(o.Client, o.Channels)
	if !opt.ComputeOnly {
		c.batches = append(c.batches, batches(o.Client, o.Copies)...)
	}
	return c, nil
}

// batches splits channels into calls with the most channels that a call takes.
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

// check verifies every object with the driver.
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

// Disable takes the context's channels off the GPU and keeps them off, including running work. The
// driver counts disables per channel, over all callers, and keeps them when their caller exits. If
// the driver refuses some of the channels, the ones before them are enabled again.
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

// Enable reverts one Disable. An extra Enable does no harm. It tries all channels.
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

// SetTimeslice sets the time that the compute group runs before the next one's turn. The driver
// takes whole microseconds, the hardware steps of 1.024 µs.
func (c *Control) SetTimeslice(d time.Duration) error {
	if d < MinTimeslice || d > MaxTimeslice {
		return fmt.Errorf("time slice of %v: want %v to %v", d, MinTimeslice, MaxTimeslice)
	}
	return c.call.control("set a time slice", c.objects.Group, abi.NVA06C_CTRL_CMD_SET_TIMESLICE, &abi.NVA06C_CTRL_TIMESLICE_PARAMS{Microseconds: uint64(d / time.Microsecond)})
}

// Timeslice returns the time slice, as set or the driver's default.
func (c *Control) Timeslice() (time.Duration, error) {
	var p abi.NVA06C_CTRL_TIMESLICE_PARAMS
	err := c.call.control("get a time slice", c.objects.Group, abi.NVA06C_CTRL_CMD_GET_TIMESLICE, &p)
	return time.Duration(p.Microseconds) * time.Microsecond, err
}

// Preempt takes the compute group off the engine and waits until it is off. The group runs again at
// its next turn, at once if no other group wants the engine.
func (c *Control) Preempt() error {
	return c.call.control("preempt a channel group", c.objects.Group, abi.NVA06C_CTRL_CMD_PREEMPT, &abi.NVA06C_CTRL_PREEMPT_PARAMS{Wait: true})
}

// HardwareID returns the compute group's number on its runlist, which the GPU's status registers
// show.
func (c *Control) HardwareID() (uint16, error) {
	var p abi.NVA06C_CTRL_GET_INFO_PARAMS
	if err := c.call.control("get a channel group's number", c.objects.Group, abi.NVA06C_CTRL_CMD_GET_INFO, &p); err != nil {
		return 0, err
	}
	return uint16(p.ID), nil
}

// Share returns what another process needs for a Control of its own: the handles, and a descriptor
// of the file to which they belong. The caller closes the descriptor. An open descriptor keeps the
// memory of the context's process allocated, even beyond that process's end.
func (c *Control) Share() (Objects, *os.File, error) {
	fd, err := unix.FcntlInt(uintptr(c.call.node.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return Objects{}, nil, fmt.Errorf("duplicate a descriptor of the driver: %w", err)
	}
	return c.objects, os.NewFile(uintptr(fd), ControlNode), nil
}

// Close closes the file of the context's process. Disabled channels stay disabled.
func (c *Control) Close() error { return c.call.node.Close() }
