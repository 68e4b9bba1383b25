package nvidia

import (
	"errors"
	"log/slog"
	"testing"
	"testing/fstest"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/rm"
	"vgpud/gpu/nvidia/rm/rmtest"
)

var (
	_ gpu.Handled   = (*Context)(nil)
	_ gpu.Suspender = (*Device)(nil)
	_ gpu.Slicer    = (*Device)(nil)
)

// controlled returns a context that has looked for its channels through k.
func controlled(t *testing.T, k rm.Kernel) (*Device, *Context) {
	t.Helper()
	d := &Device{o: Options{Kernel: k, Log: slog.New(slog.DiscardHandler)}, lost: make(chan struct{})}
	c := &Context{d: d}
	if err := c.handles(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.channelControl.close() })
	return d, c
}

// TestHandlesAreWhatAMonitorControls covers the whole way from one process's context to its control
// by another process.
func TestHandlesAreWhatAMonitorControls(t *testing.T) {
	k := rmtest.New()
	x, err := k.NewContext(8, true)
	if err != nil {
		t.Fatal(err)
	}
	d, c := controlled(t, k)
	if c.Group() != 1 {
		t.Errorf("Group = %d, want the driver's 1", c.Group())
	}
	h, err := c.Handles()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := watch(t, k, nil).Control(h)
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	if err := theirs.Suspend(); err != nil {
		t.Fatal(err)
	}
	if least, _ := x.Disabled(); least != 1 {
		t.Error("suspended by another, some channel is not disabled")
	}
	// The controlling process has exited: the context's own process resumes it.
	if err := errors.Join(d.Resume(c), d.Resume(c)); err != nil {
		t.Fatal(err)
	}
	if _, most := x.Disabled(); most != 0 {
		t.Error("resumed, some channel is still disabled")
	}
	if err := errors.Join(d.Suspend(c), d.Resume(c), d.SetTimeslice(c, time.Millisecond)); err != nil {
		t.Error(err)
	}
	k.Lose()
	if err := d.Suspend(c); !errors.Is(err, gpu.ErrLost) {
		t.Errorf("Suspend on a lost GPU = %v, want ErrLost", err)
	}
	<-d.Lost()
}

func TestContextWithoutHandles(t *testing.T) {
	for name, k := range map[string]rm.Kernel{"no way beneath CUDA": nil, "nothing found": rmtest.New()} {
		d, c := controlled(t, k)
		if _, err := c.Handles(); !errors.Is(err, gpu.ErrUnsupported) {
			t.Errorf("%s: Handles = %v, want ErrUnsupported", name, err)
		}
		if err := d.Suspend(c); !errors.Is(err, gpu.ErrUnsupported) {
			t.Errorf("%s: Suspend = %v, want ErrUnsupported", name, err)
		}
	}
}

func TestHandlesOfAClosedContext(t *testing.T) {
	k := rmtest.New()
	if _, err := k.NewContext(8, true); err != nil {
		t.Fatal(err)
	}
	before := k.Descriptors()
	d, c := controlled(t, k)
	if err := c.channelControl.close(); err != nil {
		t.Fatal(err)
	}
	if n := k.Descriptors(); n != before {
		t.Errorf("%d descriptors, want %d", n, before)
	}
	if err := d.Resume(c); !errors.Is(err, gpu.ErrLost) {
		t.Errorf("Resume = %v", err)
	}
}

func TestBeneathKnowsTheDriver(t *testing.T) {
	if _, err := Beneath(host("580.159.04")); err != nil {
		t.Error(err)
	}
	for _, root := range []fstest.MapFS{host("999.1"), {}} {
		if _, err := Beneath(root); err == nil {
			t.Error("an unknown driver will do")
		}
	}
}
