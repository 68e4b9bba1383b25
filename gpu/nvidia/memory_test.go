package nvidia

import (
	"bytes"
	"errors"
	"runtime"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
)

// budget is an owner's memory.
type budget struct {
	limit uint64
	mu    sync.Mutex
	used  uint64
}

func (b *budget) Take(n uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > b.limit-b.used {
		return false
	}
	b.used += n
	return true
}

func (b *budget) Give(n uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
}

func (b *budget) Room() (free, total uint64) { return b.limit - b.taken(), b.limit }

func (b *budget) taken() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

func TestMemoryIsCounted(t *testing.T) {
	x := newFake(t, Options{})
	b := &budget{limit: 32 << 20}
	c := x.context(t, gpu.ContextOptions{MemoryLimit: 16 << 20, Budget: b})
	start := b.taken()
	if start != 2<<20 {
		t.Errorf("a context takes %d bytes for printing and heap, want 2 MiB", start)
	}
	p := alloc(t, c, 3<<20)
	if b.taken() != start+4<<20 {
		t.Errorf("3 MiB take %d bytes, want the driver's 4 MiB", b.taken()-start)
	}
	if free, total, err := c.Memory(); free != 10<<20 || total != 16<<20 || err != nil {
		t.Errorf("%d free of %d, %v", free, total, err)
	}
	if _, err := c.Alloc(12 << 20); !errors.Is(err, gpu.ErrMemoryLimit) {
		t.Errorf("over the limit: %v", err)
	}
	x.gpu.Fail("MemAllocAsync", cuda.ErrOutOfMemory)
	if _, err := c.Alloc(1 << 20); !errors.Is(err, gpu.ErrOutOfMemory) || errors.Is(err, gpu.ErrMemoryLimit) {
		t.Errorf("a GPU that is full: %v", err)
	}
	x.gpu.Fail("MemAllocAsync", 0)
	held := x.gpu.Allocated()
	x.gpu.Fail("MemsetAsync", cuda.ErrOutOfMemory)
	if _, err := c.Alloc(1 << 20); !errors.Is(err, gpu.ErrOutOfMemory) {
		t.Errorf("memory that can't be zeroed: %v", err)
	}
	x.gpu.Fail("MemsetAsync", 0)
	if err := c.do("wait", func() error { return c.drv.StreamSynchronize(c.zero.stream) }); err != nil {
		t.Fatal(err)
	}
	if n := x.gpu.Allocated(); n != held {
		t.Errorf("memory that can't be zeroed keeps %d bytes", n-held)
	}
	if err := c.Free(p); err != nil {
		t.Error(err)
	}
	if err := c.Free(p); !errors.Is(err, gpu.ErrInvalidPtr) {
		t.Errorf("freed twice: %v", err)
	}
	if b.taken() != start {
		t.Errorf("%d bytes are not given back", b.taken()-start)
	}
	if _, err := c.LoadModule([]byte(".version 7.0\n.target sm_70\n.address_size 64\n.global .b8 big[20000000];\n")); !errors.Is(err, gpu.ErrMemoryLimit) {
		t.Errorf("a module's variable over the limit: %v", err)
	}
	if _, err := c.LoadModule([]byte("nonsense")); !errors.Is(err, gpu.ErrInvalidModule) || !bytes.Contains([]byte(err.Error()), []byte("line 1")) {
		t.Errorf("PTX that is none: %v", err)
	}
	if b.taken() != start {
		t.Errorf("modules that were not loaded keep %d bytes", b.taken()-start)
	}
	if err := c.Close(); err != nil || b.taken() != 0 {
		t.Errorf("%d bytes are taken after the end, %v", b.taken(), err)
	}
}

// Local memory is charged for all threads that the GPU holds, once.
func TestLocalMemoryIsCounted(t *testing.T) {
	x := newFake(t, Options{})
	b := &budget{limit: 1 << 30}
	c := x.context(t, gpu.ContextOptions{Budget: b})
	start := b.taken()
	a := x.gpu.Attributes["add"]
	a.Local, a.Params = 100, []int{8}
	x.gpu.Attributes["add"] = a
	for range 2 {
		m, err := c.LoadModule([]byte(kernelsPTX))
		if err != nil {
			t.Fatal(err)
		}
		size, _ := imageBytes([]byte(kernelsPTX))
		if got, want := b.taken()-start, 100*4*2048+charged(size); got != want {
			t.Errorf("%d bytes, want %d", got, want)
		}
		if err := m.Unload(); err != nil {
			t.Fatal(err)
		}
	}
}

// A module that we can't parse is charged by the decrease of the GPU's free memory.
func TestUnknownModuleIsCounted(t *testing.T) {
	x := newFake(t, Options{})
	b := &budget{limit: 16 << 20}
	c := x.context(t, gpu.ContextOptions{Budget: b})
	start := b.taken()
	m, err := c.LoadModule([]byte("a later PTX .global .b8 big[1000000]"))
	if err != nil {
		t.Fatal(err)
	}
	if got := b.taken() - start; got != 1_000_000 {
		t.Errorf("%d bytes are taken", got)
	}
	if err := m.Unload(); err != nil || b.taken() != start {
		t.Errorf("%d bytes are not given back, %v", b.taken()-start, err)
	}
	if _, err := c.LoadModule([]byte("a later PTX .global .b8 big[100000000]")); !errors.Is(err, gpu.ErrMemoryLimit) {
		t.Errorf("over the limit: %v", err)
	}
	if got := x.gpu.Allocated(); b.taken() != start || got != 0 {
		t.Errorf("%d bytes are taken, %d of the GPU's", b.taken()-start, got)
	}
}

