package executor

import (
	"encoding/binary"
	"math"
	"testing"

	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/mediator/vgpu/abi"
)

// texturePTX reads a texture by handle, and one by a variable, and stores to a surface.
const texturePTX = ptxHeader + `
.global .texref image;
.global .surfref canvas;
.visible .entry sample(.param .u64 out, .param .u64 t)
{
	.reg .b32 %r<4>; .reg .b64 %rd<6>; .reg .f32 %f<6>;
	ld.param.u64 %rd1, [out];
	ld.param.u64 %rd2, [t];
	mov.u32 %r1, %tid.x;
	cvt.rn.f32.u32 %f1, %r1;
	tex.1d.v4.f32.f32 {%f2,%f3,%f4,%f5}, [%rd2, {%f1}];
	mul.wide.u32 %rd3, %r1, 4;
	add.s64 %rd1, %rd1, %rd3;
	st.global.f32 [%rd1], %f2;
	ret;
}
.visible .entry paint(.param .u64 out)
{
	.reg .b32 %r<4>; .reg .b64 %rd<6>; .reg .f32 %f<6>;
	mov.u32 %r1, %tid.x;
	tex.1d.v4.f32.s32 {%f2,%f3,%f4,%f5}, [image, {%r1}];
	shl.b32 %r2, %r1, 2;
	add.f32 %f2, %f2, %f2;
	mov.b32 %r3, %f2;
	sust.b.1d.b32.trap [canvas, {%r2}], {%r3};
	ret;
}
`

const floatFormat = uint16(gpu.FormatFloat)

func floatsAt(b []byte, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}

// Arrays, textures and surfaces of a guest's commands, from a window to kernels and back.
func TestTextures(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{MemoryLimit: 16 << 20})
	g := r.open()
	copy(r.shared[staging:], texturePTX)
	m := g.must(abi.OpModuleLoad, abi.Module{Image: abi.Window{Offset: staging, Size: uint64(len(texturePTX))}}).Value[0]
	find := func(name string) uint64 {
		return g.must(abi.OpFunction, abi.Lookup{Module: m, NameBytes: uint32(len(name))}, []byte(name)...).Value[0]
	}
	free := g.must(abi.OpMemInfo, abi.Empty{}).Value[0]
	a := g.must(abi.OpArrayCreate, abi.Array{Width: 4, Format: floatFormat, Channels: 1, Flags: abi.ArraySurface})
	if after := g.must(abi.OpMemInfo, abi.Empty{}).Value[0]; a.Value[1] != 16 || after >= free {
		t.Errorf("an array of %d bytes, %d free after it, %d before", a.Value[1], after, free)
	}
	array := a.Value[0]
	for i, x := range []float32{10, 20, 30} {
		binary.LittleEndian.PutUint32(r.shared[staging+4*i:], math.Float32bits(x))
	}
	aux := func(op abi.Opcode, aux uint16, p payload) abi.Completion {
		t.Helper()
		c := g.call(abi.Header{Op: op, Aux: aux}, p)
		if c.Status != abi.StatusOK {
			t.Fatalf("%v: %v", op, c.Status)
		}
		return c
	}
	aux(abi.OpArrayCopy, abi.ArrayCopyWindow, abi.ArrayCopy{Array: array, Address: staging, X: 4, Width: 12, Height: 1, Depth: 1})
	tex := aux(abi.OpTextureCreate, 0, abi.Texture{Resource: array, AddressX: uint16(gpu.AddressClamp), Filter: uint16(gpu.FilterLinear)}).Value[0]
	words := g.must(abi.OpMemAlloc, abi.Alloc{Size: 64}).Value[0]
	l, params := launchOf(find("sample"), 4, words, tex)
	g.must(abi.OpLaunch, l, params...)
	g.must(abi.OpCopyOut, abi.Transfer{Dst: staging, Src: words, Size: 16})
	// At a bound between two texels is their mean; before the first is the first.
	want := []float32{0, 5, 15, 25}
	if got := floatsAt(r.shared[staging:], 4); got[0] != want[0] || got[1] != want[1] || got[2] != want[2] || got[3] != want[3] {
		t.Errorf("sampled %v, want %v", got, want)
	}
	// The memory that was written is a texture too, and the array a surface.
	linear := aux(abi.OpTextureCreate, abi.TextureLinear, abi.Texture{Resource: words, Width: 4, Format: floatFormat, Channels: 1}).Value[0]
	surface := g.must(abi.OpSurfaceCreate, abi.Handle{Handle: array}).Value[0]
	bind := func(name string, b abi.Binding) abi.Status {
		b.Module, b.NameBytes = m, uint32(len(name))
		return g.call(abi.Header{Op: abi.OpTextureBind}, b, []byte(name)...).Status
	}
	for name, test := range map[string]struct {
		b    abi.Binding
		want abi.Status
	}{
		"image": {abi.Binding{Texture: linear}, abi.StatusOK}, "canvas": {abi.Binding{Texture: surface, Surface: 1}, abi.StatusOK},
		"nothing": {abi.Binding{Texture: linear}, abi.StatusNotFound}, "sample": {abi.Binding{Texture: 99}, abi.StatusInvalidHandle},
	} {
		if s := bind(name, test.b); s != test.want {
			t.Errorf("bind %s: %v, want %v", name, s, test.want)
		}
	}
	for name, want := range map[string]uint64{"image": 0, "canvas": 1} {
		c := g.must(abi.OpTextureBind, abi.Binding{Module: m, NameBytes: uint32(len(name))}, []byte(name)...)
		if c.Value[0] != want {
			t.Errorf("%s is of kind %d", name, c.Value[0])
		}
	}
	if s := bind("counter", abi.Binding{}); s != abi.StatusNotFound {
		t.Errorf("the kind of what is not there: %v", s)
	}
	if s := bind("canvas", abi.Binding{Texture: linear}); s != abi.StatusInvalidValue {
		t.Errorf("bind a surface variable to a texture: %v", s)
	}
	l, params = launchOf(find("paint"), 4, words)
	g.must(abi.OpLaunch, l, params...)
	aux(abi.OpArrayCopy, abi.ArrayCopyOut, abi.ArrayCopy{Array: array, Address: words, Width: 16, Height: 1, Depth: 1})
	g.must(abi.OpCopyOut, abi.Transfer{Dst: staging, Src: words, Size: 16})
	if got := floatsAt(r.shared[staging:], 4); got[1] != 10 || got[3] != 50 {
		t.Errorf("painted %v", got)
	}
	g.must(abi.OpTextureDestroy, abi.Handle{Handle: tex})
	g.must(abi.OpSurfaceDestroy, abi.Handle{Handle: surface})
	g.must(abi.OpArrayDestroy, abi.Handle{Handle: array})
	for op, h := range map[abi.Opcode]uint64{abi.OpTextureDestroy: tex, abi.OpSurfaceDestroy: linear, abi.OpArrayDestroy: array, abi.OpSurfaceCreate: array} {
		if c := g.call(abi.Header{Op: op}, abi.Handle{Handle: h}); c.Status != abi.StatusInvalidHandle {
			t.Errorf("%v of what is not there: %v", op, c.Status)
		}
	}
	// A kernel with the handle of a texture that ended faults.
	l, params = launchOf(find("sample"), 4, words, tex)
	if c := g.call(abi.Header{Op: abi.OpLaunch}, l, params...); c.Status != abi.StatusIllegalAddress {
		t.Errorf("a kernel with an old handle: %v", c.Status)
	}
}

