package soft

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
	"vgpud/gpu/soft/ring"
)

// rawChannel is a channel whose ring the test writes directly.
type rawChannel struct {
	e        *Engine
	c        ContextDriver
	info     ContextInfo
	mod      ModuleInfo
	id       uint32
	p        *ring.Producer
	mem      []byte
	doorbell *Doorbell
}

func newRaw(t testing.TB, e *Engine) *rawChannel {
	t.Helper()
	c, info, err := e.NewContext(t.Context(), gpu.ContextOptions{MemoryLimit: 1 << 20, KernelTimeLimit: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	r := &rawChannel{e: e, c: c, info: info}
	if r.mod, err = c.LoadModule(t.Context(), []byte(source), 0); err != nil {
		t.Fatal(err)
	}
	ch, err := c.NewChannel()
	if err != nil {
		t.Fatal(err)
	}
	r.id = ch.ID
	if r.doorbell, err = e.NewDoorbell(); err != nil {
		t.Fatal(err)
	}
	if r.p, err = ring.NewProducer(ch.Ring, func() { Ring(r.doorbell.File()) }); err != nil {
		t.Fatal(err)
	}
	if r.mem, err = unix.Mmap(int(ch.Ring.Fd()), 0, ring.Bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(ch.Ring.Close(), info.Memory.Close()); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rawChannel) close(t testing.TB) {
	t.Helper()
	if err := errors.Join(r.c.Close(), r.p.Close(), unix.Munmap(r.mem), r.doorbell.Close()); err != nil {
		t.Fatal(err)
	}
}

func (r *rawChannel) kernel(t testing.TB, name string) uint32 {
	t.Helper()
	for _, k := range r.mod.Kernels {
		if k.Attributes.Name == name {
			return k.ID
		}
	}
	t.Fatalf("no kernel %s", name)
	return 0
}

func (r *rawChannel) wait(t testing.TB, seq uint64) ring.Outcome {
	t.Helper()
	for r.p.Completed() < seq && !r.p.Dead() {
		if err := r.p.Wait(t.Context(), seq, 0); err != nil {
			t.Fatal(err)
		}
	}
	o, ok := r.p.Outcome(seq)
	if !ok {
		return ring.Outcome{Code: ring.Dropped}
	}
	return o
}

func startEngine(t testing.TB, o Options) *Engine {
	t.Helper()
	o.MemoryBytes = 16 << 20
	e, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// The engine validates ring entries.
func TestBadEntriesAreRefused(t *testing.T) {
	r := newRaw(t, startEngine(t, Options{}))
	defer r.close(t)
	unit := gpu.Dim3{X: 1, Y: 1, Z: 1}
	store, empty := r.kernel(t, "store"), r.kernel(t, "empty")
	for name, e := range map[string]ring.Entry{
		"no such kernel":   {Kernel: 12345, Grid: unit, Block: unit},
		"no blocks":        {Kernel: empty, Grid: gpu.Dim3{X: 1, Y: 0, Z: 1}, Block: unit},
		"too many blocks":  {Kernel: empty, Grid: gpu.Dim3{X: 1, Y: 65536, Z: 1}, Block: unit},
		"no threads":       {Kernel: empty, Grid: unit},
		"too many threads": {Kernel: empty, Grid: unit, Block: gpu.Dim3{X: 1024, Y: 2, Z: 1}},
		"wrapping":         {Kernel: empty, Grid: unit, Block: gpu.Dim3{X: 1 << 31, Y: 1 << 31, Z: 4}},
		"too much shared":  {Kernel: empty, Grid: unit, Block: unit, Shared: 1 << 20},
		"wrapping shared":  {Kernel: empty, Grid: unit, Block: unit, Shared: math.MaxUint64},
		"few parameters":   {Kernel: store, Grid: unit, Block: unit, Params: []byte{1}},
	} {
		seq, ok := r.p.Put(&e)
		if !ok {
			t.Fatal("the ring is full")
		}
		if o := r.wait(t, seq); o.Code != ring.BadLaunch {
			t.Errorf("%s: code %d, want BadLaunch", name, o.Code)
		}
	}
	seq, _ := r.p.Put(&ring.Entry{Kernel: empty, Grid: unit, Block: unit})
	if o := r.wait(t, seq); o.Code != ring.OK {
		t.Errorf("a good launch after the bad ones: code %d", o.Code)
	}
}

// A producer that corrupts its counts loses its channel, and no other channel is affected.
func TestImpossibleCountEndsTheChannel(t *testing.T) {
	e := startEngine(t, Options{})
	bad, good := newRaw(t, e), newRaw(t, e)
	defer good.close(t)
	binary.LittleEndian.PutUint64(bad.mem[64:], 1<<40) // the put count, on the second cache line of the file
	Ring(bad.doorbell.File())
	for !bad.p.Dead() {
		runtime.Gosched()
	}
	unit := gpu.Dim3{X: 1, Y: 1, Z: 1}
	seq, _ := good.p.Put(&ring.Entry{Kernel: good.kernel(t, "empty"), Grid: unit, Block: unit})
	if o := good.wait(t, seq); o.Code != ring.OK {
		t.Errorf("the other channel's launch: code %d", o.Code)
	}
	if _, err := bad.c.NewChannel(); err != nil {
		t.Errorf("another channel of the same context: %v", err)
	}
	bad.close(t)
}

// A program that rings its doorbell without end cannot use up the pacing thread's time.
func TestEndlessRinging(t *testing.T) {
	e := startEngine(t, Options{})
	r := newRaw(t, e)
	defer r.close(t)
	doorbell, err := e.NewDoorbell()
	if err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				Ring(doorbell.File())
			}
		}
	}()
	unit := gpu.Dim3{X: 1, Y: 1, Z: 1}
	for range 50 {
		seq, _ := r.p.Put(&ring.Entry{Kernel: r.kernel(t, "empty"), Grid: unit, Block: unit})
		if o := r.wait(t, seq); o.Code != ring.OK {
			t.Fatalf("code %d", o.Code)
		}
	}
	close(stop)
	<-stopped
	if err := doorbell.Close(); err != nil {
		t.Error(err)
	}
}

// The client can't shrink the files that the GPU has mapped.
func TestSharedFilesAreSealed(t *testing.T) {
	e := startEngine(t, Options{})
	c, info, err := e.NewContext(t.Context(), gpu.ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ch, err := c.NewChannel()
	if err != nil {
		t.Fatal(err)
	}
	regs, err := e.Registers()
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]*os.File{"memory": info.Memory, "ring": ch.Ring, "registers": regs} {
		if err := f.Truncate(0); err == nil {
			t.Errorf("%s could be shrunk", name)
		}
		if err := f.Truncate(1 << 40); err == nil {
			t.Errorf("%s could be grown", name)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The host gets back every page without an allocation, and no page is touched only to clear it.
func TestFreedPagesGoBack(t *testing.T) {
	e := startEngine(t, Options{})
	c, info, err := e.newContext("", gpu.ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pages := func() int64 {
		var st unix.Stat_t
		if err := unix.Fstat(int(info.Memory.Fd()), &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512 / pageSize
	}
	for _, size := range []uint64{100, 256, 4096, 5000, 60 << 10, 1 << 20} {
		for _, touch := range []bool{false, true} {
			var all []gpu.Ptr
			for range min(100, 8<<20/size) {
				p, err := c.Alloc(size)
				if err != nil {
					t.Fatal(err)
				}
				for off := uint64(p) - c.base; touch && off < uint64(p)-c.base+size; off++ {
					c.data[off] = 1
				}
				all = append(all, p)
			}
			// Every second one is freed first, so that the last allocation of a page may be freed
			// in either order.
			for first := range 2 {
				for i := first; i < len(all); i += 2 {
					if err := c.Free(all[i]); err != nil {
						t.Fatal(err)
					}
				}
			}
			if n := pages(); n != 0 {
				t.Errorf("%d pages are left of allocations of %d bytes, touched: %v", n, size, touch)
			}
		}
	}
	if err := errors.Join(info.Memory.Close(), c.Close()); err != nil {
		t.Error(err)
	}
}

// The engine survives any bytes in a ring, and another context's launch completes.
func FuzzRingEntries(f *testing.F) {
	e, err := Start(Options{MemoryBytes: 16 << 20})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := e.Close(); err != nil {
			f.Error(err)
		}
	})
	f.Add(uint8(1), []byte{0, 0x10, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 32, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0})
	f.Add(uint8(3), []byte{3, 0x10, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Add(uint8(200), []byte{})
	const entries = 4096 + ring.Entries*64
	f.Fuzz(func(t *testing.T, put uint8, raw []byte) {
		r := newRaw(t, e)
		copy(r.mem[entries:], raw)
		binary.LittleEndian.PutUint64(r.mem[64:], uint64(put))
		Ring(r.doorbell.File())
		for end := uint64(put); r.p.Completed() < end && !r.p.Dead(); {
			if err := r.p.Wait(t.Context(), end, 0); err != nil {
				t.Fatal(err)
			}
		}
		r.close(t)
		u, err := e.Usage()
		if err != nil || len(u.Groups) != 0 {
			t.Fatalf("%d contexts are left, %v", len(u.Groups), err)
		}
	})
}
