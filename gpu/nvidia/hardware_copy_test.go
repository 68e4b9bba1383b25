package nvidia

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"vgpud/gpu"
)

// Fresh memory is zero whatever it held before. Copies of all kinds put every byte in its place.
func TestHardwareCopies(t *testing.T) {
	_, c := hardwareContext(t, gpu.ContextOptions{})
	ch, other := channelOf(t, c), channelOf(t, c)
	const n = 3 << 20
	for range 8 {
		p, err := c.Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, n)
		f, err := other.CopyOut(got, p)
		if o := ran(t, other, f, err); o.Err != nil {
			t.Fatal(o.Err)
		}
		if i := bytes.IndexFunc(got, func(r rune) bool { return r != 0 }); i >= 0 {
			t.Fatalf("byte %d of fresh memory is not zero", i)
		}
		f, err = ch.Set(p, 0xa5a5a5a5, 4, n/4)
		ran(t, ch, f, err)
		if err := c.Free(p); err != nil {
			t.Fatal(err)
		}
	}
	a, err := c.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{1, 4, 64, cellBytes, cellBytes + 1, 4096, 65537, n} {
		in, out := make([]byte, size), make([]byte, size)
		for i := range in {
			in[i] = byte(r.Uint32())
		}
		if _, err := ch.CopyIn(a+gpu.Ptr(n-size), in); err != nil {
			t.Fatal(err)
		}
		if _, err := ch.Copy(b, a+gpu.Ptr(n-size), uint64(size)); err != nil {
			t.Fatal(err)
		}
		f, err := ch.CopyOut(out, b)
		if o := ran(t, ch, f, err); o.Err != nil || !bytes.Equal(in, out) {
			t.Errorf("%d bytes in, across and out: %v", size, o.Err)
		}
	}
	// A box from the program's memory into a larger one on the GPU, and back.
	const w, h, d = 13, 5, 3
	in, out := make([]byte, 20*7*d), make([]byte, 17*6*d)
	for i := range in {
		in[i] = byte(r.Uint32())
	}
	f, err := ch.Copy3D(&gpu.Copy3D{Dst: gpu.Side{Ptr: a, Pitch: 32, Rows: 8}, Src: gpu.Side{Host: in, Pitch: 20, Rows: 7}, Width: w, Height: h, Depth: d})
	ran(t, ch, f, err)
	f, err = ch.Copy3D(&gpu.Copy3D{Dst: gpu.Side{Host: out, Pitch: 17, Rows: 6}, Src: gpu.Side{Ptr: a, Pitch: 32, Rows: 8}, Width: w, Height: h, Depth: d})
	if o := ran(t, ch, f, err); o.Err != nil {
		t.Error(o.Err)
	}
	for z := range d {
		for y := range h {
			if !bytes.Equal(in[(z*7+y)*20:][:w], out[(z*6+y)*17:][:w]) {
				t.Errorf("row %d of slice %d differs", y, z)
			}
		}
	}
	// Boxes of one row or one slice need no pitch.
	for _, box := range []gpu.Copy3D{{Width: 9, Height: 1, Depth: 1}, {Width: 9, Height: 3, Depth: 1}} {
		box.Dst, box.Src = gpu.Side{Ptr: b, Pitch: 10 * min(1, box.Height-1)}, gpu.Side{Host: in, Pitch: 10 * min(1, box.Height-1)}
		f, err := ch.Copy3D(&box)
		if o := ran(t, ch, f, err); o.Err != nil {
			t.Errorf("%+v: %v", box, o.Err)
		}
	}
	for _, width := range []int{1, 2, 4} {
		f, err := ch.Set2D(a, 64, 0x11223344, width, 5, 4)
		if o := ran(t, ch, f, err); o.Err != nil {
			t.Errorf("set rows of width %d: %v", width, o.Err)
		}
		got := make([]byte, 64*4)
		f, err = ch.CopyOut(got, a)
		ran(t, ch, f, err)
		want := []byte{0x44, 0x33, 0x22, 0x11}[:width]
		for y := range 4 {
			if !bytes.Equal(got[64*y:][:5*width], bytes.Repeat(want, 5)) {
				t.Errorf("row %d of width %d: %x", y, width, got[64*y:][:24])
			}
		}
	}
	for _, bad := range []struct {
		p gpu.Ptr
		n int
	}{{a + n - 1, 2}, {a - 1, 1}, {0, 1}, {1 << 60, 1}} {
		if _, err := ch.CopyIn(bad.p, make([]byte, bad.n)); !errors.Is(err, gpu.ErrInvalidPtr) {
			t.Errorf("copy to %#x: %v", uint64(bad.p), err)
		}
	}
	if err := c.Free(a + 1); !errors.Is(err, gpu.ErrInvalidPtr) {
		t.Errorf("free of what was not allocated: %v", err)
	}
}

func TestHardwareLimits(t *testing.T) {
	_, c := hardwareContext(t, gpu.ContextOptions{MemoryLimit: 64 << 20})
	free, total, err := c.Memory()
	if err != nil || total != 64<<20 || free >= total {
		t.Errorf("free %d of %d, %v", free, total, err)
	}
	t.Logf("a context takes %d of its limit", total-free)
	if _, err := c.Alloc(60 << 20); !errors.Is(err, gpu.ErrMemoryLimit) {
		t.Errorf("more than the limit: %v", err)
	}
	p, err := c.Alloc(32 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Free(p); err != nil {
		t.Fatal(err)
	}
	for c.Freed() > 0 { // the zeroing comes before the free
		time.Sleep(10 * time.Microsecond)
	}
	if _, err = c.Alloc(32 << 20); err != nil {
		t.Error("what was freed is not there:", err)
	}
	if _, err := c.LoadModule([]byte(".version 7.0\n.target sm_70\n.address_size 64\n.global .b8 big[67108864];\n")); !errors.Is(err, gpu.ErrOutOfMemory) {
		t.Errorf("a module with a variable larger than the limit: %v", err)
	}
	if _, err := c.LoadModule([]byte(".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k() { nonsense; }\n")); !errors.Is(err, gpu.ErrInvalidModule) {
		t.Errorf("PTX that can't be: %v", err)
	} else {
		t.Log(err)
	}
}
