package soft

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"vgpud/gpu"
)

const textureSource = `
.version 7.0
.target sm_80
.address_size 64

.global .texref image;
.global .surfref canvas;

.visible .entry fetch(.param .u64 out, .param .u64 t)
{
	.reg .b64 %rd<5>; .reg .b32 %r<8>; .reg .f32 %f<8>;
	ld.param.u64 %rd1, [out];
	ld.param.u64 %rd2, [t];
	mov.u32 %r1, %tid.x;
	cvt.rn.f32.u32 %f1, %r1;
	tex.2d.v4.f32.f32 {%f2,%f3,%f4,%f5}, [%rd2, {%f1, %f1}];
	mul.wide.u32 %rd3, %r1, 4;
	add.s64 %rd1, %rd1, %rd3;
	st.global.f32 [%rd1], %f2;
	ret;
}

.visible .entry legacy(.param .u64 out)
{
	.reg .b64 %rd<5>; .reg .b32 %r<8>; .reg .f32 %f<8>;
	ld.param.u64 %rd1, [out];
	mov.u32 %r1, %tid.x;
	tex.2d.v4.f32.s32 {%f2,%f3,%f4,%f5}, [image, {%r1, %r1}];
	shl.b32 %r2, %r1, 2;
	mov.u32 %r3, 0;
	sust.b.2d.b32.trap [canvas, {%r2, %r3}], {%r1};
	mul.wide.u32 %rd3, %r1, 4;
	add.s64 %rd1, %rd1, %rd3;
	st.global.f32 [%rd1], %f2;
	ret;
}
`

var floatTexel = gpu.Texel{Format: gpu.FormatFloat, Channels: 1}

func floatBytes(v ...float32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// An array is filled by copies of boxes, read through a texture with its border, and stored to
// through a surface, by handle and by the module's variables.
func TestArraysTexturesAndSurfaces(t *testing.T) {
	r := newRig(t, newDevice(t, Options{}), gpu.ContextOptions{})
	var err error
	if r.m, err = r.ctx.LoadModule([]byte(textureSource)); err != nil {
		t.Fatal(err)
	}
	c := r.ctx.(gpu.Texturing)
	a, err := c.NewArray(gpu.ArrayShape{Width: 4, Height: 3, Texel: floatTexel, Surface: true})
	if err != nil {
		t.Fatal(err)
	}
	copier := r.ch.(gpu.ArrayCopier)
	host := floatBytes(1, 2, 3, 4, 5, 6)
	r.wait(r.must(copier.CopyArray(&gpu.ArrayBox{Array: a, X: 4, Y: 1, Width: 12, Height: 2, Depth: 1, Memory: gpu.Side{Host: host, Pitch: 12, Rows: 2}})))
	tex, err := c.NewTexture(gpu.TextureMemory{Array: a}, gpu.Sampling{Address: [3]gpu.AddressMode{gpu.AddressBorder, gpu.AddressBorder}, Border: [4]float32{float32(math.Inf(1))}})
	if err != nil {
		t.Fatal(err)
	}
	out := r.alloc(16)
	read := func() string {
		b := make([]byte, 16)
		r.wait(r.must(r.ch.CopyOut(b, out)))
		return string(b)
	}
	if o := r.wait(r.launch("fetch", 1, 4, out, tex.Handle())); o.Err != nil {
		t.Fatal(o.Err)
	}
	if want := string(floatBytes(0, 1, 5, float32(math.Inf(1)))); read() != want {
		t.Errorf("read %q, want %q", read(), want)
	}
	surface, err := c.NewSurface(a)
	if err != nil {
		t.Fatal(err)
	}
	for name, object := range map[string]gpu.Texture{"image": tex, "canvas": surface} {
		if err := c.BindReference(r.m, name, object); err != nil {
			t.Fatal(err)
		}
	}
	if o := r.wait(r.launch("legacy", 1, 3, out)); o.Err != nil {
		t.Fatal(o.Err)
	}
	if got := read()[:12]; got != string(floatBytes(0, 1, 5)) {
		t.Errorf("read %q", got)
	}
	back := make([]byte, 16)
	r.wait(r.must(copier.CopyArray(&gpu.ArrayBox{Array: a, Width: 16, Height: 1, Depth: 1, Out: true, Memory: gpu.Side{Host: back}})))
	if string(back[:12]) != "\x00\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00" {
		t.Errorf("stored %q", back)
	}
	for what, err := range map[string]error{
		"a surface as texture": c.BindReference(r.m, "image", surface), "a texture as surface": c.BindReference(r.m, "canvas", tex),
	} {
		if !errors.Is(err, gpu.ErrInvalidTexture) {
			t.Errorf("bind %s: %v", what, err)
		}
	}
	for name, want := range map[string]bool{"image": false, "canvas": true} {
		if surface, err := c.Reference(r.m, name); surface != want || err != nil {
			t.Errorf("%s is a surface: %v, %v", name, surface, err)
		}
	}
	if _, err := c.Reference(r.m, "other"); !errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("look for what is not there: %v", err)
	}
	if err := c.BindReference(r.m, "other", tex); !errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("bind what is not there: %v", err)
	}
	free, _, err := r.ctx.Memory()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(tex.Free(), surface.Free(), a.Free()); err != nil {
		t.Fatal(err)
	}
	if after, _, err := r.ctx.Memory(); err != nil || after <= free {
		t.Errorf("%d bytes free after the array was freed, %d before, %v", after, free, err)
	}
	if err := tex.Free(); !errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("freed twice: %v", err)
	}
	var f *gpu.Fault
	if o := r.wait(r.launch("fetch", 1, 4, out, tex.Handle())); !errors.As(o.Err, &f) || f.Kind != gpu.FaultAddress || f.Space != "texture" {
		t.Errorf("a kernel with the handle of a texture that ended: %v", o.Err)
	}
}