// TestBadTextures: requests that make no sense are refused, with an error and nothing else.
func TestBadTextures(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{MemoryLimit: 8 << 20})
	g := r.open()
	array := g.must(abi.OpArrayCreate, abi.Array{Width: 4, Height: 4, Format: uint16(gpu.FormatUint32), Channels: 1}).Value[0]
	words := g.must(abi.OpMemAlloc, abi.Alloc{Size: 4096}).Value[0]
	box := abi.ArrayCopy{Array: array, Address: staging, Width: 16, Height: 4, Depth: 1, Pitch: 16}
	with := func(f func(b *abi.ArrayCopy)) abi.ArrayCopy {
		b := box
		f(&b)
		return b
	}
	linear := abi.Texture{Resource: words, Width: 4, Format: floatFormat, Channels: 1}
	edit := func(f func(x *abi.Texture)) abi.Texture {
		x := linear
		f(&x)
		return x
	}
	for name, test := range map[string]struct {
		op   abi.Opcode
		aux  uint16
		p    payload
		want abi.Status
	}{
		"an array of nothing":                   {abi.OpArrayCreate, 0, abi.Array{}, abi.StatusInvalidValue},
		"an array of halves of bits":            {abi.OpArrayCreate, 0, abi.Array{Width: 1, Format: 0x120, Channels: 1}, abi.StatusInvalidValue},
		"an array of three channels":            {abi.OpArrayCreate, 0, abi.Array{Width: 1, Format: floatFormat, Channels: 3}, abi.StatusInvalidValue},
		"an array of 257 channels":              {abi.OpArrayCreate, 0, abi.Array{Width: 1, Format: floatFormat, Channels: 257}, abi.StatusInvalidValue},
		"an array with flags":                   {abi.OpArrayCreate, 0, abi.Array{Width: 1, Format: floatFormat, Channels: 1, Flags: 0x40}, abi.StatusMalformed},
		"an array beyond the limit":             {abi.OpArrayCreate, 0, abi.Array{Width: 4096, Height: 4096, Format: floatFormat, Channels: 4}, abi.StatusOutOfMemory},
		"a copy with flags":                     {abi.OpArrayCopy, 4, box, abi.StatusInvalidValue},
		"a copy of no array":                    {abi.OpArrayCopy, 2, with(func(b *abi.ArrayCopy) { b.Array = 77 }), abi.StatusInvalidHandle},
		"a copy past the array":                 {abi.OpArrayCopy, 2, with(func(b *abi.ArrayCopy) { b.Y = 1 }), abi.StatusInvalidValue},
		"a copy past its rows":                  {abi.OpArrayCopy, 2, with(func(b *abi.ArrayCopy) { b.X = 4 }), abi.StatusInvalidValue},
		"a copy past its layers":                {abi.OpArrayCopy, 2, with(func(b *abi.ArrayCopy) { b.Z = math.MaxUint32 }), abi.StatusInvalidValue},
		"a copy of half a texel":                {abi.OpArrayCopy, 2, with(func(b *abi.ArrayCopy) { b.Width = 6 }), abi.StatusInvalidValue},
		"a copy of rows that meet":              {abi.OpArrayCopy, 2, with(func(b *abi.ArrayCopy) { b.Pitch = 8 }), abi.StatusInvalidValue},
		"a copy from the rings":                 {abi.OpArrayCopy, 2, with(func(b *abi.ArrayCopy) { b.Address = uint64(r.header) }), abi.StatusInvalidWindow},
		"a copy past the window":                {abi.OpArrayCopy, 2, with(func(b *abi.ArrayCopy) { b.Address = sharedBytes - 16 }), abi.StatusInvalidWindow},
		"a copy from no memory":                 {abi.OpArrayCopy, 0, with(func(b *abi.ArrayCopy) { b.Address = 4096 }), abi.StatusInvalidAddress},
		"a texture with flags":                  {abi.OpTextureCreate, 0x100, linear, abi.StatusInvalidValue},
		"a texture of no array":                 {abi.OpTextureCreate, 0, abi.Texture{Resource: 77}, abi.StatusInvalidHandle},
		"a texture of two shapes":               {abi.OpTextureCreate, 0, abi.Texture{Resource: array, Width: 4}, abi.StatusInvalidValue},
		"a linear filter of integers":           {abi.OpTextureCreate, 1, abi.Texture{Resource: array, Filter: 1}, abi.StatusInvalidValue},
		"a filter of its own":                   {abi.OpTextureCreate, 0x80, edit(func(x *abi.Texture) { x.Filter = 256 }), abi.StatusInvalidValue},
		"an address mode of its own":            {abi.OpTextureCreate, 0x80, edit(func(x *abi.Texture) { x.AddressZ = 0x101 }), abi.StatusInvalidValue},
		"a texture of no memory":                {abi.OpTextureCreate, 0x80, edit(func(x *abi.Texture) { x.Resource = 4096 }), abi.StatusInvalidAddress},
		"a texture past its memory":             {abi.OpTextureCreate, 0x80, edit(func(x *abi.Texture) { x.Width = 1025 }), abi.StatusInvalidAddress},
		"a pitch of its own":                    {abi.OpTextureCreate, 0x80, edit(func(x *abi.Texture) { x.Height, x.Pitch = 2, 17 }), abi.StatusInvalidValue},
		"a surface of an array not made for it": {abi.OpSurfaceCreate, 0, abi.Handle{Handle: array}, abi.StatusInvalidValue},
		"a binding in no module":                {abi.OpTextureBind, 0, abi.Binding{Module: 7}, abi.StatusInvalidHandle},
		"a binding of a third kind":             {abi.OpTextureBind, 0, abi.Binding{Surface: 2}, abi.StatusMalformed},
	} {
		if c := g.call(abi.Header{Op: test.op, Aux: test.aux}, test.p); c.Status != test.want {
			t.Errorf("%s: %v, want %v", name, c.Status, test.want)
		}
	}
	// Texture handles are bounded.
	for h := uint64(1 << 60); len(r.x.textures.textures) < maxTextures-1; h++ {
		r.x.textures.textures[h] = nil
	}
	for _, want := range []abi.Status{abi.StatusOK, abi.StatusTooMany} {
		if c := g.call(abi.Header{Op: abi.OpTextureCreate, Aux: abi.TextureLinear}, linear); c.Status != want {
			t.Errorf("the last texture, and one more: %v, want %v", c.Status, want)
		}
	}
}

// A context without the ability answers so.
func TestNoTextures(t *testing.T) {
	type plain struct{ gpu.Context }
	r := newRigIn(t, soft.Options{MemoryBytes: 64 << 20, Priority: -1}, gpu.ContextOptions{}, func(c gpu.Context) gpu.Context { return plain{c} })
	g := r.open()
	for op, p := range map[abi.Opcode]payload{
		abi.OpArrayCreate: abi.Array{Width: 1, Format: floatFormat, Channels: 1}, abi.OpTextureCreate: abi.Texture{},
		abi.OpSurfaceCreate: abi.Handle{}, abi.OpTextureBind: abi.Binding{},
	} {
		if c := g.call(abi.Header{Op: op}, p); c.Status != abi.StatusNotSupported {
			t.Errorf("%v: %v", op, c.Status)
		}
	}
}
