package nvidia

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
	"vgpud/gpu/nvidia/cuda/cudatest"
	"vgpud/gpu/nvidia/dispatch"
	"vgpud/internal/memfd"
	"vgpud/internal/proctest"
	"vgpud/mediator/vgpu/abi"
	"vgpud/mediator/vgpu/abi/eventqueue"
)

// eventsPTX has kernels whose dispatchers can be made; what they do is the fake's.
const eventsPTX = `.version 7.0
.target sm_70
.address_size 64
.visible .entry add(.param .u64 at) { ret; }
.visible .entry hang(.param .u64 at) { ret; }
.visible .entry bad(.param .u64 at) { ret; }
`

// hostPTX has the same kernels, which can't be called: what %gridid says would be the dispatcher's.
const hostPTX = `.version 7.0
.target sm_70
.address_size 64
.visible .entry add(.param .u64 at) { .reg .b64 %rd; mov.u64 %rd, %gridid; ret; }
.visible .entry hang(.param .u64 at) { .reg .b64 %rd; mov.u64 %rd, %gridid; ret; }
.visible .entry bad(.param .u64 at) { .reg .b64 %rd; mov.u64 %rd, %gridid; ret; }
`

// eventNumber is the event kernel's in these tests.
const eventNumber = 2

// eventFake is a fake whose GPU has dispatchers: a Go function that does to the event area and the
// control block what the real one does.
type eventFake struct {
	*fake
	t        *testing.T
	c        *Context
	area     []byte
	kernel   cudatest.Kernel // what events run
	resident atomic.Int32    // dispatchers that are on the GPU
	launches atomic.Int32    // of dispatchers
	idle     atomic.Bool     // they park when there is nothing to do
	disturb  atomic.Int32    // calls that wait for kernels to end, while one was there
}

// strict fails the test where a call would wait for a resident kernel.
type strict struct {
	*cudatest.GPU
	x *eventFake
}

func (s *strict) check() {
	if s.x.resident.Load() > 0 {
		s.x.disturb.Add(1)
	}
}

func (s *strict) ModuleLoadData(image []byte) (cuda.Module, string, error) {
	s.check()
	return s.GPU.ModuleLoadData(image)
}

func (s *strict) ModuleUnload(m cuda.Module) error {
	s.check()
	return s.GPU.ModuleUnload(m)
}

func (s *strict) MemFreeAsync(p cuda.DevicePtr, st cuda.Stream) error {
	s.check()
	return s.GPU.MemFreeAsync(p, st)
}

func (s *strict) MemHostUnregister(mem []byte) error {
	s.check()
	return s.GPU.MemHostUnregister(mem)
}

func newEventFake(t *testing.T, o gpu.ContextOptions) *eventFake {
	t.Helper()
	x := &eventFake{t: t}
	g := cudatest.New()
	x.fake = &fake{gpu: g, release: make(chan struct{})}
	g.Kernels["add"] = func(l *cudatest.Launch) error {
		b, err := g.Bytes(cuda.DevicePtr(l.Param(0)), 8)
		if err != nil {
			return err
		}
		word(b, 0).Add(1)
		return nil
	}
	g.Kernels["hang"] = func(*cudatest.Launch) error {
		<-x.release
		return nil
	}
	g.Kernels["bad"] = func(*cudatest.Launch) error { return cuda.ErrIllegalAddress }
	x.kernel = g.Kernels["add"]
	g.Kernels["vgpud_dispatch"] = x.dispatch
	g.Attributes["vgpud_dispatch"] = cudatest.Attributes{Params: []int{8, 8, 4}}
	d, err := Open(Options{Driver: &strict{g, x}})
	if err != nil {
		t.Fatal(err)
	}
	x.Device = d
	t.Cleanup(func() {
		x.unblock()
		if err := d.Close(); err != nil && !errors.Is(err, gpu.ErrTimeLimit) {
			t.Error(err)
		}
		if n := x.disturb.Load(); n > 0 {
			t.Errorf("%d calls would have waited for a resident kernel", n)
		}
	})
	x.c = x.context(t, o)
	f, area := sealedFile(t, abi.EventAreaBytes)
	x.area = area
	if _, err := x.c.MapEvents(f); err != nil {
		t.Fatal(err)
	}
	return x
}

