package abilities

import (
	"context"
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/accounting"
	"vgpud/cmd/internal/ability"
	"vgpud/gpu"
)

// plain is a GPU without optional abilities.
type plain struct{ gpu.Device }

func (plain) NewContext(context.Context, gpu.ContextOptions) (gpu.Context, error) {
	return &bare{}, nil
}

type bare struct {
	gpu.Context
	closed int
}

func (b *bare) Close() error { b.closed++; return nil }

// able is a GPU with all abilities, unless an error is set. It records the calls.
type able struct {
	plain
	said                                         []string
	events, source, handles, control, off, slice error
	drop                                         bool
}

func (a *able) say(what string, err error) error {
	a.said = append(a.said, what)
	return err
}

func (a *able) NewContext(context.Context, gpu.ContextOptions) (gpu.Context, error) {
	return &handled{able: a}, a.say("context", nil)
}

func (a *able) Events() (accounting.EventSource, error) { return record{a}, a.events }

func (a *able) Source() (accounting.Source, error) { return record{a}, a.source }

func (a *able) Control(gpu.Handles) (gpu.Control, error) { return a, a.say("control", a.control) }

func (a *able) Suspend() error { return a.say("suspend", a.off) }
func (a *able) Resume() error  { return a.say("resume", nil) }
func (a *able) SetTimeslice(d time.Duration) error {
	return a.say("slice "+d.String(), a.slice)
}
func (a *able) Close() error { return a.say("close", nil) }

type handled struct {
	gpu.Context
	able *able
}

func (c *handled) Handles() (gpu.Handles, error) { return gpu.Handles{}, c.able.handles }
func (c *handled) Close() error                  { return c.able.say("close context", nil) }

// record is both kinds of accounting's sources.
type record struct{ a *able }

func (r record) Sample() (accounting.Status, error) { return accounting.Status{}, nil }
func (r record) Now() (time.Duration, error)        { return 0, nil }
func (r record) Close() error                       { return nil }
func (r record) Read([]accounting.Switch) (int, error) {
	if r.a.drop {
		return 0, accounting.ErrDropped
	}
	return 0, nil
}

// states returns the abilities' names and states, without times.
func states(all ...[]ability.Ability) map[string]string {
	m := make(map[string]string)
	for _, as := range all {
		for _, a := range as {
			m[a.Name] = string(a.State)
			if a.State != ability.Present {
				m[a.Name] += ": " + a.What
			}
			if (a.State == ability.Present) != (a.Do == "") {
				m[a.Name] += " and yet to do: " + a.Do
			}
		}
	}
	return m
}

func TestAbilities(t *testing.T) {
	no := errors.New("the kernel is locked down")
	for _, c := range []struct {
		name string
		gpu  gpu.Device
		want map[string]string
		said []string
	}{
		{
			name: "all", gpu: &able{drop: true},
			want: map[string]string{Events: "yes", Registers: "yes", Suspension: "yes", TimeSlices: "yes"},
			said: []string{"context", "control", "suspend", "resume", "slice 2.048ms", "close", "close context"},
		},
		{
			name: "none", gpu: plain{},
			want: map[string]string{Events: "no: this kind of GPU does not have it", Registers: "no: this kind of GPU does not have it", Suspension: "no: this kind of GPU does not have it", TimeSlices: "no: this kind of GPU does not have it"},
		},
		{
			name: "a lockdown", gpu: &able{source: no},
			want: map[string]string{Events: "yes", Registers: "no: the kernel is locked down", Suspension: "yes", TimeSlices: "yes"},
			said: []string{"context", "control", "suspend", "resume", "slice 2.048ms", "close", "close context"},
		},
		{
			name: "no way to a context", gpu: &able{events: no, handles: no},
			want: map[string]string{Events: "no: the kernel is locked down", Registers: "yes", Suspension: "no: find the context's channels: the kernel is locked down", TimeSlices: "no: find the context's channels: the kernel is locked down"},
			said: []string{"context", "close context"},
		},
		{
			// The suspension is always undone. Whatever became of the suspension, it is undone.
			name: "a suspension that fails", gpu: &able{off: no, slice: no},
			want: map[string]string{Events: "yes", Registers: "yes", Suspension: "no: the kernel is locked down", TimeSlices: "no: the kernel is locked down"},
			said: []string{"context", "control", "suspend", "resume", "slice 2.048ms", "close", "close context"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := states(OfMonitor(c.gpu), OfContext(t.Context(), c.gpu, c.gpu))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if a, ok := c.gpu.(*able); ok {
				if diff := cmp.Diff(c.said, a.said); diff != "" {
					t.Errorf("what was done, -want +got:\n%s", diff)
				}
			}
		})
	}
}

// TestASuspensionSaysHowLongItTook checks that the time is shown, since a suspended guest waits for
// it.
func TestASuspensionSaysHowLongItTook(t *testing.T) {
	g := &able{}
	for _, a := range OfContext(t.Context(), g, g) {
		if a.Name == Suspension && !regexp.MustCompile(`^a context's channels leave the GPU in [0-9.]+[µm]?s, and return in `).MatchString(a.What) {
			t.Errorf("%s", a.What)
		}
	}
}
