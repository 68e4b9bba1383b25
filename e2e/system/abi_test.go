package system

import (
	"errors"
	"testing"
	"time"

	"vgpud/e2e/host"
	"vgpud/gpu/corpus"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
	"vgpud/mediator/vgpu/abi"
)

// older is the bus of a driver of version 1.1: it sees nothing of later ones.
type older struct{ driver.Bus }

func (b older) Read(offset uint32) (uint32, error) {
	v, err := b.Bus.Read(offset)
	switch offset {
	case abi.RegVersion:
		v = min(v, uint32(abi.Version1_1))
	case abi.RegFeaturesLo, abi.RegAcceptFeaturesLo:
		v &= uint32(abi.FeatureWindowAddresses-1) &^ uint32(abi.FeatureLimits)
	}
	return v, err
}

// attachOlder opens a guest's device with a driver of version 1.1.
func attachOlder(t *testing.T, socket string) *driver.Device {
	t.Helper()
	bus, err := driver.DialVFIOUser(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := driver.Open(t.Context(), older{bus})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return dev
}

// TestGuestOf1_1 checks that this host serves a driver of version 1.1.
func TestGuestOf1_1(t *testing.T) {
	h := host.Start(t, "dfq")
	dev := attachOlder(t, h.NewVM(api.VMSpec{Name: "guest"}).Socket)
	if v := dev.Info().Version; v != abi.Version1_1 {
		t.Errorf("version %v", v)
	}
	works(t, contextOf(t, dev))
}

// TestIdentity checks that a guest's UUID outlives its device and differs from another guest's, that
// the attributes are the GPU's, and that limits are the context's.
func TestIdentity(t *testing.T) {
	h := host.Start(t, "dfq")
	vm := h.NewVM(api.VMSpec{Name: "guest"})
	dev := h.Attach(vm.Socket)
	first, other := dev.Info().UUID, h.NewGuest(api.VMSpec{Name: "other"}).Info().UUID
	if first == [abi.UUIDBytes]byte{} || first == other {
		t.Errorf("UUIDs %x and %x", first, other)
	}
	gpu, beside := contextOf(t, dev), contextOf(t, dev)
	all, err := gpu.DeviceAttributes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range abi.DeviceAttributes1_1 {
		v, err := gpu.DeviceAttribute(t.Context(), a)
		if err != nil || int32(v) != all[a] || v == 0 && a != abi.DeviceComputeMinor {
			t.Errorf("attribute %d is %d and %d: %v", a, all[a], v, err)
		}
	}
	if all[9] != 64<<10 || all[83] != 0 {
		t.Errorf("constant memory of %d bytes, managed memory %d", all[9], all[83])
	}
	if err := gpu.SetLimit(t.Context(), abi.LimitPrintfBytes, 3<<20); err != nil {
		t.Fatal(err)
	}
	for c, want := range map[*driver.Context]uint64{gpu: 3 << 20, beside: 1 << 20} {
		if v, err := c.Limit(t.Context(), abi.LimitPrintfBytes); err != nil || v != want {
			t.Errorf("a print buffer of %d bytes, want %d: %v", v, want, err)
		}
	}
	if err := gpu.SetLimit(t.Context(), abi.LimitSyncDepth, 1); !errors.Is(err, abi.StatusNotSupported) {
		t.Errorf("a limit of what there is not: %v", err)
	}
	works(t, gpu)
	if err := dev.Close(); err != nil {
		t.Fatal(err)
	}
	if again := h.Attach(vm.Socket).Info().UUID; again != first {
		t.Errorf("UUID %x, before %x", again, first)
	}
}

// doublePTX has a kernel that doubles n words.
const doublePTX = `
.version 8.0
.target sm_80
.address_size 64

.visible .entry double(.param .u64 to, .param .u64 from)
{
	.reg .b32 %r<3>;
	.reg .b64 %rd<6>;
	ld.param.u64 %rd1, [to];
	ld.param.u64 %rd2, [from];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd3, %r1, 4;
	add.s64 %rd4, %rd2, %rd3;
	ld.global.u32 %r2, [%rd4];
	add.u32 %r2, %r2, %r2;
	add.s64 %rd5, %rd1, %rd3;
	st.global.u32 [%rd5], %r2;
	ret;
}
`

// TestZeroCopy checks that kernels of two contexts work on the same host memory, at the address that
// the memory has in the program.
func TestZeroCopy(t *testing.T) {
	h := host.Start(t, "dfq")
	dev := h.NewGuest(api.VMSpec{Name: "guest"})
	m, err := dev.AllocHost(t.Context(), 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	for i := range 4 {
		if err := m.Use(func(b []byte) { b[4*i] = byte(i + 1) }); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		gpu := contextOf(t, dev)
		p, err := gpu.HostAddress(t.Context(), m)
		if err != nil || uintptr(p) != m.Addr() {
			t.Fatalf("at %#x for kernels, at %#x here: %v", uint64(p), m.Addr(), err)
		}
		mod, err := gpu.LoadModule(t.Context(), []byte(doublePTX))
		if err != nil {
			t.Fatal(err)
		}
		double, err := mod.Function(t.Context(), "double")
		if err != nil {
			t.Fatal(err)
		}
		run, err := gpu.Own().Launch(t.Context(), double, driver.Dim{X: 1}, driver.Dim{X: 4}, 0, p, p)
		if err != nil {
			t.Fatal(err)
		}
		if err := run.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Use(func(b []byte) {
		for i := range 4 {
			if b[4*i] != byte(4*(i+1)) {
				t.Errorf("word %d is %d", i, b[4*i])
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// TestNotOffered checks that a driver refuses what its host does not offer, and works without.
func TestNotOffered(t *testing.T) {
	h := host.Start(t, "dfq")
	dev := attachOlder(t, h.NewVM(api.VMSpec{Name: "guest"}).Socket)
	m, err := dev.AllocHost(t.Context(), 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	gpu := contextOf(t, dev)
	for name, call := range map[string]func() error{
		"HostAddress":  func() error { _, err := gpu.HostAddress(t.Context(), m); return err },
		"AddressRange": func() error { _, err := gpu.AddressRange(t.Context()); return err },
		"AllocAt":      func() error { return gpu.AllocAt(t.Context(), 1<<44, 4096) },
		"NewTrigger":   func() error { _, err := gpu.NewTrigger(t.Context()); return err },
		"Limit":        func() error { _, err := gpu.Limit(t.Context(), abi.LimitHeapBytes); return err },
		"SetLimit":     func() error { return gpu.SetLimit(t.Context(), abi.LimitHeapBytes, 1<<20) },
	} {
		if err := call(); !errors.Is(err, abi.StatusNotSupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	works(t, gpu)
}

// TestChosenAddresses checks that two contexts have memory at the same address, of their own each,
// and that it counts like any other.
func TestChosenAddresses(t *testing.T) {
	h := host.Start(t, "dfq")
	dev := h.NewGuest(api.VMSpec{Name: "guest", MemoryLimitBytes: 64 << 20})
	var contexts []*driver.Context
	for i := range 2 {
		gpu := contextOf(t, dev)
		contexts = append(contexts, gpu)
		r, err := gpu.AddressRange(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p := r.Base + driver.Ptr(8*r.Grain)
		free, _, err := gpu.MemInfo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := gpu.AllocAt(t.Context(), p, 16<<20); err != nil {
			t.Fatal(err)
		}
		if now, _, err := gpu.MemInfo(t.Context()); err != nil || free-now != 16<<20 {
			t.Errorf("16 MiB take %d bytes: %v", free-now, err)
		}
		if err := gpu.AllocAt(t.Context(), p+driver.Ptr(r.Grain), r.Grain); !errors.Is(err, abi.StatusInvalidAddress) {
			t.Errorf("allocated twice: %v", err)
		}
		if err := gpu.CopyIn(t.Context(), p, []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		if err := gpu.AllocAt(t.Context(), p+driver.Ptr(64<<20), 64<<20); !errors.Is(err, abi.StatusMemoryLimit) && !errors.Is(err, abi.StatusOutOfMemory) {
			t.Errorf("beyond the limit: %v", err)
		}
	}
	for i, gpu := range contexts {
		r, err := gpu.AddressRange(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p := r.Base + driver.Ptr(8*r.Grain)
		b := make([]byte, 2)
		if err := gpu.CopyOut(t.Context(), b, p); err != nil || b[0] != byte(i) || b[1] != 0 {
			t.Errorf("context %d has % x: %v", i, b, err)
		}
		if err := gpu.Free(t.Context(), p); err != nil {
			t.Error(err)
		}
		works(t, gpu)
	}
}

// TestHostFunction checks that commands behind an await run when the program has triggered the event,
// that a guest which never triggers uses nothing while others get all of the GPU, and that its device
// can be closed.
func TestHostFunction(t *testing.T) {
	h := host.Start(t, "dfq")
	dev := h.NewGuest(api.VMSpec{Name: "guest"})
	gpu := contextOf(t, dev)
	stream, err := gpu.NewChannel(t.Context(), driver.ChannelOptions{})
	if err != nil {
		t.Fatal(err)
	}
	done, err := gpu.NewTrigger(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l := newLoad(t, gpu, "scan", corpus.Trivial)
	for i := range uint64(3) {
		before, err := stream.Fence(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Await(t.Context(), done, i+1); err != nil {
			t.Fatal(err)
		}
		ran := make(chan error, 1)
		go func() { ran <- l.Run(t.Context(), stream) }()
		if err := before.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ran:
			t.Fatalf("what is behind the function has run before it: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
		if _, err := gpu.Own().Trigger(t.Context(), done, i+1); err != nil {
			t.Fatal(err)
		}
		if err := <-ran; err != nil {
			t.Fatal(err)
		}
	}
	// From here on it never triggers.
	waits, err := stream.Await(t.Context(), done, ^uint64(0))
	if err != nil {
		t.Fatal(err)
	}
	behind, err := stream.Fence(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	works(t, gpu) // in the context's own channel
	h.Until("the guest idle", func() error {
		if h.VM("guest").Active {
			return errors.New("it is active")
		}
		return nil
	})
	b := newBystander(t, h)
	b.goesOn()
	h.Until("a round charged that began after the guest had worked", func() error {
		if h.VM("bystander").GPUSeconds == 0 {
			return errors.New("the bystander was charged nothing")
		}
		return nil
	})
	used := h.VM("guest").GPUSeconds
	for range 10 {
		b.goesOn()
	}
	if v := h.VM("guest"); v.GPUSeconds != used || v.Active {
		t.Errorf("a guest that waits for itself has used %v s, active: %v", v.GPUSeconds-used, v.Active)
	}
	if waits.Done() || behind.Done() {
		t.Error("the wait has ended by itself")
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
	b.goesOn()
}
