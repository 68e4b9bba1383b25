package soft

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"vgpud/gpu"
)

// TestCopyBox compares copies of boxes of all shapes, to the GPU and back, with copies byte by
// byte.
func TestCopyBox(t *testing.T) {
	r := newRig(t, newDevice(t, Options{Priority: -1}), gpu.ContextOptions{})
	const size = 4096
	mem := r.alloc(size)
	rapid.Check(t, func(t *rapid.T) {
		small := rapid.Uint64Range(0, 8)
		b := gpu.Copy3D{Width: small.Draw(t, "width"), Height: small.Draw(t, "height"), Depth: small.Draw(t, "depth")}
		side := func(name string) gpu.Side {
			return gpu.Side{
				Pitch: b.Width + rapid.SampledFrom([]uint64{0, 0, 1, 5}).Draw(t, name+" gap"),
				Rows:  b.Height + rapid.SampledFrom([]uint64{0, 0, 1, 2}).Draw(t, name+" rows"),
			}
		}
		host, device, back := side("host"), side("device"), side("back")
		src, got, want := rapid.SliceOfN(rapid.Byte(), size, size).Draw(t, "source"), make([]byte, size), make([]byte, size)
		for z := range b.Depth {
			for y := range b.Height {
				for x := range b.Width {
					want[(z*back.Rows+y)*back.Pitch+x] = src[(z*host.Rows+y)*host.Pitch+x]
				}
			}
		}
		host.Host, device.Ptr, back.Host = src, mem, got
		in, out := b, b
		in.Src, in.Dst = host, device
		out.Src, out.Dst = device, back
		for _, box := range []*gpu.Copy3D{&in, &out} {
			f, err := r.ch.Copy3D(box)
			if err != nil {
				t.Fatal(err)
			}
			if o := r.wait(f); o.Err != nil {
				t.Fatal(o.Err)
			}
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%+v: got %x, want %x", b, got, want)
		}
	})
	short := &gpu.Copy3D{Width: 8, Height: 2, Depth: 1, Dst: gpu.Side{Ptr: mem, Pitch: 8}, Src: gpu.Side{Host: make([]byte, 15), Pitch: 8}}
	if _, err := r.ch.Copy3D(short); !errors.Is(err, gpu.ErrInvalidCopy) {
		t.Errorf("a box from less than it takes: %v", err)
	}
}

// BenchmarkCopyBox copies a tile of a matrix, 256 rows of 1 KiB, to the GPU.
func BenchmarkCopyBox(b *testing.B) {
	r := newRig(b, newDevice(b, Options{Priority: -1}), gpu.ContextOptions{})
	const width, pitch, rows = 1 << 10, 4 << 10, 256
	box := gpu.Copy3D{Width: width, Height: rows, Depth: 1}
	box.Dst = gpu.Side{Ptr: r.alloc(width * rows), Pitch: width}
	box.Src = gpu.Side{Host: make([]byte, pitch*rows), Pitch: pitch}
	b.SetBytes(width * rows)
	b.ReportAllocs()
	for b.Loop() {
		f, err := r.ch.Copy3D(&box)
		if err != nil {
			b.Fatal(err)
		}
		if o := r.wait(f); o.Err != nil {
			b.Fatal(o.Err)
		}
	}
}
