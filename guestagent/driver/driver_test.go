package driver_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"vgpud/guestagent/driver"
	"vgpud/guestagent/driver/drivertest"
	"vgpud/mediator/vgpu/abi"
)

// kernels are those of the host under test.
func kernels() map[string]drivertest.Kernel {
	return map[string]drivertest.Kernel{
		"empty": {},
		"add": {Params: []int{8, 8, 4}, Run: func(g *drivertest.GPU, l abi.Launch, p []byte) error {
			dst, src, n := binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:]), binary.LittleEndian.Uint32(p[16:])
			d, s := g.Bytes(dst, uint64(n)), g.Bytes(src, uint64(n))
			if d == nil || s == nil {
				return fmt.Errorf("kernel add, block (1,0,0), thread (3,0,0), line 12: address %#x: %w", dst, abi.StatusIllegalAddress)
			}
			for i := range d {
				d[i] += s[i]
			}
			return nil
		}},
		"big": {Params: []int{1, 4000, 8}},
	}
}

func open(t testing.TB, opts drivertest.Options) (*drivertest.Host, *driver.Device, *driver.Context) {
	t.Helper()
	if opts.Kernels == nil {
		opts.Kernels = kernels()
	}
	if opts.Features == 0 {
		opts.Features = abi.AllFeatures
	}
	host, err := drivertest.NewHost(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	dev, err := driver.Open(ctx, host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	gpu, err := dev.NewContext(ctx, driver.ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return host, dev, gpu
}

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fill returns n bytes that differ by position.
func fill(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7) ^ byte(i>>8) ^ seed
	}
	return b
}

func TestLaunchAndCopy(t *testing.T) {
	for name, opts := range map[string]drivertest.Options{
		"interrupts": {},
		"polled":     {Polled: true},
		"one vector": {Vectors: 1},
		"no inline":  {Features: abi.FeatureFunctions},
		"no layout":  {Features: abi.FeatureInline},
		"poll first": {PollWindow: 200 * time.Microsecond},
		"old device": {Version1_0: true},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, gpu := open(t, opts)
			ctx := t.Context()
			mod := must[*driver.Module](t)(gpu.LoadModule(ctx, []byte(".version 9.0")))
			add := must[*driver.Function](t)(mod.Function(ctx, "add"))
			const n = 3<<20 + 17 // several chunks and a remainder
			a, b := fill(n, 1), fill(n, 0x55)
			pa := must[driver.Ptr](t)(gpu.Alloc(ctx, n))
			pb := must[driver.Ptr](t)(gpu.Alloc(ctx, n))
			check(t, gpu.CopyIn(ctx, pa, a))
			check(t, gpu.CopyIn(ctx, pb, b))
			ch := must[*driver.Channel](t)(gpu.NewChannel(ctx, driver.ChannelOptions{}))
			p := must[*driver.Pending](t)(ch.Launch(ctx, add, driver.Dim{X: 4}, driver.Dim{X: 32}, 0, pa, pb, uint32(n)))
			check(t, p.Wait(ctx))
			if start, end := p.Times(); start == 0 || end < start {
				t.Errorf("GPU times %v to %v", start, end)
			}
			got := make([]byte, n)
			check(t, gpu.CopyOut(ctx, got, pa))
			for i := range a {
				a[i] += b[i]
			}
			if !bytes.Equal(got, a) {
				t.Error("wrong sums")
			}
			check(t, must[*driver.Pending](t)(gpu.Own().Set(ctx, pa, 0x01020304, 4, 5)).Wait(ctx))
			check(t, gpu.CopyOut(ctx, got[:22], pa))
			if want := append(bytes.Repeat([]byte{4, 3, 2, 1}, 5), a[20:22]...); !bytes.Equal(got[:22], want) {
				t.Errorf("after Set: % x, want % x", got[:22], want)
			}
			check(t, gpu.Free(ctx, pa))
			check(t, ch.Close())
			if err := gpu.Free(ctx, pa); !errors.Is(err, abi.StatusInvalidAddress) {
				t.Errorf("second Free: %v", err)
			}
		})
	}
}

