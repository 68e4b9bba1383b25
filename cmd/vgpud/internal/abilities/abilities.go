// Package abilities finds out what a physical GPU lets vgpud do with it, by trying on a context of
// its own that has no work. It knows no kind of GPU, only the interfaces of package gpu.
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

// The abilities, in the order of the checks.
const (
	// Events is the GPU's own record of context switches.
	Events = "events"
	// Registers are the status registers, which tell busy from idle.
	Registers = "registers"
	// Suspension takes a context's channels off the hardware.
	Suspension = "channel disable"
	// TimeSlices sets a channel group's time slice on the hardware.
	TimeSlices = "time slices"
)

// The consequences, shown if the ability is missing.
const (
	withoutEvents     = "guests are accounted by the status registers, or by their own processes' reports"
	withoutRegisters  = "not needed if the GPU records its own context switches, which accounting then uses"
	withoutSuspension = "a suspended guest's kernels run on to their end, unless they are preemptible"
	withoutTimeSlices = "shares are enforced by suspensions alone"
)

// OfMonitor returns the abilities of a GPU that is monitored.
func OfMonitor(m gpu.Monitor) []ability.Ability {
	return []ability.Ability{
		tried(Events, withoutEvents, func() (string, error) { return events(m) }),
		tried(Registers, withoutRegisters, func() (string, error) { return registers(m) }),
	}
}

// NoMonitor returns the abilities of a GPU that can't be monitored.
func NoMonitor(err error) []ability.Ability {
	return append([]ability.Ability{failed(Events, withoutEvents, err), failed(Registers, withoutRegisters, err)}, NoContext(err)...)
}

// NoContext returns the abilities of a GPU whose contexts can't be controlled.
func NoContext(err error) []ability.Ability {
	return []ability.Ability{failed(Suspension, withoutSuspension, err), failed(TimeSlices, withoutTimeSlices, err)}
}

// failed returns an ability that is missing, or not available to this user.
func failed(name, do string, err error) ability.Ability {
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
		return ability.Undetermined(name, err.Error(), "run it as root")
	}
	return ability.Missing(name, err.Error(), do)
}

// errUnsupported means that the GPU has no such ability.
var errUnsupported = errors.New("this kind of GPU does not have it")

func tried(name, do string, try func() (string, error)) ability.Ability {
	what, err := try()
	if err != nil {
		return failed(name, do, err)
	}
	return ability.Available(name, "%s", what)
}

func events(m gpu.Monitor) (_ string, err error) {
	r, ok := m.(gpu.Recording)
	if !ok {
		return "", errUnsupported
	}
	s, err := r.Events()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if _, err := s.Read(make([]accounting.Switch, 64)); err != nil && !errors.Is(err, accounting.ErrDropped) {
		return "", err
	}
	return "the GPU's own record of context switches can be read", nil
}

func registers(m gpu.Monitor) (_ string, err error) {
	r, ok := m.(gpu.Sampled)
	if !ok {
		return "", errUnsupported
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
	return "the compute engine's status can be read", nil
}

// OfContext returns the abilities that control a context, tried on one of device's.
func OfContext(ctx context.Context, m gpu.Monitor, device gpu.Device) []ability.Ability {
	control, end, err := controlContext(ctx, m, device)
	if err != nil {
		return NoContext(err)
	}
	defer end() // an error is of no consequence: the process ends
	return []ability.Ability{
		tried(Suspension, withoutSuspension, func() (string, error) { return suspend(control) }),
		tried(TimeSlices, withoutTimeSlices, func() (string, error) {
			return fmt.Sprintf("a context's slice can be set to %v, the driver's default", usualSlice), control.SetTimeslice(usualSlice)
		}),
	}
}

// usualSlice is the default of NVIDIA's driver for a compute group.
const usualSlice = 2048 * time.Microsecond

// controlContext creates a context and takes control of it. end gives both back.
func controlContext(ctx context.Context, m gpu.Monitor, device gpu.Device) (_ gpu.Control, end func() error, err error) {
	controller, ok := m.(gpu.Controller)
	if !ok {
		return nil, nil, errUnsupported
	}
	c, err := device.NewContext(ctx, gpu.ContextOptions{Label: "doctor"})
	if err != nil {
		return nil, nil, fmt.Errorf("create a context to try it on: %w", err)
	}
	handled, ok := c.(gpu.Handled)
	if !ok {
		return nil, nil, errors.Join(errUnsupported, c.Close())
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

// suspend takes the context off the GPU and always puts it back.
func suspend(c gpu.Control) (string, error) {
	from := time.Now()
	off := c.Suspend()
	took := time.Since(from)
	if err := errors.Join(off, c.Resume()); err != nil {
		return "", err
	}
	return fmt.Sprintf("a context's channels leave the GPU in %v, and return in %v", took.Round(10*time.Microsecond), (time.Since(from) - took).Round(10*time.Microsecond)), nil
}