// sealedFile returns a file in memory as the event area is, mapped.
func sealedFile(t *testing.T, n int) (*os.File, []byte) {
	t.Helper()
	fd, err := unix.MemfdCreate("events", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "events")
	t.Cleanup(func() { _ = f.Close() })
	if err := f.Truncate(int64(n)); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, memfd.Seals); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	return f, mem
}

// dispatch is the dispatcher.
func (x *eventFake) dispatch(l *cudatest.Launch) error {
	x.launches.Add(1)
	x.resident.Add(1)
	defer x.resident.Add(-1)
	control, err := x.gpu.Bytes(cuda.DevicePtr(l.Param(1)), dispatch.ControlBytes)
	if err != nil {
		return err
	}
	c := dispatch.NewControl(control)
	c.SetResident(true)
	page := x.area[abi.EventPage(eventNumber):]
	s := c.State(eventqueue.State{})
	row := abi.DecodeEventRow((*[abi.EventRowBytes]byte)(page[abi.EventRowOffset:]))
	entries, _ := row.Entries(eventNumber)
	for {
		rung := abi.LoadWord(page, abi.EventDoorbellWord)
		if stop := c.Stopped(); stop || rung == s.Seen && x.idle.Load() {
			c.SetResident(false)
			abi.AtomicWord(page, abi.EventKickAtWord).Swap(s.Seen)
			if stop || abi.LoadWord(page, abi.EventDoorbellWord) == s.Seen {
				return nil
			}
			c.SetResident(true)
			continue
		}
		if rung == s.Seen {
			runtime.Gosched()
			continue
		}
		at := int(row.Base) + int(s.Head)*int(row.EntrySize)
		entry := x.area[at : at+int(row.EntrySize)]
		s.Seen++
		s.Head = (s.Head + 1) % uint32(entries)
		s.Started++
		c.Launching(s)
		abi.StoreWord(page, abi.EventSeenWord, s.Seen)
		if err := x.kernel(&cudatest.Launch{GPU: x.gpu, Params: append([]byte(nil), entry[:8]...)}); err != nil {
			return err
		}
		abi.StoreWord(x.area, int(binary.LittleEndian.Uint64(entry[len(entry)-8:])), uint32(abi.EventDone))
		s.Ended++
		c.Launching(s)
	}
}

// register registers a kernel of a module's text.
func (x *eventFake) register(text, name string, param uint64) *eventqueue.Launcher {
	x.t.Helper()
	m, err := x.c.LoadModule([]byte(text))
	if err != nil {
		x.t.Fatal(err)
	}
	f, err := m.Function(name)
	if err != nil {
		x.t.Fatal(err)
	}
	one := gpu.Dim3{X: 1, Y: 1, Z: 1}
	x.kernel = x.gpu.Kernels[name]
	if err := x.c.RegisterEventKernel(&gpu.EventKernel{Number: eventNumber, Handle: 9, Entries: 4,
		Launch: gpu.Launch{Function: f, Grid: one, Block: gpu.Dim3{X: 32, Y: 1, Z: 1}, Params: binary.LittleEndian.AppendUint64(nil, param)}}); err != nil {
		x.t.Fatal(err)
	}
	l, err := eventqueue.Attach(x.area, eventNumber)
	if err != nil {
		x.t.Fatal(err)
	}
	return l
}

func (x *eventFake) await(what string, ok func() bool) {
	x.t.Helper()
	proctest.Until(x.t, what, ok)
}

// fire launches an event.
func (x *eventFake) fire(l *eventqueue.Launcher) {
	x.t.Helper()
	x.await("a free entry", func() bool { _, ok := l.Free(); return ok })
	if l.Launch() {
		x.c.KickEvents()
	}
}