func TestLargeParameters(t *testing.T) {
	_, _, gpu := open(t, drivertest.Options{Features: abi.FeatureInline | abi.FeatureFunctions})
	ctx := t.Context()
	mod := must[*driver.Module](t)(gpu.LoadModule(ctx, []byte(".")))
	big := must[*driver.Function](t)(mod.Function(ctx, "big"))
	p := must[*driver.Pending](t)(gpu.Own().Launch(ctx, big, driver.Dim{}, driver.Dim{}, 0, true, make([]byte, 4000), driver.Ptr(1)))
	check(t, p.Wait(ctx))
}

func TestParams(t *testing.T) {
	_, _, gpu := open(t, drivertest.Options{})
	ctx := t.Context()
	mod := must[*driver.Module](t)(gpu.LoadModule(ctx, []byte(".")))
	add := must[*driver.Function](t)(mod.Function(ctx, "add"))
	for _, c := range []struct {
		args []any
		want string
	}{
		{[]any{driver.Ptr(1), driver.Ptr(2)}, "2 arguments for 3"},
		{[]any{driver.Ptr(1), uint32(2), uint32(3)}, "argument 1: a uint32 of 4 bytes for a parameter of 8"},
		{[]any{driver.Ptr(1), driver.Ptr(2), "three"}, "argument 2: a string"},
	} {
		if _, err := add.AppendParams(nil, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
	got, err := add.AppendParams(nil, driver.Ptr(1), uint64(2), float32(1))
	if want := "\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80\x3f"; err != nil || string(got) != want {
		t.Errorf("AppendParams = % x, %v", got, err)
	}
}

func TestFaultPoisonsUntilReset(t *testing.T) {
	_, _, gpu := open(t, drivertest.Options{})
	ctx := t.Context()
	mod := must[*driver.Module](t)(gpu.LoadModule(ctx, []byte(".")))
	add := must[*driver.Function](t)(mod.Function(ctx, "add"))
	p := must[*driver.Pending](t)(gpu.Own().Launch(ctx, add, driver.Dim{}, driver.Dim{}, 0, driver.Ptr(0xdead000), driver.Ptr(0), uint32(4)))
	err := p.Wait(ctx)
	var e *driver.Error
	if !errors.As(err, &e) || e.Status != abi.StatusIllegalAddress || !strings.Contains(e.Detail, "thread (3,0,0), line 12: address 0xdead000") {
		t.Fatalf("fault: %+v", err)
	}
	if _, err := gpu.Alloc(ctx, 1); !errors.Is(err, abi.StatusIllegalAddress) {
		t.Errorf("Alloc in a poisoned context: %v", err)
	}
	check(t, gpu.Reset(ctx))
	if gpu.Fault(ctx) != "" {
		t.Errorf("fault after reset: %q", gpu.Fault(ctx))
	}
	must[driver.Ptr](t)(gpu.Alloc(ctx, 1))
}

func TestModuleErrorHasLog(t *testing.T) {
	_, _, gpu := open(t, drivertest.Options{})
	_, err := gpu.LoadModule(t.Context(), []byte("garbage"))
	if !errors.Is(err, abi.StatusInvalidPTX) || !strings.Contains(fmt.Sprintf("%v", err), "line 1: not PTX") {
		t.Errorf("LoadModule: %v", err)
	}
	var e *driver.Error
	if errors.As(err, &e) && !strings.Contains(fmt.Sprintf("%+v", e), "expected a directive") {
		t.Errorf("with detail: %+v", e)
	}
}

// TestRefusedKernel checks that a kernel which the GPU can't execute is refused, by name and with
// the reason, when it is launched; its module loads, and the other kernels work.
func TestRefusedKernel(t *testing.T) {
	const why = "kernel sample, PTX line 7: tex.2d.v4.f32.f32: textures: not supported by this device"
	_, _, gpu := open(t, drivertest.Options{
		Kernels:   map[string]drivertest.Kernel{"sample": {}, "empty": {}},
		ModuleLog: why + "\nkernel other, PTX line 9: suld.b.1d: surfaces: not supported by this device\n",
	})
	ctx := t.Context()
	mod := must[*driver.Module](t)(gpu.LoadModule(ctx, []byte(".")))
	ch := must[*driver.Channel](t)(gpu.NewChannel(ctx, driver.ChannelOptions{}))
	sample := must[*driver.Function](t)(mod.Function(ctx, "sample"))
	_, err := ch.Launch(ctx, sample, driver.Dim{}, driver.Dim{}, 0)
	if !errors.Is(err, abi.StatusNotSupported) || !strings.Contains(fmt.Sprint(err), why) {
		t.Errorf("launch: %v, want it to say %q", err, why)
	}
	p := must[*driver.Pending](t)(ch.Launch(ctx, must[*driver.Function](t)(mod.Function(ctx, "empty")), driver.Dim{}, driver.Dim{}, 0))
	check(t, p.Wait(ctx))
}

func TestContextLost(t *testing.T) {
	host, _, gpu := open(t, drivertest.Options{Kernels: map[string]drivertest.Kernel{"empty": {}}})
	ctx := t.Context()
	ch := must[*driver.Channel](t)(gpu.NewChannel(ctx, driver.ChannelOptions{}))
	host.Fault(0, abi.ErrorExecutorLost)()
	p, err := ch.Fence(ctx)
	if err == nil {
		err = p.Wait(ctx)
	}
	if !errors.Is(err, abi.StatusContextLost) || !errors.Is(err, abi.ErrorExecutorLost) {
		t.Errorf("command in a lost context: %v", err)
	}
	check(t, gpu.Reset(ctx))
	must[driver.Ptr](t)(gpu.Alloc(ctx, 1))
}

func TestFaultWakesSleepers(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	host, _, gpu := open(t, drivertest.Options{Kernels: map[string]drivertest.Kernel{
		"block": {Run: func(*drivertest.GPU, abi.Launch, []byte) error { close(entered); <-leave; return nil }},
	}})
	ctx := t.Context()
	mod := must[*driver.Module](t)(gpu.LoadModule(ctx, []byte(".")))
	f := must[*driver.Function](t)(mod.Function(ctx, "block"))
	p := must[*driver.Pending](t)(gpu.Own().Launch(ctx, f, driver.Dim{}, driver.Dim{}, 0))
	<-entered
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if err := p.Wait(ctx); !errors.Is(err, abi.ErrorExecutorLost) {
				t.Errorf("Wait: %v", err)
			}
		})
	}
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if err := p.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait with a deadline: %v", err)
	}
	host.Fault(0, abi.ErrorExecutorLost)
	wg.Wait()
	close(leave)
}

