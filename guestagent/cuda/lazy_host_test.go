package cuda

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"vgpud/guestagent/driver"
	"vgpud/guestagent/driver/drivertest"
	"vgpud/mediator/vgpu/abi"
)

// incPTX is a module with a kernel that the device in memory has, and one that it has not.
const incPTX = `.version 7.0
.target sm_80
.address_size 64
.visible .entry inc(.param .u64 p, .param .u32 n) { ret; }
.visible .entry missing() { ret; }
` + "\x00"

// floating is a host whose GPUs are alike, and a thread of a program there.
type floating struct {
	*drivertest.Host
	t  *testing.T
	c  *Call
	mu sync.Mutex
	// asked has what each context asked for, 0 for all of the guest's memory; refuse is how many more
	// are refused.
	asked  []uint64
	refuse int
}

const floatingMemory = 1 << 30

// Write implements driver.Bus: contexts are counted as they are made.
func (h *floating) Write(off, v uint32) error {
	for slot := range 4 {
		if off != uint32(abi.ContextSlot(slot, abi.ContextControl)) || v != uint32(abi.ControlCreate) {
			continue
		}
		h.mu.Lock()
		refused := h.refuse > 0
		if refused {
			h.refuse--
		}
		h.mu.Unlock()
		if refused {
			// An allocation that the host refuses: a request for no memory.
			if err := h.Host.Write(uint32(abi.ContextSlot(slot, abi.ContextFlags)), uint32(abi.ContextFloats)); err != nil {
				return err
			}
			for reg := abi.TaskMemoryLo; reg <= abi.TaskThreads; reg += 4 {
				if err := h.Host.Write(uint32(abi.TaskRow(slot, reg)), 0); err != nil {
					return err
				}
			}
			break
		}
		flags, err := h.Read(uint32(abi.ContextSlot(slot, abi.ContextFlags)))
		if err != nil {
			return err
		}
		n := uint64(0)
		if flags != 0 {
			lo, _ := h.Read(uint32(abi.TaskRow(slot, abi.TaskMemoryLo)))
			hi, _ := h.Read(uint32(abi.TaskRow(slot, abi.TaskMemoryHi)))
			n = uint64(lo) | uint64(hi)<<32
		}
		h.mu.Lock()
		h.asked = append(h.asked, n)
		h.mu.Unlock()
	}
	return h.Host.Write(off, v)
}

// contexts returns what each context so far asked for, without those for questions.
func (h *floating) contexts() []uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.asked), func(n uint64) bool { return n == questionBytes })
}

// call calls a function as a program does: by its name.
func (h *floating) call(name string, args ...uint64) Result {
	h.t.Helper()
	r, _ := h.c.done(h.callOnce(name, args...))
	return r
}

func (h *floating) callOnce(name string, args ...uint64) Result {
	h.t.Helper()
	n, ok := functionNumbers[name]
	if !ok {
		h.t.Fatalf("no function %s", name)
	}
	w := new(words)
	copy(w[:], args)
	return h.c.d.Call(n, h.c.t, unsafe.Pointer(w))
}

const sevens = "\x07\x07\x07\x07\x07\x07\x07\x07"

// pointed is the memory whose addresses were arguments. Go's collector does not see an address that is
// a number, and would free the memory, or move it with its stack, during the call.
var pointed struct {
	sync.Mutex
	all []unsafe.Pointer
}

// word returns an address as an argument. The memory there stays until the tests end.
func word(p unsafe.Pointer) uint64 {
	pointed.Lock()
	defer pointed.Unlock()
	pointed.all = append(pointed.all, p)
	return uint64(uintptr(p))
}

// newFloating returns a program that has a context.
func newFloating(t *testing.T, o drivertest.Options) (h *floating, x Handle) {
	t.Helper()
	o.SharedBytes, o.MemoryBytes = 32<<20, floatingMemory
	if os.Getenv("XDG_CACHE_HOME") == "" {
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
	}
	if o.Features == 0 {
		o.Features = abi.AllFeatures &^ abi.FeatureTriggeredEvents &^ abi.FeatureIdentity &^ abi.FeatureLimits
	}
	o.Kernels = map[string]drivertest.Kernel{
		"inc": drivertest.Increment,
	}
	host, err := drivertest.NewHost(o)
	if err != nil {
		t.Fatal(err)
	}
	h = &floating{Host: host, t: t}
	d := New(Options{Hooks: silent{t}, Open: func(context.Context) (driver.Bus, error) { return h, nil }})
	want(t, "init", d.Init(), Success)
	h.c = d.thread(NewThread(1, 16))
	t.Cleanup(func() {
		d.endContexts()
		if err := d.gpu.Close(); err != nil {
			t.Error(err)
		}
	})
	want(t, "create", h.call("cuCtxCreate_v2", word(unsafe.Pointer(&x)), 0, 0), Success)
	return h, x
}

// load loads a module and returns it and its kernel.
func (h *floating) load(image, name string) (m, f Handle) {
	h.t.Helper()
	text := append([]byte(name), 0)
	want(h.t, "load", h.call("cuModuleLoadData", word(unsafe.Pointer(&m)), word(startOf([]byte(image)))), Success)
	want(h.t, "function", h.call("cuModuleGetFunction", word(unsafe.Pointer(&f)), uint64(m), word(startOf(text))), Success)
	return m, f
}

// register returns a register of the task table's first row.
func (h *floating) register(reg int) uint32 {
	h.t.Helper()
	v, err := h.Read(uint32(abi.TaskRow(0, reg)))
	if err != nil {
		h.t.Fatal(err)
	}
	return v
}

func (h *floating) alloc(n uint64) (p uint64) {
	h.t.Helper()
	want(h.t, "allocate", h.call("cuMemAlloc_v2", word(unsafe.Pointer(&p)), n), Success)
	return p
}

func (h *floating) launch(f Handle, p uint64, n uint32) Result {
	params := []Pointer{Pointer(&p), Pointer(&n)}
	return h.call("cuLaunchKernel", uint64(f), 1, 1, 1, 1, 1, 1, 0, 0, word(unsafe.Pointer(&params[0])), 0)
}

func (h *floating) read(p uint64, n int) []byte {
	h.t.Helper()
	b := make([]byte, n)
	want(h.t, "copy back", h.call("cuMemcpyDtoH_v2", word(startOf(b)), p, uint64(n)), Success)
	return b
}

// newNeverReady returns a host on which no context that asks for a GPU gets one, a thread of a program
// there, and the program's driver.
func newNeverReady(t *testing.T) (h *floating, d *Driver) {
	t.Helper()
	host, err := drivertest.NewHost(drivertest.Options{
		SharedBytes: 32 << 20, MemoryBytes: floatingMemory, NeverReady: true, Features: abi.AllFeatures &^ abi.FeatureIdentity,
	})
	if err != nil {
		t.Fatal(err)
	}
	h = &floating{Host: host, t: t}
	d = New(Options{Hooks: silent{t}, Open: func(context.Context) (driver.Bus, error) { return h, nil }})
	want(t, "init", d.Init(), Success)
	h.c = d.thread(NewThread(1, 16))
	d.addresses.Store(&driver.AddressRange{Base: drivertest.PlacesBase, Bytes: drivertest.PlacesBytes, Grain: drivertest.PlacesGrain})
	return h, d
}
