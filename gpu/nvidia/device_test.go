package nvidia

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
)

// A GPU that the driver reports as gone is lost, whichever call reports it.
func TestLost(t *testing.T) {
	var answer error
	var sim clock.Sim
	x := newFake(t, Options{Clock: &sim, GPUClock: func() (time.Duration, error) { return time.Hour, answer }})
	if now, err := x.Now(); now < time.Hour || err != nil {
		t.Errorf("%v, %v", now, err)
	}
	answer = unix.ENODEV
	sim.Advance(readingEvery + time.Millisecond)
	if _, err := x.Now(); !errors.Is(err, gpu.ErrLost) {
		t.Error(err)
	}
	select {
	case <-x.Lost():
	default:
		t.Error("Lost is not closed")
	}

	x = newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	x.gpu.Fail("MemAllocAsync", cuda.ErrDeviceUnavailable)
	if _, err := c.Alloc(8); !errors.Is(err, gpu.ErrLost) {
		t.Error(err)
	}
	if err := c.Fault(); !errors.Is(err, gpu.ErrLost) {
		t.Errorf("the context's fault: %v", err)
	}
	select {
	case <-x.Lost():
	default:
		t.Error("Lost is not closed")
	}
}

func TestOneContext(t *testing.T) {
	x := newFake(t, Options{})
	x.context(t, gpu.ContextOptions{})
	if _, err := x.NewContext(t.Context(), gpu.ContextOptions{}); err == nil || !strings.Contains(err.Error(), "fault in one ends all") {
		t.Errorf("a second context: %v", err)
	}
}

// A context that can't be made leaks nothing.
func TestNoContext(t *testing.T) {
	for _, method := range []string{"CtxCreate", "CtxGetLimit", "StreamCreate", "EventCreate", "MemHostRegister", "ModuleLoadData", "LaunchKernel"} {
		x := newFake(t, Options{})
		b := &budget{limit: 1 << 30}
		x.gpu.Fail(method, cuda.ErrOutOfMemory)
		if _, err := x.NewContext(t.Context(), gpu.ContextOptions{Budget: b}); !errors.Is(err, gpu.ErrOutOfMemory) {
			t.Errorf("%s fails: %v", method, err)
		}
		if b.taken() != 0 {
			t.Errorf("%s fails: %d bytes are taken", method, b.taken())
		}
		x.gpu.Fail(method, 0)
		x.context(t, gpu.ContextOptions{Budget: b})
	}
}

// A failing driver call fails only its command or, if the command's end can't be signalled, the
// context.
func TestDriverCallsThatFail(t *testing.T) {
	for _, c := range []struct {
		method   string
		err      cuda.Error
		poisoned bool
	}{
		{"LaunchKernel", cuda.ErrLaunchResources, false},
		{"LaunchKernel", cuda.ErrInvalidValue, false},
		{"CtxSetCurrent", cuda.ErrInvalidValue, false},
		{"StreamWriteValue64", cuda.ErrInvalidValue, true},
		{"StreamWriteValue64", cuda.ErrIllegalAddress, true},
	} {
		x := newFake(t, Options{})
		ctx := x.context(t, gpu.ContextOptions{})
		ch := channelOf(t, ctx)
		l := kernel(t, ctx, "add", uint64(alloc(t, ctx, 8)))
		f, err := ch.Launch(l)
		ran(t, ch, f, err)
		x.gpu.Fail(c.method, c.err)
		if f, err := ch.Launch(l); err == nil || f != 0 {
			t.Errorf("%s answers %v: fence %d", c.method, c.err, f)
		}
		x.gpu.Fail(c.method, 0)
		if got := ctx.Fault() != nil; got != c.poisoned {
			t.Errorf("%s answers %v: the context's fault is %v", c.method, c.err, ctx.Fault())
		}
		if c.poisoned {
			continue
		}
		f, err = ch.Launch(l)
		if o := ran(t, ch, f, err); f != 2 || o.Err != nil {
			t.Errorf("after %s answered %v: fence %d, %v", c.method, c.err, f, o.Err)
		}
	}
}

func TestFind(t *testing.T) {
	a := Info{UUID: "GPU-aa", PCI: "0000:00:05.0"}
	b := Info{UUID: "GPU-bb", PCI: "0000:00:06.0", Index: 1}
	for device, want := range map[string]string{
		"GPU-bb": "GPU-bb", "gpu-BB": "GPU-bb", "0000:00:06.0": "GPU-bb", "00:05.0": "GPU-aa", "1": "GPU-bb", "0": "GPU-aa",
	} {
		if got, err := Find([]Info{a, b}, device); err != nil || got.UUID != want {
			t.Errorf("%q is %s, %v", device, got.UUID, err)
		}
	}
	if got, err := Find([]Info{b}, ""); err != nil || got.UUID != "GPU-bb" {
		t.Errorf("the only one is %s, %v", got.UUID, err)
	}
	for _, device := range []string{"", "2", "GPU-cc"} {
		if _, err := Find([]Info{a, b}, device); !errors.Is(err, gpu.ErrNotFound) || !strings.Contains(err.Error(), "GPU-bb (0000:00:06.0)") {
			t.Errorf("%q: %v", device, err)
		}
	}
	if _, err := Find(nil, "0"); !errors.Is(err, gpu.ErrNotFound) || !strings.Contains(err.Error(), "is the NVIDIA driver loaded") {
		t.Error(err)
	}
}

func TestList(t *testing.T) {
	x := newFake(t, Options{})
	i := x.Info()
	if i.UUID != "GPU-ab000000-0000-0000-0000-0000000000cd" || i.PCI != "0000:00:05.0" || i.Properties.SMs != 4 || i.Properties.Major != 9 {
		t.Errorf("%+v", i)
	}
	if i.Properties.CoRuns || i.Properties.Preempts {
		t.Error("it has abilities that it was not given")
	}
}
