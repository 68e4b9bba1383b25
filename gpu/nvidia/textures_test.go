package nvidia

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
)

var byteTexel = gpu.Texel{Format: gpu.FormatUint8, Channels: 1}

// An array is zeroed before anything can see it, takes copies of boxes both ways, and is charged
// until the GPU does not use it any more.
func TestArrays(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{MemoryLimit: 64 << 20})
	ch := channelOf(t, c)
	_, before, err := freeAndTotal(c)
	if err != nil {
		t.Fatal(err)
	}
	made, err := c.NewArray(gpu.ArrayShape{Width: 4096, Height: 1500, Texel: byteTexel}) // filled in two parts
	if err != nil {
		t.Fatal(err)
	}
	a := made.(*array)
	if _, now, err := freeAndTotal(c); err != nil || now != before-a.Bytes() || a.Bytes() < 4096*1500 {
		t.Errorf("%d bytes free, %d before an array of %d: %v", now, before, a.Bytes(), err)
	}
	src := []byte{1, 2, 3, 4, 5, 6}
	f, err := ch.CopyArray(&gpu.ArrayBox{Array: a, X: 2, Y: 1, Width: 3, Height: 2, Depth: 1, Memory: gpu.Side{Host: src, Pitch: 3}})
	if o := ran(t, ch, f, err); o.Err != nil {
		t.Fatal(o.Err)
	}
	want := make([]byte, 4096*1500)
	copy(want[4096+2:], src[:3])
	copy(want[2*4096+2:], src[3:])
	if !bytes.Equal(x.gpu.Array(a.a), want) {
		t.Error("the array is not zero but for the box")
	}
	p := alloc(t, c, 16)
	f, err = ch.CopyArray(&gpu.ArrayBox{Array: a, X: 3, Y: 1, Width: 2, Height: 2, Depth: 1, Out: true, Memory: gpu.Side{Ptr: p, Pitch: 8}})
	if o := ran(t, ch, f, err); o.Err != nil {
		t.Fatal(o.Err)
	}
	if got := read(t, ch, p, 16); !bytes.Equal(got[:2], []byte{2, 3}) || !bytes.Equal(got[8:10], []byte{5, 6}) {
		t.Errorf("copied out %v", got)
	}
	for what, b := range map[string]gpu.ArrayBox{
		"past the array": {Array: a, X: 4095, Width: 2, Height: 1, Depth: 1, Memory: gpu.Side{Host: src}},
		"too few bytes":  {Array: a, Width: 4, Height: 2, Depth: 1, Memory: gpu.Side{Host: src, Pitch: 4}},
	} {
		if _, err := ch.CopyArray(&b); !errors.Is(err, gpu.ErrInvalidCopy) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// It stays while a kernel that was launched before runs.
	if _, err := ch.Launch(kernel(t, c, "hang", 0)); err != nil {
		t.Fatal(err)
	}
	if err := a.Free(); err != nil {
		t.Fatal(err)
	}
	if c.Freed() != a.charge || x.gpu.Array(a.a) == nil {
		t.Error("the array went while a kernel could use it")
	}
	x.unblock()
	f, err = ch.CopyOut(make([]byte, 1), p)
	ran(t, ch, f, err)
	settled(c)
	if x.gpu.Array(a.a) != nil {
		t.Error("the array is still there")
	}
}

// settled waits until what was freed is not in use any more.
func settled(c *Context) {
	for c.Freed() > 0 {
		runtime.Gosched()
	}
}

func freeAndTotal(c *Context) (total, free uint64, err error) {
	free, total, err = c.Memory()
	return total, free, err
}

