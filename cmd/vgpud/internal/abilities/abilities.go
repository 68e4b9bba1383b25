// Package abilities finds out what a physical GPU lets vgpud do with it: by trying, on
// a context of its own that does nothing. It knows no kind of GPU, only what the
// interfaces of package gpu offer.
package abilities

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"vgpud/accounting"
	"vgpud/cmd/internal/ability"
	"vgpud/gpu"
)

// The abilities, in the order in which they are looked at.
const (
	// Events is the GPU's own record of context switches.
	Events = "events"
	// Registers are the status registers, which tell busy from idle.
	Registers = "registers"
	// Suspension takes a context's channels off the hardware.
	Suspension = "channel disable"
	// TimeSlices are a channel group's on the hardware.
	TimeSlices = "time slices"
)

// what they are good for, shown where they are not there.
const (
	withoutEvents     = "guests are accounted by the status registers, or else by what their own processes say"
	withoutRegisters  = "nothing to do where the GPU records its own context switches: accounting uses these"
	withoutSuspension = "a guest that is held runs what is on the GPU to its end; preemptible kernels leave all the same"
	withoutTimeSlices = "shares are held by suspensions alone"
)

// Watched are the abilities of a GPU as it is watched.
func Watched(m gpu.Monitor) []ability.Ability {
	return []ability.Ability{
		tried(Events, withoutEvents, func() (string, error) { return events(m) }),
		tried(Registers, withoutRegisters, func() (string, error) { return registers(m) }),
	}
}

// None is what a GPU is that can't be watched.
func None(err error) []ability.Ability {
	return append([]ability.Ability{failed(Events, withoutEvents, err), failed(Registers, withoutRegisters, err)}, Uncontrolled(err)...)
}

// Uncontrolled is what a GPU is whose contexts can't be taken control of.
func Uncontrolled(err error) []ability.Ability {
	return []ability.Ability{failed(Suspension, withoutSuspension, err), failed(TimeSlices, withoutTimeSlices, err)}
}

// failed is an ability that is not there, or not for this user.
func failed(name, do string, err error) ability.Ability {
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
		return ability.Hidden(name, err.Error(), "ask as root")
	}
	return ability.Missing(name, err.Error(), do)
}

// errLacking is of a GPU that has no such thing.
var errLacking = errors.New("this kind of GPU does not have it")

func tried(name, do string, try func() (string, error)) ability.Ability {
	what, err := try()
	if err != nil {
		return failed(name, do, err)
	}
	return ability.Here(name, "%s", what)
}

func events(m gpu.Monitor) (_ string, err error) {
	r, ok := m.(gpu.Recording)
	if !ok {
		return "", errLacking
	}
	s, err := r.Events()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if _, err := s.Read(make([]accounting.Switch, 64)); err != nil && !errors.Is(err, accounting.ErrDropped) {
		return "", err
	}
	return "the GPU's own record of context switches is read", nil
}

func registers(m gpu.Monitor) (_ string, err error) {
	r, ok := m.(gpu.Sampled)
	if !ok {
		return "", errLacking
	}
	s, err := r.Source()
	if err != nil {
		return "", err
	}
	if c, ok := s.(io.Closer); ok {
		defer func() { err = errors.Join(err, c.Close()) }()
	}
	if _, err := s.Sample(); err != nil {
		return "", err
	}
	return "the compute engine's status is read", nil
}

// Controlled are the abilities that take control of a context, tried on one of
// device's.
func Controlled(ctx context.Context, m gpu.Monitor, device gpu.Device) []ability.Ability {
	control, end, err := hold(ctx, m, device)
	if err != nil {
		return Uncontrolled(err)
	}
	defer end() // what goes wrong with it goes with this process
	return []ability.Ability{
		tried(Suspension, withoutSuspension, func() (string, error) { return suspend(control) }),
		tried(TimeSlices, withoutTimeSlices, func() (string, error) {
			return fmt.Sprintf("a context's is set to %v, what the driver gives", usualSlice), control.SetTimeslice(usualSlice)
		}),
	}
}

// usualSlice is what NVIDIA's driver gives a compute group.
const usualSlice = 2048 * time.Microsecond

// hold makes a context and takes control of it. end gives both back.
func hold(ctx context.Context, m gpu.Monitor, device gpu.Device) (_ gpu.Control, end func() error, err error) {
	controller, ok := m.(gpu.Controller)
	if !ok {
		return nil, nil, errLacking
	}
	c, err := device.NewContext(ctx, gpu.ContextOptions{Label: "doctor"})
	if err != nil {
		return nil, nil, fmt.Errorf("make a context to try it on: %w", err)
	}
	handled, ok := c.(gpu.Handled)
	if !ok {
		return nil, nil, errors.Join(errLacking, c.Close())
	}
	h, err := handled.Handles()
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("find the context's channels: %w", err), c.Close())
	}
	control, err := controller.Control(h)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("take control of the context: %w", err), c.Close())
	}
	return control, func() error { return errors.Join(control.Close(), c.Close()) }, nil
}

// suspend takes the context off the GPU and puts it back, whatever the first said.
func suspend(c gpu.Control) (string, error) {
	from := time.Now()
	off := c.Suspend()
	took := time.Since(from)
	if err := errors.Join(off, c.Resume()); err != nil {
		return "", err
	}
	return fmt.Sprintf("a context's channels are off the GPU in %v, and back in %v", took.Round(10*time.Microsecond), (time.Since(from) - took).Round(10*time.Microsecond)), nil
}
