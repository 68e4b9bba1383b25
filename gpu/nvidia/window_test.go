package nvidia

import (
	"bytes"
	"encoding/binary"
	"errors"
	"log/slog"
	"testing"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
	"vgpud/gpu/nvidia/rm"
	"vgpud/gpu/nvidia/rm/abi"
	"vgpud/gpu/nvidia/rm/rmtest"
)

// windowed returns a device whose allocations exist in the kernel driver too, among others.
func windowed(t *testing.T) (*fake, *rmtest.Driver, *rmtest.Context) {
	t.Helper()
	k := rmtest.New()
	own, err := k.NewContext(8, true)
	if err != nil {
		t.Fatal(err)
	}
	x := newFake(t, Options{Kernel: k, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if x.kernelClient, err = rm.Open(k, rm.GPU{PCI: rmtest.PCI}); err != nil {
		t.Fatal(err)
	}
	own.AddMemory(make([]byte, 16)) // too small
	own.AddMemory(make([]byte, windowTakes))
	x.gpu.OnAlloc = func(mem []byte) {
		own.AddMemory(mem)
		own.AddMemory(make([]byte, windowTakes)) // made meanwhile
	}
	return x, k, own
}

// A store to the window is in the GPU's memory at once. After the context's end it has no effect.
func TestWindow(t *testing.T) {
	x, k, own := windowed(t)
	before := k.Descriptors()
	c := x.context(t, gpu.ContextOptions{})
	p, size, w := c.Window()
	if w == nil {
		t.Fatal("there is none")
	}
	mem, err := x.gpu.Bytes(cuda.DevicePtr(p), size)
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range mem {
		if b != 0 {
			t.Fatalf("byte %d is %#x at first", i, b)
		}
	}
	ch := channelOf(t, c)
	if got := read(t, ch, p, int(size)); !bytes.Equal(got, make([]byte, size)) {
		t.Error("copied out, it is not zero at first")
	}
	w.Store32(size-4, 0xfeedf00d)
	if got := binary.LittleEndian.Uint32(mem[size-4:]); got != 0xfeedf00d {
		t.Errorf("stored, the GPU has %#x", got)
	}
	binary.LittleEndian.PutUint32(mem[8:], 0xc0ffee)
	if got := w.Load32(8); got != 0xc0ffee {
		t.Errorf("loaded %#x of what the GPU has", got)
	}
	if err := c.Free(p); !errors.Is(err, gpu.ErrInvalidPtr) {
		t.Errorf("it was freed: %v", err)
	}
	if n := own.Mapped(); n != 1 {
		t.Errorf("%d of the driver's mappings, want the window's alone", n)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	w.Store32(size-4, 1)
	if got := binary.LittleEndian.Uint32(mem[size-4:]); got != 0xfeedf00d {
		t.Errorf("stored when the context is over: the GPU has %#x", got)
	}
	if got := w.Load32(8); got != 0 {
		t.Errorf("loaded %#x when the context is over", got)
	}
	if _, _, w := c.Window(); w != nil || own.Mapped() != 0 || k.Descriptors() != before {
		t.Errorf("closed: window %v, %d mappings, %d descriptors of %d", w, own.Mapped(), k.Descriptors(), before)
	}
}

// A context works without a window.
func TestContextWithoutWindow(t *testing.T) {
	for name, spoil := range map[string]func(*fake, *rmtest.Driver){
		"its object is not found": func(x *fake, _ *rmtest.Driver) { x.gpu.OnAlloc = nil },
		"no memory":               func(x *fake, _ *rmtest.Driver) { x.gpu.Fail("MemAlloc", cuda.ErrOutOfMemory) },
		"its channels are out of reach": func(_ *fake, k *rmtest.Driver) {
			k.Refuse(abi.NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO, abi.NV_ERR_NOT_SUPPORTED)
		},
	} {
		t.Run(name, func(t *testing.T) {
			x, k, own := windowed(t)
			spoil(x, k)
			c := x.context(t, gpu.ContextOptions{})
			if _, _, w := c.Window(); w != nil {
				t.Error("it has one")
			}
			if n := own.Mapped(); n != 0 {
				t.Errorf("%d mappings are left", n)
			}
			if n := x.gpu.Allocated(); n != 0 {
				t.Errorf("%d bytes are left of the GPU's memory", n)
			}
			if p := alloc(t, c, 64); p == 0 {
				t.Error("nothing is allocated")
			}
		})
	}
}
