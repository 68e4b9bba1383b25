package cuda

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"vgpud/guestagent/driver"
	"vgpud/guestagent/driver/drivertest"
	"vgpud/guestagent/fatbin"
	"vgpud/mediator/vgpu/abi"
)

// silent are hooks of a process whose kernels print nothing.
type silent struct{ tb testing.TB }

func (s silent) Print(text []byte, _ bool)       { s.tb.Errorf("printed %q", text) }
func (s silent) StartCallbacks() error           { return nil }
func (s silent) SharedBytes(Pointer, int) uint64 { return 0 }
func (s silent) Missed() []uint32                { return nil }

// newCall returns a thread of a process with a device in memory, whose kernel "hold" runs until
// release is called, and "inc" adds 1 to bytes.
func newCall(tb testing.TB) (c *Call, release func()) {
	tb.Helper()
	released := make(chan struct{})
	release = sync.OnceFunc(func() { close(released) })
	host, err := drivertest.NewHost(drivertest.Options{SharedBytes: 32 << 20, Features: abi.AllFeatures &^ abi.FeatureTriggeredEvents &^ abi.FeatureIdentity &^ abi.FeatureAlike, Kernels: map[string]drivertest.Kernel{
		"hold": {Run: func(*drivertest.GPU, abi.Launch, []byte) error { <-released; return nil }},
		"inc":  drivertest.Increment,
	}})
	if err != nil {
		tb.Fatal(err)
	}
	d := New(Options{Hooks: silent{tb}, Open: func(context.Context) (driver.Bus, error) { return host, nil }})
	if r := d.Init(); r != Success {
		tb.Fatal(r)
	}
	tb.Cleanup(func() {
		release()
		d.endContexts()
		if err := d.gpu.Close(); err != nil {
			tb.Error(err)
		}
	})
	return d.thread(NewThread(1, 16)), release
}

// endContexts ends all contexts, which gives back the process's addresses that they kept.
func (d *Driver) endContexts() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for x := range d.contexts {
		x.destroy()
	}
}

// done goes on with a call until it has its result, and returns how often that was.
func (c *Call) done(r Result) (Result, int) {
	n := 0
	for r == again {
		r = c.d.Again(c.t)
		n++
	}
	return r, n
}

func want(tb testing.TB, what string, got, want Result) {
	tb.Helper()
	if got != want {
		tb.Fatalf("%s: %v, want %v", what, got, want)
	}
}

// kernel loads a module and returns one of its functions.
func (c *Call) kernelNamed(tb testing.TB, name string) Handle {
	tb.Helper()
	var m, f Handle
	image := append([]byte(".version 9.0"), 0)
	want(tb, "load", c.ModuleLoadData(&m, startOf(image)), Success)
	text := append([]byte(name), 0)
	want(tb, "function", c.ModuleGetFunction(&f, m, &text[0]), Success)
	return f
}

func TestRun(t *testing.T) {
	c, _ := newCall(t)
	var x Handle
	want(t, "create", c.CtxCreateV2(&x, 0, 0), Success)
	inc := c.kernelNamed(t, "inc")
	data := bytes.Repeat([]byte{1, 2, 3, 4}, 3<<20)
	var p uint64
	want(t, "alloc", c.MemAllocV2(&p, uint64(len(data))), Success)
	r, _ := c.done(c.MemcpyHtoDV2(p, startOf(data), uint64(len(data))))
	want(t, "copy in", r, Success)
	n := uint32(len(data))
	params := []Pointer{Pointer(&p), Pointer(&n)}
	want(t, "launch", c.LaunchKernel(inc, 1, 1, 1, 1, 1, 1, 0, 0, &params[0], nil), Success)
	got := make([]byte, len(data))
	r, _ = c.done(c.MemcpyDtoHV2(startOf(got), p, uint64(len(got))))
	want(t, "copy out", r, Success)
	for i := range got {
		if got[i] != data[i]+1 {
			t.Fatalf("byte %d is %d, was %d", i, got[i], data[i])
		}
	}
	r, _ = c.done(c.MemFreeV2(p))
	want(t, "free", r, Success)
	want(t, "launch", c.LaunchKernel(inc, 1, 1, 1, 1, 1, 1, 0, 0, &params[0], nil), Success)
	r, _ = c.done(c.CtxSynchronize())
	want(t, "a kernel on freed memory", r, ErrorIllegalAddress)
	want(t, "a call after it", c.MemAllocV2(&p, 4), ErrorIllegalAddress)
	want(t, "destroy", c.CtxDestroyV2(x), Success)
	want(t, "a call without a context", c.MemAllocV2(&p, 4), ErrorInvalidContext)
}

