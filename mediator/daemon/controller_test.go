package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vgpud/gpu"
	"vgpud/gpu/gputest"
	"vgpud/gpu/soft"
	"vgpud/mediator/ipc"
)

// controlledGPU is a GPU that does nothing and whose contexts can be controlled.
type controlledGPU struct {
	idleGPU
	*gputest.Driver
}

func (controlledGPU) Properties() gpu.Properties {
	return gpu.Properties{Name: "controlled", SMs: 4, Preempts: true}
}

// TestRubbishHandles: they cost their guest the ability to have its contexts controlled, and
// nothing else.
func TestRubbishHandles(t *testing.T) {
	driver := &gputest.Driver{}
	d := startDaemonOn(t, runDir(t), controlledGPU{Driver: driver})
	d.create("a")
	g := d.guest("a")
	handles := func(slot int) ipc.Message {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		m, err := ipc.NewMessage(ipc.KindHandles, ipc.Handles{Slot: slot, Names: gputest.Handles("x", f).Names}, f)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	good := handles(0)
	g.handleMessage(&good)
	for name, change := range map[string]func(*ipc.Message){
		"no name":        func(m *ipc.Message) { m.Body = json.RawMessage(`{"slot":1,"names":7}`) },
		"no body":        func(m *ipc.Message) { m.Body = nil },
		"slot too high":  func(m *ipc.Message) { m.Body = json.RawMessage(`{"slot":32,"names":"x"}`) },
		"negative slot":  func(m *ipc.Message) { m.Body = json.RawMessage(`{"slot":-1,"names":"x"}`) },
		"not even names": func(m *ipc.Message) { m.Body = json.RawMessage(`{"slot":1}`) },
	} {
		m := handles(1)
		change(&m)
		files := m.Files
		g.handleMessage(&m)
		if err := files[0].Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: its file was left open: %v", name, err)
		}
	}
	if n := driver.Open(); n != 1 {
		t.Errorf("%d controls", n)
	}
	if st := g.controller.State(); st.Errors != 2 || !strings.Contains(st.Problem, "context 1: control a context") {
		t.Errorf("%+v", st)
	}
}

// handledContext has handles that a driver of the daemon's process knows.
type handledContext struct {
	gpu.Context
	name string
}

func (c handledContext) Handles() (gpu.Handles, error) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		return gpu.Handles{}, err
	}
	return gputest.Handles(c.name, f), nil
}

// handledGPU makes such contexts, named after their guests.
type handledGPU struct{ *soft.Device }

func (d handledGPU) NewContext(ctx context.Context, o gpu.ContextOptions) (gpu.Context, error) {
	c, err := d.Device.NewContext(ctx, o)
	return handledContext{c, o.Label}, err
}

// TestHandlesComeToEveryDaemon: each daemon gets the handles of an executor's context through the
// guest's process, and closes them when the context, the guest or the daemon ends.
func TestHandlesComeToEveryDaemon(t *testing.T) {
	t.Setenv(handlesVariable, "yes")
	dir := runDir(t)
	drivers := []*gputest.Driver{{}, {}}
	d := startDaemonOn(t, dir, controlledGPU{Driver: drivers[0]})
	v := d.create("a")
	dev := attach(t, v.Socket)
	j := newJob(t, dev)
	controlled := func(d *daemon, n int) func() bool {
		return func() bool { return d.vm("a").Control.Contexts == n }
	}
	until(t, "the context can be controlled", controlled(d, 1))
	d.stop()
	if n := drivers[0].Open(); n != 0 {
		t.Errorf("the daemon that has ended keeps %d contexts' files", n)
	}

	// As far as the next daemon can know, the last one left disabled: a context that exists, one
	// that has ended since, one that no page has, and one of a guest that has ended.
	holds := filepath.Join(dir, "holds")
	for _, name := range []string{"a-0", "a-5", "a-99", "gone-3"} {
		if err := os.WriteFile(filepath.Join(holds, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	next := startDaemonOn(t, dir, controlledGPU{Driver: drivers[1]})
	if calls := drivers[1].Calls("a"); fmt.Sprint(calls) != "[resume]" {
		t.Errorf("the next daemon did %v first", calls)
	}
	if left, err := os.ReadDir(holds); err != nil || len(left) != 0 {
		t.Errorf("noted %v, %v", left, err)
	}
	if s := next.vm("a").Control; s.Disabled != 0 {
		t.Errorf("waits for what has ended: %+v", s)
	}
	if !controlled(next, 1)() {
		t.Errorf("%+v", next.vm("a").Control)
	}
	if err := j.gpu.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, "the context is let go of", func() bool { return controlled(next, 0)() && drivers[1].Open() == 0 })
	newJob(t, dev)
	until(t, "the next one can be controlled", controlled(next, 1))
	if err := next.client.ForceDeleteVM(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	until(t, "the guest is let go of", func() bool { return drivers[1].Open() == 0 })
}

// TestHealthTellsOfAFailingDriver and names the guest whose contexts it fails for.
func TestHealthTellsOfAFailingDriver(t *testing.T) {
	d := startDaemonOn(t, runDir(t), controlledGPU{Driver: &gputest.Driver{}})
	d.create("a")
	d.create("b")
	if h := d.service.Health(); !h.Healthy {
		t.Fatalf("%+v", h)
	}
	d.service.mu.RLock()
	d.service.guests["b"].controller.Refused(3, errors.New("the driver is busy"))
	d.service.mu.RUnlock()
	h, err := d.client.Health(t.Context())
	if err != nil || h.Healthy || len(h.Problems) != 1 || h.Problems[0] != "guest b: context 3: the driver is busy" {
		t.Errorf("%+v, %v", h, err)
	}
	if c := d.vm("b").Control; c.Errors != 1 || c.Problem != "context 3: the driver is busy" {
		t.Errorf("%+v", c)
	}
}