// Textures and surfaces reach the driver as they were described.
func TestTextures(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	made, err := c.NewArray(gpu.ArrayShape{Width: 8, Height: 8, Depth: 6, Cube: true, Surface: true, Texel: byteTexel})
	if err != nil {
		t.Fatal(err)
	}
	a := made.(*array)
	p := alloc(t, c, 4096)
	m, err := c.LoadModule([]byte(kernelsPTX))
	if err != nil {
		t.Fatal(err)
	}
	s := gpu.Sampling{Address: [3]gpu.AddressMode{gpu.AddressBorder, gpu.AddressWrap, gpu.AddressMirror}, Filter: gpu.FilterLinear, Normalized: true, Border: [4]float32{1, 2, 3, 4}}
	tex, err := c.NewTexture(gpu.TextureMemory{Array: a}, s)
	if err != nil {
		t.Fatal(err)
	}
	want := cuda.TextureDesc{AddressMode: [3]int32{3, 0, 2}, FilterMode: 1, Flags: cuda.TextureNormalizedCoordinates, BorderColor: [4]float32{1, 2, 3, 4}}
	if o := x.gpu.Object(tex.Handle()); o.Texture != want || o.Resource != *cuda.OfArray(a.a) {
		t.Errorf("%+v", o)
	}
	linear, err := c.NewTexture(gpu.TextureMemory{Ptr: p, Width: 16, Texel: gpu.Texel{Format: gpu.FormatInt16, Channels: 2}}, gpu.Sampling{AsInteger: true})
	if err != nil {
		t.Fatal(err)
	}
	if o := x.gpu.Object(linear.Handle()); o.Texture.Flags != cuda.TextureReadAsInteger || o.Resource != *cuda.OfLinear(cuda.DevicePtr(p), 9, 2, 64) {
		t.Errorf("%+v", o)
	}
	pitched, err := c.NewTexture(gpu.TextureMemory{Ptr: p, Width: 16, Height: 4, Pitch: 64, Texel: gpu.Texel{Format: gpu.FormatFloat, Channels: 1}}, gpu.Sampling{})
	if err != nil {
		t.Fatal(err)
	}
	if o := x.gpu.Object(pitched.Handle()); o.Resource != *cuda.OfPitched(cuda.DevicePtr(p), 0x20, 1, 16, 4, 64) {
		t.Errorf("%+v", o)
	}
	surface, err := c.NewSurface(a)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.BindReference(m, "image", tex), c.BindReference(m, "canvas", surface)); err != nil {
		t.Fatal(err)
	}
	if b := x.gpu.Bound("image"); b.Texture != want {
		t.Errorf("bound %+v", b)
	}
	if b := x.gpu.Bound("canvas"); b.Array != a.a {
		t.Errorf("bound %+v", b)
	}
	for name, want := range map[string]bool{"image": false, "canvas": true} {
		if surface, err := c.Reference(m, name); surface != want || err != nil {
			t.Errorf("%s is a surface: %v, %v", name, surface, err)
		}
	}
	if _, err := c.Reference(m, "-"); !errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("look for what is not there: %v", err)
	}
	if err := c.BindReference(m, "-", tex); !errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("bind what is not there: %v", err)
	}
	if err := errors.Join(tex.Free(), linear.Free(), pitched.Free(), surface.Free(), a.Free()); err != nil {
		t.Fatal(err)
	}
	settled(c)
	if n := x.gpu.Textures(); n != 0 {
		t.Errorf("%d textures are left", n)
	}
}

// TestTextureFailures: a call that fails leaves no charge and no object.
func TestTextureFailures(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{MemoryLimit: 32 << 20})
	plain, err := c.NewArray(gpu.ArrayShape{Width: 8, Texel: byteTexel})
	if err != nil {
		t.Fatal(err)
	}
	p := alloc(t, c, 64)
	_, before, err := freeAndTotal(c)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
		settled(c)
		if _, free, err := freeAndTotal(c); err != nil || free != before {
			t.Errorf("%s: %d bytes free, %d before, %v", what, free, before, err)
		}
	}
	_, err = c.NewArray(gpu.ArrayShape{Width: 8})
	check("no format", err, gpu.ErrInvalidTexture)
	_, err = c.NewArray(gpu.ArrayShape{Width: 8192, Height: 8192, Texel: byteTexel})
	check("beyond the limit", err, gpu.ErrMemoryLimit)
	_, err = c.NewSurface(plain)
	check("a surface of an ordinary array", err, gpu.ErrInvalidTexture)
	_, err = c.NewTexture(gpu.TextureMemory{Ptr: p, Width: 65, Texel: byteTexel}, gpu.Sampling{})
	check("past the memory", err, gpu.ErrInvalidPtr)
	_, err = c.NewTexture(gpu.TextureMemory{Ptr: p, Width: 8, Texel: gpu.Texel{Format: gpu.FormatUint32, Channels: 1}}, gpu.Sampling{Filter: gpu.FilterLinear})
	check("integers interpolated", err, gpu.ErrInvalidTexture)
	for method, f := range map[string]func() error{
		"ArrayCreate":     func() error { _, err := c.NewArray(gpu.ArrayShape{Width: 8, Texel: byteTexel}); return err },
		"Memcpy3DAsync":   func() error { _, err := c.NewArray(gpu.ArrayShape{Width: 8, Texel: byteTexel}); return err },
		"TexObjectCreate": func() error { _, err := c.NewTexture(gpu.TextureMemory{Array: plain}, gpu.Sampling{}); return err },
	} {
		x.gpu.Fail(method, cuda.ErrOutOfMemory)
		err := f()
		x.gpu.Fail(method, 0)
		check(method, err, gpu.ErrOutOfMemory)
	}
}