// complete waits for an event's end.
func (x *eventFake) complete(l *eventqueue.Launcher) {
	x.t.Helper()
	x.await("an event's end", func() bool { _, ok := l.Done(); return ok })
	l.Complete()
}

func (x *eventFake) counts() gpu.EventKernelCounts {
	x.t.Helper()
	list, err := x.c.EventKernelCounts()
	if err != nil || len(list) != 1 {
		x.t.Fatalf("%+v, %v", list, err)
	}
	return list[0]
}

// word returns the 64-bit word at p.
func (x *eventFake) word(p gpu.Ptr) uint64 {
	x.t.Helper()
	b, err := x.gpu.Bytes(cuda.DevicePtr(p), 8)
	if err != nil {
		x.t.Fatal(err)
	}
	return word(b, 0).Load()
}

// TestEventKernels launches events of kernels with and without a dispatcher, which parks now and then.
func TestEventKernels(t *testing.T) {
	for _, c := range []struct {
		name, text string
		dispatched bool
		why        string
	}{{"dispatcher", eventsPTX, true, ""}, {"host", hostPTX, false, "unsupported-instruction"}} {
		t.Run(c.name, func(t *testing.T) {
			x := newEventFake(t, gpu.ContextOptions{})
			p := alloc(t, x.c, 8)
			l := x.register(c.text, "add", uint64(p))
			for i := range 60 {
				x.idle.Store(i%3 == 2)
				x.fire(l)
				if i%5 == 4 {
					x.fire(l)
					x.complete(l)
				}
				x.complete(l)
			}
			if got := x.word(p); got != 72 {
				t.Errorf("%d events have run, want 72", got)
			}
			n := x.counts()
			if n.Started != 72 || n.Ended != 72 || n.Dropped != 0 || n.Kernel != "add" || n.P99 == 0 && !c.dispatched || n.Why.String() != c.why {
				t.Errorf("counts %+v", n)
			}
			if got := x.launches.Load() > 0; got != c.dispatched {
				t.Errorf("%d dispatchers launched", x.launches.Load())
			}
		})
	}
}