// Freed memory stays until the commands queued before are done, including those of channels closed
// since.
func TestFreeWaitsOnTheGPU(t *testing.T) {
	for busy := range 3 {
		x := newFake(t, Options{})
		c := x.context(t, gpu.ContextOptions{})
		p, other := alloc(t, c, 1<<20), alloc(t, c, 8)
		read(t, channelOf(t, c), p, 8)
		for range busy {
			ch, err := c.NewChannel()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ch.Launch(kernel(t, c, "hang", 0)); err != nil {
				t.Fatal(err)
			}
			if err := ch.Close(); err != nil {
				t.Fatal(err)
			}
		}
		before := x.gpu.Allocated()
		if err := c.Free(p); err != nil {
			t.Fatal(err)
		}
		read(t, channelOf(t, c), other, 8) // memory that need not wait is freed meanwhile
		if got := x.gpu.Allocated(); busy > 0 && got != before {
			t.Errorf("%d bytes went while %d kernels may use them", before-got, busy)
		}
		if _, err := channelOf(t, c).CopyIn(p, []byte{1}); !errors.Is(err, gpu.ErrInvalidPtr) {
			t.Errorf("a copy to memory that was freed: %v", err)
		}
		x.unblock()
		for x.gpu.Allocated() != before-1<<20 {
			runtime.Gosched()
		}
	}
}

// Lookup of a pointer among random allocations agrees with a plain list.
func TestTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tab table
		model := map[uint64]uint64{}
		for range rapid.IntRange(0, 30).Draw(t, "steps") {
			base := 1 + 16*rapid.Uint64Range(0, 20).Draw(t, "base")
			if rapid.Bool().Draw(t, "add") {
				size := rapid.Uint64Range(1, 16).Draw(t, "size")
				tab.add(allocation{base: base, size: size})
				model[base] = size
			} else {
				_, ok := tab.remove(base)
				if _, want := model[base]; ok != want {
					t.Fatalf("removed %v, want %v", ok, want)
				}
				delete(model, base)
			}
			p, n := rapid.Uint64Range(0, 400).Draw(t, "p"), rapid.Uint64Range(0, 20).Draw(t, "n")
			want := n == 0
			for base, size := range model {
				want = want || p >= base && p+n <= base+size
			}
			if _, err := tab.find(gpu.Ptr(p), n); (err == nil) != want {
				t.Fatalf("%d bytes at %d: %v, want found %v", n, p, err, want)
			}
		}
		if _, err := tab.find(^gpu.Ptr(0), ^uint64(0)); err == nil {
			t.Fatal("found what can't be")
		}
	})
}

func TestGlobals(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	ch := channelOf(t, c)
	m, err := c.LoadModule([]byte(kernelsPTX))
	if err != nil {
		t.Fatal(err)
	}
	p, n, err := m.Global("table")
	if err != nil || n != 64 {
		t.Fatal(n, err)
	}
	f, err := ch.Set(p, 7, 1, 64)
	ran(t, ch, f, err)
	if got := read(t, ch, p, 64); got[63] != 7 {
		t.Errorf("%v", got)
	}
	if err := c.Free(p); !errors.Is(err, gpu.ErrInvalidPtr) {
		t.Errorf("a variable was freed: %v", err)
	}
	if _, _, err := m.Global("none"); !errors.Is(err, gpu.ErrNotFound) {
		t.Error(err)
	}
	if _, err := m.Function("none"); !errors.Is(err, gpu.ErrNotFound) {
		t.Error(err)
	}
	k := kernel(t, c, "add", 0)
	if err := k.Function.(*Function).m.Unload(); err != nil {
		t.Fatal(err)
	}
	if _, err := ch.Launch(k); !errors.Is(err, gpu.ErrInvalidLaunch) {
		t.Errorf("launch of a kernel of no module: %v", err)
	}
	if _, err := k.Function.Occupancy(32, 0); !errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("occupancy of a kernel of no module: %v", err)
	}
	if err := m.Unload(); err != nil {
		t.Fatal(err)
	}
	if _, err := ch.CopyIn(p, []byte{1}); !errors.Is(err, gpu.ErrInvalidPtr) {
		t.Errorf("a copy to a variable of no module: %v", err)
	}
}

func TestRegisteredMemory(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	ch := channelOf(t, c)
	p := alloc(t, c, 4096)
	mem := make([]byte, 8192)
	x.gpu.Fail("MemHostRegister", cuda.ErrNotPermitted)
	if _, err := c.RegisterHost(mem[4096:]); err == nil {
		t.Error("registered against the driver's will")
	}
	x.gpu.Fail("MemHostRegister", 0)
	release, err := c.RegisterHost(mem[4096:])
	if err != nil {
		t.Fatal(err)
	}
	if !c.host.contains(mem[4096:]) || !c.host.contains(mem[8191:]) || c.host.contains(mem[4095:4097]) || c.host.contains(mem[:1]) {
		t.Error("the registered memory is wrong")
	}
	mem[5000] = 9
	f, err := ch.CopyIn(p, mem[4096:])
	ran(t, ch, f, err)
	clear(mem)
	f, err = ch.CopyOut(mem[4096:], p)
	ran(t, ch, f, err)
	if mem[5000] != 9 {
		t.Error("copied wrongly")
	}
	if err := release(); err != nil || c.host.contains(mem[4096:]) {
		t.Error("still registered", err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
}