func TestHostGone(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	host, _, gpu := open(t, drivertest.Options{Kernels: map[string]drivertest.Kernel{
		"block": {Run: func(*drivertest.GPU, abi.Launch, []byte) error { close(entered); <-leave; return nil }},
	}})
	ctx := t.Context()
	mod := must[*driver.Module](t)(gpu.LoadModule(ctx, []byte(".")))
	f := must[*driver.Function](t)(mod.Function(ctx, "block"))
	must[*driver.Pending](t)(gpu.Own().Launch(ctx, f, driver.Dim{}, driver.Dim{}, 0))
	fence := must[*driver.Pending](t)(gpu.Own().Fence(ctx))
	<-entered
	host.Die()
	if err := fence.Wait(ctx); !errors.Is(err, driver.ErrGone) {
		t.Errorf("Wait: %v, want ErrGone", err)
	}
	close(leave)
	var err error
	for err == nil {
		_, err = gpu.Alloc(ctx, 1)
	}
	if !errors.Is(err, driver.ErrGone) {
		t.Errorf("Alloc on a dead host: %v", err)
	}
}

func TestContextNeverReady(t *testing.T) {
	host, err := drivertest.NewHost(drivertest.Options{NeverReady: true})
	check(t, err)
	dev := must[*driver.Device](t)(driver.Open(t.Context(), host))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if _, err := dev.NewContext(ctx, driver.ContextOptions{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("NewContext: %v", err)
	}
	check(t, dev.Close())
}

func TestLimits(t *testing.T) {
	_, dev, gpu := open(t, drivertest.Options{})
	ctx := t.Context()
	var err error
	n := 0
	for ; err == nil && n < 100; n++ {
		_, err = gpu.NewChannel(ctx, driver.ChannelOptions{Depth: 128})
	}
	if !errors.Is(err, abi.ErrorLimit) {
		t.Errorf("channel %d: %v", n, err)
	}
	check(t, gpu.Close())
	for n, err = 0, nil; err == nil && n < 100; n++ {
		_, err = dev.NewContext(ctx, driver.ContextOptions{Channel: driver.ChannelOptions{Depth: 128}})
	}
	if !errors.Is(err, abi.ErrorLimit) {
		t.Errorf("context %d: %v", n, err)
	}
}

// TestManyGoroutines has several goroutines enqueue on and wait for two channels at once, more than
// fits the rings.
func TestManyGoroutines(t *testing.T) {
	host, _, gpu := open(t, drivertest.Options{})
	ctx := t.Context()
	mod := must[*driver.Module](t)(gpu.LoadModule(ctx, []byte(".")))
	add := must[*driver.Function](t)(mod.Function(ctx, "add"))
	chans := []*driver.Channel{
		must[*driver.Channel](t)(gpu.NewChannel(ctx, driver.ChannelOptions{Depth: 128})),
		must[*driver.Channel](t)(gpu.NewChannel(ctx, driver.ChannelOptions{Depth: 128})),
	}
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			ch := chans[g%2]
			dst, err := gpu.Alloc(ctx, 64)
			if err != nil {
				t.Error(err)
				return
			}
			one, err := gpu.Alloc(ctx, 64)
			if err == nil {
				var set *driver.Pending
				if set, err = ch.Set(ctx, one, 1, 1, 64); err == nil {
					err = set.Wait(ctx)
				}
			}
			if err != nil {
				t.Error(err)
				return
			}
			var last *driver.Pending
			const launches = 300
			for i := range launches {
				if last, err = ch.Launch(ctx, add, driver.Dim{}, driver.Dim{}, 0, dst, one, uint32(64)); err != nil {
					t.Error(err)
					return
				}
				if i%50 == g {
					if err := last.Wait(ctx); err != nil {
						t.Error(err)
					}
				}
			}
			got := make([]byte, 64)
			if err := last.Wait(ctx); err != nil {
				t.Error(err)
			}
			if err := gpu.CopyOut(ctx, got, dst); err != nil {
				t.Error(err)
			}
			if want := bytes.Repeat([]byte{launches & 0xff}, 64); !bytes.Equal(got, want) {
				t.Errorf("sum %d, want %d", got[0], want[0])
			}
		})
	}
	wg.Wait()
	for _, ch := range chans {
		check(t, ch.Sync(ctx))
	}
	t.Logf("%d doorbells", host.Doorbells())
}

