package executor

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

// registrar is a context that registers memory, or fails to.
type registrar struct {
	gpu.Context
	refuse     error
	registered []byte
	closed     bool
	released   bool // after it was closed
}

func (r *registrar) RegisterHost(mem []byte) (func() error, error) {
	if r.refuse != nil {
		return nil, r.refuse
	}
	r.registered = mem
	return func() error { r.released = r.closed; return nil }, nil
}

func (r *registrar) Close() error {
	r.closed = true
	return nil
}

func TestStagingIsRegistered(t *testing.T) {
	mem := make([]byte, 16)
	var log bytes.Buffer
	populated := 0
	r := &registrar{}
	before := func() {
		populated++
		if r.registered != nil {
			t.Error("it has its pages after it was registered")
		}
	}
	s := register(r, mem[4:], before, slog.New(slog.NewTextHandler(&log, nil)))
	if err := s.close(r); err != nil || len(r.registered) != 12 || &r.registered[0] != &mem[4] || !r.released {
		t.Errorf("registered %d bytes, released %v, %v", len(r.registered), r.released, err)
	}
	r = &registrar{refuse: errors.New("no pages")}
	if err := register(r, mem, before, slog.New(slog.NewTextHandler(&log, nil))).close(r); err != nil || !strings.Contains(log.String(), "no pages") {
		t.Errorf("%v, logged %q", err, log.String())
	}
	plain := struct{ gpu.Context }{&registrar{}} // registers nothing
	if err := register(plain, mem, before, slog.New(slog.DiscardHandler)).close(plain); err != nil || populated != 2 {
		t.Errorf("%v, and %d times memory has got pages, want 2", err, populated)
	}
}

// registering is a GPU whose contexts record the registered host memory.
type registering struct {
	gpu.Device
	registered chan []byte
}

type noting struct {
	gpu.Context
	of *registering
}

func (r *registering) NewContext(ctx context.Context, o gpu.ContextOptions) (gpu.Context, error) {
	c, err := r.Device.NewContext(ctx, o)
	return &noting{c, r}, err
}

func (n *noting) RegisterHost(mem []byte) (func() error, error) {
	n.of.registered <- mem
	return func() error { return nil }, nil
}

// A process registers all windows and no ring. It registers nothing if rings may lie among the
// windows, as with a vm or a guest's driver of an older version.
func TestRingsAreNotRegistered(t *testing.T) {
	header := abi.HeaderBytes(testChannels)
	for _, c := range []struct{ rings, want int }{
		{testRings, sharedBytes - header - testRings},
		{abi.PageSize, sharedBytes - header - abi.PageSize},
		{0, 0},
		{sharedBytes - header, 0},
		{sharedBytes, 0},
	} {
		d, err := soft.NewLocal(soft.Options{MemoryBytes: 1 << 20, Priority: -1})
		if err != nil {
			t.Fatal(err)
		}
		g := &registering{Device: d, registered: make(chan []byte, 1)}
		vm, ended := serve(t, ipc.Setup{Guest: "g", Header: header, Rings: c.rings}, func(context.Context, ipc.GPU) (gpu.Device, error) { return g, nil })
		if m, err := vm.Receive(); err != nil || m.Kind != ipc.KindReady || m.Error != "" {
			t.Fatalf("%+v, %v", m, err)
		}
		if err := vm.Shut(0); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		close(g.registered)
		if mem := <-g.registered; len(mem) != c.want {
			t.Errorf("with %d bytes of rings, %d bytes are registered, want the last %d", c.rings, len(mem), c.want)
		}
		shared := make([]byte, sharedBytes)
		mem := registrable(&ipc.Setup{Header: header, Rings: c.rings}, shared, slog.New(slog.DiscardHandler))
		if len(mem) != c.want || c.want > 0 && &mem[len(mem)-1] != &shared[sharedBytes-1] {
			t.Errorf("with %d bytes of rings, %d bytes are the GPU's, want the last %d", c.rings, len(mem), c.want)
		}
	}
}

// TestPopulate: memory has its pages before it is registered, and a process that ends does not wait
// for all of them.
func TestPopulate(t *testing.T) {
	const size = 8 * populatePiece
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	resident := func() (n int) {
		t.Helper()
		pages := make([]byte, size/abi.PageSize)
		if _, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&mem[0])), size, uintptr(unsafe.Pointer(&pages[0]))); e != 0 {
			t.Fatal(e)
		}
		for _, p := range pages {
			n += int(p & 1)
		}
		return n
	}
	log := slog.New(slog.DiscardHandler)
	wait, stop := populate(mem, log)
	stop()
	some := resident()
	if some%(populatePiece/abi.PageSize) != 0 {
		t.Errorf("%d pages, which are no whole pieces", some)
	}
	wait()
	wait, stop = populate(mem, log)
	wait()
	if n := resident(); n != size/abi.PageSize {
		t.Errorf("%d of %d pages", n, size/abi.PageSize)
	}
	stop()
}

// A kernel's time is what the guest is charged while there is a daemon, and the host's time while
// there is none.
func TestMeter(t *testing.T) {
	page, err := ipc.NewControlPage()
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	var c clock.Sim
	c.Advance(time.Hour)
	page.SetBill(ipc.Bill{Used: time.Minute})
	m := newMeter(page, &c)
	step := func(beats bool, used, d, want time.Duration) {
		t.Helper()
		before := m.elapsed()
		page.SetBill(ipc.Bill{Used: used})
		c.Advance(d)
		if beats {
			page.Beat(c.Now())
		}
		if got := m.elapsed() - before; got != want {
			t.Errorf("a bill of %v after %v: %v, want %v", used, d, got, want)
		}
	}
	page.Beat(c.Now())
	step(true, time.Minute+300*time.Millisecond, time.Second, 300*time.Millisecond)
	step(true, time.Minute+300*time.Millisecond, 32*time.Second, time.Second)
	step(true, 0, 32*time.Second, time.Second)
	// The daemon may be late, and charge that when it comes.
	step(false, 0, ipc.SuspensionLimit, ipc.SuspensionLimit/32)
	step(true, time.Second, time.Second/32, time.Second)
	step(false, time.Second, ipc.SuspensionLimit, ipc.SuspensionLimit/32)
	step(false, time.Second, time.Second, time.Second)
}