// TestEventKernelsPark: what waits for kernels to end has the dispatcher leave before, and come back
// for the next ring.
func TestEventKernelsPark(t *testing.T) {
	x := newEventFake(t, gpu.ContextOptions{})
	p := alloc(t, x.c, 8)
	l := x.register(eventsPTX, "add", uint64(p))
	host := make([]byte, hostPage)
	for name, f := range map[string]func() error{
		"load and unload": func() error {
			m, err := x.c.LoadModule([]byte(eventsPTX))
			if err != nil {
				return err
			}
			return m.Unload()
		},
		"free": func() error { return x.c.Free(alloc(t, x.c, 64)) },
		"unregister memory": func() error {
			release, err := x.c.RegisterHost(host)
			if err != nil {
				return err
			}
			return release()
		},
	} {
		x.fire(l)
		x.complete(l)
		if n := x.counts(); !n.Resident {
			t.Fatalf("%s: not resident: %+v", name, n)
		}
		if err := f(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	x.fire(l)
	x.complete(l)
	if got := x.word(p); got != 4 {
		t.Errorf("%d events have run, want 4", got)
	}
}

// TestEventKernelsHeld: nothing is on the GPU while the context is held, and rings of then are taken
// later.
func TestEventKernelsHeld(t *testing.T) {
	for _, text := range []string{eventsPTX, hostPTX} {
		x := newEventFake(t, gpu.ContextOptions{})
		p := alloc(t, x.c, 8)
		l := x.register(text, "add", uint64(p))
		x.fire(l)
		x.complete(l)
		if err := x.c.HoldEvents(true); err != nil {
			t.Fatal(err)
		}
		x.await("nothing on the GPU", func() bool { return !x.c.eventsBusy() })
		x.fire(l)
		x.c.KickEvents()
		if err := x.c.Free(alloc(t, x.c, 64)); err != nil { // whose end kicks, too
			t.Fatal(err)
		}
		if x.resident.Load() > 0 || x.word(p) != 1 {
			t.Error("a held context has events")
		}
		if err := x.c.HoldEvents(false); err != nil {
			t.Fatal(err)
		}
		x.complete(l)
	}
}

// TestEventKernelsPolled: while whoever holds the events looks at doorbells, rings ask for no kick and
// are told of at the end, also of a kernel whose dispatcher leaves only then. They are taken when the
// hold ends, and later rings kick again.
func TestEventKernelsPolled(t *testing.T) {
	for _, text := range []string{eventsPTX, hostPTX} {
		for _, early := range []bool{false, true} {
			x := newEventFake(t, gpu.ContextOptions{})
			x.idle.Store(true)
			p := alloc(t, x.c, 8)
			l := x.register(text, "add", uint64(p))
			if x.c.PollEvents(true) || !l.Launch() {
				t.Fatal("polled without a hold")
			}
			x.c.KickEvents()
			x.complete(l)
			if err := x.c.HoldEvents(true); err != nil {
				t.Fatal(err)
			}
			gone := func() bool {
				_ = x.c.turnEvents()
				return !x.c.eventsBusy() && !x.counts().Resident
			}
			if early {
				x.c.PollEvents(true)
			}
			x.await("nothing on the GPU", gone)
			x.c.PollEvents(true)
			if l.Launch() {
				t.Error("a ring asks for a kick while the doorbells are polled")
			}
			if x.word(p) != 1 || !x.c.PollEvents(false) {
				t.Error("a ring of a held kernel is not told of, or was taken")
			}
			if err := x.c.HoldEvents(false); err != nil {
				t.Fatal(err)
			}
			x.complete(l)
			x.await("the event's count", func() bool { return x.word(p) == 2 })
			if err := x.c.HoldEvents(true); err != nil {
				t.Fatal(err)
			}
			x.await("nothing on the GPU", gone)
			x.c.PollEvents(true)
			if err := x.c.HoldEvents(false); err != nil {
				t.Fatal(err)
			}
			if !l.Launch() {
				t.Error("a ring asks for no kick after the hold")
			}
			x.c.KickEvents()
			x.complete(l)
		}
	}
}

// TestUnregisterEventKernel: events that were rung for before end, later rings are stray, and the
// number can be used again.
func TestUnregisterEventKernel(t *testing.T) {
	for _, text := range []string{eventsPTX, hostPTX} {
		x := newEventFake(t, gpu.ContextOptions{})
		p := alloc(t, x.c, 8)
		for round := range uint64(3) {
			l := x.register(text, "add", uint64(p))
			x.fire(l)
			x.complete(l)
			if err := x.c.HoldEvents(true); err != nil {
				t.Fatal(err)
			}
			x.await("nothing on the GPU", func() bool { return !x.c.eventsBusy() })
			x.fire(l)
			gone, err := x.c.UnregisterEventKernel(eventNumber)
			if gone || err != nil {
				t.Fatalf("with an event that was rung for: gone %v, %v", gone, err)
			}
			x.await("the kernel to be ending", func() bool { return l.State() == abi.EventEnding })
			l.Ring()
			l.Ring()
			if err := x.c.HoldEvents(false); err != nil {
				t.Fatal(err)
			}
			x.complete(l)
			x.await("the kernel to be gone", func() bool {
				gone, err = x.c.UnregisterEventKernel(eventNumber)
				return errors.Is(err, gpu.ErrNotFound)
			})
			if got := x.word(p); got != 2*(round+1) {
				t.Errorf("%d events have run", got)
			}
			if s := l.State(); s != abi.EventUnregistered {
				t.Errorf("the page says %v", s)
			}
		}
		x.register(text, "add", uint64(p))
		if n := x.counts(); n.Stray != 6 {
			t.Errorf("counts %+v, want 6 stray rings", n)
		}
		if n := len(x.c.eventBerths()); n != 1 {
			t.Errorf("%d streams for one kernel at a time", n)
		}
	}
}

// TestEventTimes: the times of events that the host launched are told once, also when their kernel is
// gone.
func TestEventTimes(t *testing.T) {
	x := newEventFake(t, gpu.ContextOptions{})
	p := alloc(t, x.c, 8)
	l := x.register(hostPTX, "add", uint64(p))
	for range 3 {
		x.fire(l)
		x.complete(l)
	}
	times := func() (n int, since time.Duration) {
		t.Helper()
		since, err := x.c.EventTimes(func(start, end time.Duration) {
			if end <= start {
				t.Errorf("from %v to %v", start, end)
			}
			n++
		})
		if err != nil {
			t.Fatal(err)
		}
		return n, since
	}
	x.await("the events to have ended", func() bool { return x.counts().Ended == 3 })
	x.fire(l)
	x.complete(l)
	x.await("the kernel to be gone", func() bool {
		_, err := x.c.UnregisterEventKernel(eventNumber)
		return errors.Is(err, gpu.ErrNotFound)
	})
	if n, since := times(); n != 4 || since != 0 {
		t.Errorf("%d times, since %v", n, since)
	}
	if n, _ := times(); n != 0 {
		t.Errorf("%d times are told again", n)
	}
}

// TestEventKernelFaults: an event that faults or does not end poisons the context, which names the
// kernel, and the page says that the kernel has failed.
func TestEventKernelFaults(t *testing.T) {
	for _, text := range []string{eventsPTX, hostPTX} {
		for name, endless := range map[string]bool{"bad": false, "hang": true} {
			x := newEventFake(t, gpu.ContextOptions{KernelTimeLimit: 200 * time.Millisecond})
			l := x.register(text, name, 0)
			x.fire(l)
			x.await("the fault", func() bool { return x.c.Fault() != nil })
			f, ok := errors.AsType[*gpu.Fault](x.c.Fault())
			if !ok || f.Kernel != name || errors.Is(f, gpu.ErrTimeLimit) != endless {
				t.Errorf("%s: %v", name, x.c.Fault())
			}
			x.await("the page to say so", func() bool { return l.State() == abi.EventFailed })
		}
	}
}

// TestCloseWithEventKernels: a dispatcher leaves when its context is closed.
func TestCloseWithEventKernels(t *testing.T) {
	x := newEventFake(t, gpu.ContextOptions{})
	p := alloc(t, x.c, 8)
	l := x.register(eventsPTX, "add", uint64(p))
	x.fire(l)
	x.complete(l)
	if err := x.c.Close(); err != nil {
		t.Error(err)
	}
	if x.resident.Load() > 0 || l.State() != abi.EventFailed {
		t.Errorf("%d dispatchers are there, the page says %v", x.resident.Load(), l.State())
	}
}

// TestRegisterEventKernelFails: where a step of a registration fails nothing is kept.
func TestRegisterEventKernelFails(t *testing.T) {
	for _, method := range []string{"StreamCreate", "EventCreate", "MemHostRegister"} {
		x := newEventFake(t, gpu.ContextOptions{})
		m, err := x.c.LoadModule([]byte(eventsPTX))
		if err != nil {
			t.Fatal(err)
		}
		f, err := m.Function("add")
		if err != nil {
			t.Fatal(err)
		}
		one := gpu.Dim3{X: 1, Y: 1, Z: 1}
		k := &gpu.EventKernel{Number: eventNumber, Entries: 4, Launch: gpu.Launch{Function: f, Grid: one, Block: one, Params: make([]byte, 8)}}
		x.gpu.Fail(method, cuda.ErrOutOfMemory)
		if err := x.c.RegisterEventKernel(k); !errors.Is(err, gpu.ErrOutOfMemory) {
			t.Errorf("%s fails: %v", method, err)
		}
		x.gpu.Fail(method, 0)
		if n := x.c.events.table.Used(); n != 0 || x.c.hasEvents() {
			t.Errorf("%s fails, and %d rows are taken", method, n)
		}
		if err := x.c.RegisterEventKernel(k); err != nil {
			t.Errorf("after %s: %v", method, err)
		}
	}
}