func TestNops(t *testing.T) {
	_, _, gpu := open(t, drivertest.Options{})
	var p driver.Pending
	for _, n := range []int{1, 127, 128, 5000} {
		check(t, gpu.Own().Nops(t.Context(), &p, n))
	}
}

func TestEvents(t *testing.T) {
	_, _, gpu := open(t, drivertest.Options{})
	ctx := t.Context()
	a, b := must[*driver.Event](t)(gpu.NewEvent(ctx)), must[*driver.Event](t)(gpu.NewEvent(ctx))
	must[*driver.Pending](t)(gpu.Own().Record(ctx, a))
	must[*driver.Pending](t)(gpu.Own().WaitEvent(ctx, a))
	must[*driver.Pending](t)(gpu.Own().Record(ctx, b))
	if d := must[time.Duration](t)(b.Since(ctx, a)); d < 0 {
		t.Errorf("time between events %v", d)
	}
	check(t, a.Close(ctx))
}

// TestEventTimes checks that times of events come from completions alone, that only the last record
// counts, and what is said of an event that was not reached.
func TestEventTimes(t *testing.T) {
	host, _, gpu := open(t, drivertest.Options{})
	ctx := t.Context()
	a, b, never := must[*driver.Event](t)(gpu.NewEvent(ctx)), must[*driver.Event](t)(gpu.NewEvent(ctx)), must[*driver.Event](t)(gpu.NewEvent(ctx))
	ch := must[*driver.Channel](t)(gpu.NewChannel(ctx, driver.ChannelOptions{}))
	first := must[*driver.Pending](t)(ch.Record(ctx, a))
	check(t, first.Wait(ctx))
	at := must[time.Duration](t)(a.Reached())
	must[*driver.Pending](t)(ch.Record(ctx, a))
	p := must[*driver.Pending](t)(ch.Record(ctx, b))
	check(t, p.Wait(ctx))
	if again := must[time.Duration](t)(a.Reached()); again <= at {
		t.Errorf("reached at %v, again at %v", at, again)
	}
	host.Die() // it answers nothing more
	if d := must[time.Duration](t)(b.Since(ctx, a)); d <= 0 {
		t.Errorf("time between events %v", d)
	}
	if _, err := never.Reached(); !errors.Is(err, abi.StatusInvalidHandle) {
		t.Errorf("never recorded: %v", err)
	}
	if _, err := ch.Record(ctx, never); err == nil {
		if _, err := never.Reached(); err == nil {
			t.Error("reached after the host has gone")
		}
	}
}