// TestWaitsAreCut checks that a thread that waits for a kernel has its signals now and then.
func TestWaitsAreCut(t *testing.T) {
	c, release := newCall(t)
	var x, s Handle
	want(t, "create", c.CtxCreateV2(&x, 0, 0), Success)
	hold := c.kernelNamed(t, "hold")
	want(t, "stream", c.StreamCreate(&s, streamNonBlocking), Success)
	want(t, "launch", c.LaunchKernel(hold, 1, 1, 1, 1, 1, 1, 0, s, nil, nil), Success)
	for range 2 {
		want(t, "wait for a kernel", c.StreamSynchronize(s), again)
		want(t, "wait on", c.d.Again(c.t), again)
	}
	want(t, "query", c.StreamQuery(s), ErrorNotReady)
	release()
	r, _ := c.done(c.StreamSynchronize(s))
	want(t, "wait for its end", r, Success)
	want(t, "query", c.StreamQuery(s), Success)
}

// TestHandles checks that the handle of an object that is gone is never that of a later one.
func TestHandles(t *testing.T) {
	var o objects
	seen := map[Handle]bool{}
	for range 3000 {
		v := new(Event)
		h := o.add(v)
		if seen[h] {
			t.Fatalf("%#x twice", h)
		}
		seen[h] = true
		if get[Event](&o, h) != v || get[Context](&o, h) != nil {
			t.Fatalf("%#x is another object", h)
		}
		if !o.remove(h) || o.remove(h) || get[Event](&o, h) != nil {
			t.Fatalf("%#x was not removed once", h)
		}
	}
	for _, h := range []Handle{0, 1, 2, ^Handle(0), 1 << 42, Handle(uintptr(unsafe.Pointer(&o)))} {
		if get[Event](&o, h) != nil || o.remove(h) {
			t.Errorf("%#x is an object", h)
		}
	}
}

// TestReservation checks that a GPU address is neither given where the process has something nor
// left for something else.
func TestReservation(t *testing.T) {
	var r reservation
	const base = 0x2a0000000000
	if !r.reserve(base, 5<<20) || !r.reserve(base+4<<20, 1<<20) {
		t.Fatal("free addresses were not reserved")
	}
	take := func() bool {
		p, err := unix.MmapPtr(-1, 0, pointerTo(base), 4096, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED_NOREPLACE)
		if err == nil {
			t.Cleanup(func() { _ = unix.MunmapPtr(p, 4096) })
		}
		return err == nil
	}
	if take() {
		t.Error("something else was mapped at a reserved address")
	}
	r.release(base, 5<<20)
	r.release(base+4<<20, 1<<20)
	if !take() {
		t.Error("a released address is not free")
	}
	if r.reserve(base, 4096) {
		t.Error("an address was reserved where the process has something")
	}
}

// FuzzImage passes any bytes as code.
func FuzzImage(f *testing.F) {
	c, _ := newCall(f)
	fat, err := fatbin.Append(nil, fatbin.Image{Kind: fatbin.PTX, Major: 7, SM: 80, Data: []byte(".version 7.0\n"), Compression: fatbin.LZ4})
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range [][]byte{fat, []byte(".version 7.0\n.target sm_80\n"), []byte("\x7fELF"), nil} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, image []byte) {
		code, r := c.d.choose(image)
		if (r == Success) == (code == nil) {
			t.Errorf("%v with %d bytes", r, len(code))
		}
		if len(image) > 0 {
			padded := append(image[:len(image):len(image)], make([]byte, 128)...)
			_, _ = c.d.image(startOf(padded))
		}
	})
}

// TestStreamWaits checks that a stream waits for an event of another, on a host that has no way to
// do that on the device.
func TestStreamWaits(t *testing.T) {
	c, release := newCall(t)
	var x, a, b, e Handle
	want(t, "create", c.CtxCreateV2(&x, 0, 0), Success)
	hold, inc := c.kernelNamed(t, "hold"), c.kernelNamed(t, "inc")
	want(t, "stream", c.StreamCreate(&a, streamNonBlocking), Success)
	want(t, "stream", c.StreamCreate(&b, streamNonBlocking), Success)
	want(t, "event", c.EventCreate(&e, 0), Success)
	var p uint64
	want(t, "alloc", c.MemAllocV2(&p, 16), Success)
	n := uint32(16)
	params := []Pointer{Pointer(&p), Pointer(&n)}
	want(t, "launch", c.LaunchKernel(hold, 1, 1, 1, 1, 1, 1, 0, a, nil, nil), Success)
	want(t, "record", c.EventRecord(e, a), Success)
	want(t, "wait", c.StreamWaitEvent(b, e, 0), Success)
	want(t, "a launch that has to wait", c.LaunchKernel(inc, 1, 1, 1, 1, 1, 1, 0, b, &params[0], nil), again)
	want(t, "and waits on", c.d.Again(c.t), again)
	release()
	r, _ := c.done(c.d.Again(c.t))
	want(t, "the launch", r, Success)
	want(t, "the event", c.EventQuery(e), Success)
	r, _ = c.done(c.StreamSynchronize(b))
	want(t, "its end", r, Success)
}