// Arrays and textures that make no sense are refused.
func TestBadTextures(t *testing.T) {
	r := newRig(t, newDevice(t, Options{}), gpu.ContextOptions{MemoryLimit: 16 << 20})
	c := r.ctx.(gpu.Texturing)
	for _, s := range []gpu.ArrayShape{
		{}, {Width: 4}, {Width: 4, Texel: gpu.Texel{Format: 4, Channels: 1}}, {Width: 4, Texel: gpu.Texel{Format: gpu.FormatFloat, Channels: 3}},
		{Width: 1 << 18, Texel: floatTexel}, {Width: 4, Depth: 2, Texel: floatTexel}, {Width: 4, Height: 3, Depth: 6, Cube: true, Texel: floatTexel},
		{Width: 4, Height: 4, Depth: 5, Cube: true, Texel: floatTexel}, {Width: 4, Layered: true, Texel: floatTexel},
		{Width: 4, Height: 4, Depth: 4096, Layered: true, Texel: floatTexel}, {Width: 16385, Height: 1, Depth: 1, Texel: floatTexel}, {Width: 4, Gather: true, Texel: floatTexel},
	} {
		if _, err := c.NewArray(s); !errors.Is(err, gpu.ErrInvalidTexture) {
			t.Errorf("%+v: %v", s, err)
		}
	}
	if _, err := c.NewArray(gpu.ArrayShape{Width: 1 << 16, Height: 1 << 16, Texel: floatTexel}); !errors.Is(err, gpu.ErrOutOfMemory) {
		t.Errorf("16 GiB: %v", err)
	}
	a, err := c.NewArray(gpu.ArrayShape{Width: 4, Texel: gpu.Texel{Format: gpu.FormatUint32, Channels: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.NewSurface(a); !errors.Is(err, gpu.ErrInvalidTexture) {
		t.Errorf("a surface of an ordinary array: %v", err)
	}
	p := r.alloc(1024)
	for what, test := range map[string]struct {
		m    gpu.TextureMemory
		s    gpu.Sampling
		kind error
	}{
		"an address mode":         {gpu.TextureMemory{Array: a}, gpu.Sampling{Address: [3]gpu.AddressMode{4}}, gpu.ErrInvalidTexture},
		"a filter":                {gpu.TextureMemory{Array: a}, gpu.Sampling{Filter: 2}, gpu.ErrInvalidTexture},
		"integers interpolated":   {gpu.TextureMemory{Array: a}, gpu.Sampling{Filter: gpu.FilterLinear}, gpu.ErrInvalidTexture},
		"memory of another":       {gpu.TextureMemory{Ptr: p + 512, Width: 129, Texel: floatTexel}, gpu.Sampling{}, gpu.ErrInvalidPtr},
		"no memory":               {gpu.TextureMemory{Width: 1, Texel: floatTexel}, gpu.Sampling{}, gpu.ErrInvalidPtr},
		"an address between":      {gpu.TextureMemory{Ptr: p + 2, Width: 1, Texel: floatTexel}, gpu.Sampling{}, gpu.ErrInvalidTexture},
		"a pitch below the width": {gpu.TextureMemory{Ptr: p, Width: 64, Height: 2, Pitch: 128, Texel: floatTexel}, gpu.Sampling{}, gpu.ErrInvalidTexture},
		"a pitch that is odd":     {gpu.TextureMemory{Ptr: p, Width: 4, Height: 2, Pitch: 20, Texel: floatTexel}, gpu.Sampling{}, gpu.ErrInvalidTexture},
		"too many texels":         {gpu.TextureMemory{Ptr: p, Width: 1 << 30, Texel: floatTexel}, gpu.Sampling{}, gpu.ErrInvalidTexture},
		"rows beyond the memory":  {gpu.TextureMemory{Ptr: p, Width: 4, Height: 65, Pitch: 32, Texel: floatTexel}, gpu.Sampling{}, gpu.ErrInvalidPtr},
	} {
		if _, err := c.NewTexture(test.m, test.s); !errors.Is(err, test.kind) {
			t.Errorf("%s: %v, want %v", what, err, test.kind)
		}
	}
	for _, b := range []gpu.ArrayBox{
		{X: 12, Width: 8, Height: 1, Depth: 1}, {Y: 1, Width: 4, Height: 1, Depth: 1}, {Width: 4, Height: 1, Depth: 2}, {X: 2, Width: 4, Height: 1, Depth: 1},
		{X: math.MaxUint64 - 1, Width: 4, Height: 1, Depth: 1}, {Width: 4, Height: 1, Depth: 1, Z: math.MaxUint64},
	} {
		b.Array, b.Memory = a, gpu.Side{Host: make([]byte, 64), Pitch: 64, Rows: 64}
		if _, err := r.ch.(gpu.ArrayCopier).CopyArray(&b); !errors.Is(err, gpu.ErrInvalidCopy) {
			t.Errorf("%+v: %v", b, err)
		}
	}
}