// TestWaitAfterClose waits for commands after their device was closed.
func TestWaitAfterClose(t *testing.T) {
	host, err := drivertest.NewHost(drivertest.Options{Features: abi.AllFeatures, Kernels: kernels()})
	check(t, err)
	ctx := t.Context()
	dev := must[*driver.Device](t)(driver.Open(ctx, host))
	gpu := must[*driver.Context](t)(dev.NewContext(ctx, driver.ContextOptions{}))
	mod := must[*driver.Module](t)(gpu.LoadModule(ctx, []byte(".")))
	empty := must[*driver.Function](t)(mod.Function(ctx, "empty"))
	var all []*driver.Pending
	for range 50 {
		all = append(all, must[*driver.Pending](t)(gpu.Own().Launch(ctx, empty, driver.Dim{}, driver.Dim{}, 0)))
	}
	check(t, dev.Close())
	for _, p := range all {
		if err := p.Wait(ctx); err != nil && !errors.Is(err, driver.ErrClosed) {
			t.Errorf("Wait: %v", err)
		}
	}
	if _, err := gpu.Own().Fence(ctx); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Fence: %v", err)
	}
	if _, err := dev.NewContext(ctx, driver.ContextOptions{}); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("NewContext: %v", err)
	}
	if _, err := gpu.NewChannel(ctx, driver.ChannelOptions{}); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("NewChannel: %v", err)
	}
	if err := gpu.Own().Sync(ctx); err != nil && !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Sync: %v", err)
	}
}

func TestCloseUnderUse(t *testing.T) {
	_, dev, gpu := open(t, drivertest.Options{})
	ctx := t.Context()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				if _, err := gpu.Alloc(ctx, 8); err != nil {
					if !errors.Is(err, driver.ErrClosed) {
						t.Errorf("Alloc: %v", err)
					}
					return
				}
			}
		})
	}
	other := must[*driver.Context](t)(dev.NewContext(ctx, driver.ContextOptions{}))
	must[driver.Ptr](t)(other.Alloc(ctx, 1))
	check(t, gpu.Close())
	wg.Wait()
	check(t, gpu.Close())
	must[driver.Ptr](t)(other.Alloc(ctx, 1))
}
