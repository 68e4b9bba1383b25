package simt

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"vgpud/gpu"
	"vgpud/gpu/soft/texture"
)

// array maps an array with the given texels, and returns its descriptor.
func (m *machine) array(s gpu.ArrayShape, texels ...any) (texture.Texture, []byte) {
	m.t.Helper()
	at, data := m.alloc(int(s.Bytes()))
	var b []byte
	for _, v := range texels {
		var err error
		if b, err = binary.Append(b, binary.LittleEndian, v); err != nil {
			m.t.Fatal(err)
		}
	}
	copy(data, b)
	return texture.OfArray(at, s), data
}

func (m *machine) texture(t texture.Texture) uint64 {
	m.t.Helper()
	h, err := m.mem.AddTexture(t)
	if err != nil {
		m.t.Fatal(err)
	}
	return h
}

// textured returns a kernel k(out, object) whose body reads into %f1 to %f4 or %r1 to %r4; the four
// words of each thread follow one another.
func textured(body, kind string) string {
	return testHeader + fmt.Sprintf(`
.global .texref image;
.global .samplerref nearest = { addr_mode_0 = clamp_to_border, addr_mode_1 = clamp_to_border, filter_mode = nearest };
.global .samplerref smooth = { addr_mode_0 = clamp_to_edge, addr_mode_1 = wrap, filter_mode = linear };
.global .surfref canvas;
.visible .entry k(.param .u64 out, .param .u64 object)
{
	.reg .b32 %%r<20>; .reg .f32 %%f<20>; .reg .b64 %%rd<10>; .reg .b16 %%h<10>; .reg .pred %%p<5>;
	ld.param.u64 %%rd1, [out];
	ld.param.u64 %%rd2, [object];
	mov.u32 %%r10, %%tid.x;
	mul.wide.u32 %%rd3, %%r10, 16;
	add.s64 %%rd1, %%rd1, %%rd3;
	cvt.rn.f32.u32 %%f10, %%r10;
%s
	st.global.v4.b32 [%%rd1], {%s1, %s2, %s3, %s4};
	ret;
}
`, body, kind, kind, kind, kind)
}

var floats = gpu.Texel{Format: gpu.FormatFloat, Channels: 1}

// read runs textured code for n threads and returns the words that it wrote.
func (m *machine) read(n int, object uint64) []uint32 {
	m.t.Helper()
	out, data := m.alloc(16 * n)
	if f := m.run("k", d3(1), d3(uint32(n)), 0, out, object); f != nil {
		m.t.Fatal(f)
	}
	return wordsOf(data)
}

func f32s(v ...float32) []uint32 {
	w := make([]uint32, len(v))
	for i, x := range v {
		w[i] = math.Float32bits(x)
	}
	return w
}

func TestTextureInstructions(t *testing.T) {
	type texels = []any
	one := func(v ...float32) texels { return texels{v} }
	for _, c := range []struct {
		name   string
		shape  gpu.ArrayShape
		texels texels
		how    gpu.Sampling
		body   string
		kind   string
		want   []uint32 // of thread 1
	}{
		{"1-D, integer", gpu.ArrayShape{Width: 4, Texel: floats}, one(1, 2, 3, 4), gpu.Sampling{}, "tex.1d.v4.f32.s32 {%f1,%f2,%f3,%f4}, [%rd2, {%r10}];", "%f", f32s(2, 0, 0, 1)},
		{"1-D without braces", gpu.ArrayShape{Width: 4, Texel: floats}, one(1, 2, 3, 4), gpu.Sampling{}, "tex.1d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd2, %f10];", "%f", f32s(2, 0, 0, 1)},
		{"2-D, linear", gpu.ArrayShape{Width: 2, Height: 2, Texel: floats}, one(0, 4, 8, 16), gpu.Sampling{Filter: gpu.FilterLinear},
			"tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd2, {%f10, %f10}];", "%f", f32s(7, 0, 0, 1)},
		{"3-D", gpu.ArrayShape{Width: 2, Height: 2, Depth: 2, Texel: floats}, one(0, 1, 2, 3, 4, 5, 6, 7), gpu.Sampling{},
			"mov.u32 %r1, 0; tex.3d.v4.f32.s32 {%f1,%f2,%f3,%f4}, [%rd2, {%r10, %r1, %r10, %r1}];", "%f", f32s(5, 0, 0, 1)},
		{"layered 1-D", gpu.ArrayShape{Width: 2, Depth: 3, Layered: true, Texel: floats}, one(0, 1, 2, 3, 4, 5), gpu.Sampling{},
			"tex.a1d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd2, {%r10, %f10}];", "%f", f32s(3, 0, 0, 1)},
		{"layered 2-D", gpu.ArrayShape{Width: 2, Height: 1, Depth: 3, Layered: true, Texel: floats}, one(0, 1, 2, 3, 4, 5), gpu.Sampling{},
			"mov.f32 %f11, 0f00000000; tex.a2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd2, {%r10, %f10, %f11, %f11}];", "%f", f32s(3, 0, 0, 1)},
		{"cube", gpu.ArrayShape{Width: 1, Height: 1, Depth: 6, Cube: true, Texel: floats}, one(0, 1, 2, 3, 4, 5), gpu.Sampling{},
			"mov.f32 %f11, 0f00000000; neg.f32 %f12, %f10; tex.cube.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd2, {%f11, %f12, %f11, %f11}];", "%f", f32s(3, 0, 0, 1)},
		{"bytes as integers", gpu.ArrayShape{Width: 2, Texel: gpu.Texel{Format: gpu.FormatUint8, Channels: 4}}, texels{[]byte{1, 2, 3, 4, 5, 6, 7, 255}}, gpu.Sampling{AsInteger: true},
			"tex.1d.v4.u32.s32 {%r1,%r2,%r3,%r4}, [%rd2, {%r10}];", "%r", []uint32{5, 6, 7, 255}},
		{"bytes as floats", gpu.ArrayShape{Width: 2, Texel: gpu.Texel{Format: gpu.FormatUint8, Channels: 4}}, texels{[]byte{1, 2, 3, 4, 0, 51, 102, 255}}, gpu.Sampling{Normalized: true},
			"tex.1d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd2, {0f3F400000}];", "%f", f32s(0, 0.2, 0.4, 1)},
		{"half precision", gpu.ArrayShape{Width: 2, Texel: floats}, one(1.5, 2.5), gpu.Sampling{},
			"tex.1d.v4.f16.f32 {%h1,%h2,%h3,%h4}, [%rd2, {%f10}]; cvt.u32.u16 %r1, %h1; cvt.u32.u16 %r2, %h2; cvt.u32.u16 %r3, %h3; cvt.u32.u16 %r4, %h4;", "%r", []uint32{0x4100, 0, 0, 0x3c00}},
		{"packed halves", gpu.ArrayShape{Width: 2, Texel: floats}, one(1.5, 2.5), gpu.Sampling{},
			"tex.1d.v2.f16x2.f32 {%r1,%r2}, [%rd2, {%f10}]; mov.u32 %r3, 0; mov.u32 %r4, 0;", "%r", []uint32{0x4100, 0x3c000000, 0, 0}},
		{"a level", gpu.ArrayShape{Width: 2, Height: 1, Texel: floats}, one(1, 2), gpu.Sampling{},
			"tex.level.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd2, {%f10, %f10}], %f10;", "%f", f32s(2, 0, 0, 1)},
		{"gradients", gpu.ArrayShape{Width: 2, Height: 1, Texel: floats}, one(1, 2), gpu.Sampling{},
			"tex.grad.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd2, {%f10, %f10}], {%f10, %f10}, {%f10, %f10};", "%f", f32s(2, 0, 0, 1)},
		{"residency", gpu.ArrayShape{Width: 2, Texel: floats}, one(1, 2), gpu.Sampling{},
			"tex.1d.v4.f32.s32 {%f1,%f2,%f3,%f4}|%p1, [%rd2, {%r10}]; selp.f32 %f2, 0f41200000, 0f00000000, %p1;", "%f", f32s(2, 10, 0, 1)},
		{"a sampler", gpu.ArrayShape{Width: 2, Height: 2, Texel: floats}, one(0, 4, 8, 16), gpu.Sampling{Address: [3]gpu.AddressMode{1, 1, 1}},
			"tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd2, smooth, {%f10, %f10}];", "%f", f32s(7, 0, 0, 1)},
		{"a sampler's border", gpu.ArrayShape{Width: 1, Height: 2, Texel: floats}, one(3, 4), gpu.Sampling{Address: [3]gpu.AddressMode{1, 1, 1}},
			"mov.u64 %rd5, nearest; tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd2, %rd5, {%f10, %f10}];", "%f", f32s(0, 0, 0, 0)},
		{"a gather", gpu.ArrayShape{Width: 2, Height: 2, Texel: floats, Gather: true}, one(0, 1, 2, 3), gpu.Sampling{},
			"tld4.r.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd2, {%f10, %f10}];", "%f", f32s(2, 3, 1, 0)},
		{"queries", gpu.ArrayShape{Width: 3, Height: 2, Texel: gpu.Texel{Format: gpu.FormatInt16, Channels: 2}}, nil, gpu.Sampling{Normalized: true, Address: [3]gpu.AddressMode{3, 0, 0}},
			"txq.width.b32 %r1, [%rd2]; txq.height.b32 %r2, [%rd2]; txq.channel_data_type.b32 %r3, [%rd2]; txq.addr_mode_0.b32 %r4, [%rd2];", "%r", []uint32{3, 2, 0x10d1, 4}},
		{"kinds", gpu.ArrayShape{Width: 3, Texel: floats}, nil, gpu.Sampling{},
			"istypep.texref %p1, %rd2; istypep.surfref %p2, %rd2; mov.u64 %rd5, smooth; istypep.samplerref %p3, %rd5; selp.u32 %r1, 1, 0, %p1; selp.u32 %r2, 1, 0, %p2; selp.u32 %r3, 1, 0, %p3; txq.channel_order.b32 %r4, [%rd2];", "%r", []uint32{1, 0, 1, 0x10b0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t, textured(c.body, c.kind))
			tex, _ := m.array(c.shape, c.texels...)
			tex.Sampling = c.how
			if got := m.read(33, m.texture(tex))[4:8]; !equalWords(got, c.want) {
				t.Errorf("%#x, want %#x", got, c.want)
			}
		})
	}
}

func equalWords(a, b []uint32) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

// A texture variable is bound by its word in the module's image, and a kernel may take its handle.
func TestTextureReference(t *testing.T) {
	for _, body := range []string{
		"tex.1d.v4.f32.s32 {%f1,%f2,%f3,%f4}, [image, {%r10}];",
		"mov.u64 %rd5, image; tex.1d.v4.f32.s32 {%f1,%f2,%f3,%f4}, [%rd5, {%r10}];",
	} {
		m := newMachine(t, textured(body, "%f"))
		tex, _ := m.array(gpu.ArrayShape{Width: 2, Texel: floats}, []float32{8, 9})
		out, data := m.alloc(16 * 2)
		f := m.run("k", d3(1), d3(2), 0, out, uint64(0))
		if f == nil || f.Kind != gpu.FaultAddress || f.Space != "texture" {
			t.Fatalf("unbound: %v", f)
		}
		at, ok := m.module.Reference("image")
		if !ok {
			t.Fatal("no texture variable")
		}
		if _, _, ok := m.module.Global("image"); ok {
			t.Error("a texture variable is global memory")
		}
		word, _ := m.mem.Bytes(m.module.vars.base+at.Offset, 8)
		binary.LittleEndian.PutUint64(word, m.texture(tex))
		if f := m.run("k", d3(1), d3(2), 0, out, uint64(0)); f != nil {
			t.Fatal(f)
		}
		if got := wordsOf(data)[4]; got != math.Float32bits(9) {
			t.Errorf("%s: %#x", body, got)
		}
	}
}

// The legacy state space, and a texture as a kernel's parameter.
func TestTextureSpaceAndParameter(t *testing.T) {
	m := newMachine(t, testHeader+`
.tex .u32 old;
.visible .entry space(.param .u64 out) { .reg .b64 %rd<3>; .reg .b32 %r<6>; ld.param.u64 %rd1, [out]; mov.u32 %r1, 1;
	tex.1d.v4.u32.s32 {%r2,%r3,%r4,%r5}, [old, {%r1}]; st.global.u32 [%rd1], %r2; ret; }
.visible .entry parameter(.param .u64 out, .param .texref t) { .reg .b64 %rd<3>; .reg .b32 %r<6>; ld.param.u64 %rd1, [out]; mov.u32 %r1, 1;
	tex.1d.v4.u32.s32 {%r2,%r3,%r4,%r5}, [t, {%r1}]; st.global.u32 [%rd1], %r2; ret; }
`)
	tex, _ := m.array(gpu.ArrayShape{Width: 2, Texel: gpu.Texel{Format: gpu.FormatUint32, Channels: 1}}, []uint32{5, 6})
	h := m.texture(tex)
	at, _ := m.module.Reference("old")
	word, _ := m.mem.Bytes(m.module.vars.base+at.Offset, 8)
	binary.LittleEndian.PutUint64(word, h)
	for _, kernel := range []string{"space", "parameter"} {
		out, data := m.words(0)
		args := []any{out, h}
		if kernel == "space" {
			args = args[:1]
		}
		if f := m.run(kernel, d3(1), d3(1), 0, args...); f != nil {
			t.Fatal(f)
		}
		if got := wordsOf(data)[0]; got != 6 {
			t.Errorf("%s: %d", kernel, got)
		}
	}
}

func TestSurfaceInstructions(t *testing.T) {
	words := gpu.Texel{Format: gpu.FormatUint32, Channels: 1}
	for _, c := range []struct {
		name  string
		shape gpu.ArrayShape
		body  string
		want  []uint32 // the array
		read  []uint32 // thread 1's results
	}{
		{"1-D", gpu.ArrayShape{Width: 4, Texel: words, Surface: true},
			"shl.b32 %r11, %r10, 2; sust.b.1d.b32.trap [%rd2, {%r11}], {%r10}; suld.b.1d.b32.trap {%r1}, [%rd2, {%r11}]; mov.u32 %r2, %r1; mov.u32 %r3, 0; suq.width.b32 %r4, [%rd2];",
			[]uint32{0, 1, 2, 3}, []uint32{1, 1, 0, 4}},
		{"2-D, clamp", gpu.ArrayShape{Width: 2, Height: 2, Texel: words, Surface: true},
			"mov.u32 %r11, 99; sust.b.2d.b32.clamp [%rd2, {%r11, %r10}], {7}; suld.b.2d.b32.zero %r1, [%rd2, {%r11, %r10}]; mov.u32 %r2, 0; mov.u32 %r3, 0; mov.u32 %r4, 0;",
			[]uint32{0, 7, 0, 7}, []uint32{0, 0, 0, 0}},
		{"zero drops stores", gpu.ArrayShape{Width: 4, Texel: words, Surface: true},
			"mad.lo.u32 %r11, %r10, 4, 8; sust.b.1d.b32.zero [%rd2, {%r11}], {5}; mov.u32 %r1, 0; mov.u32 %r2, 0; mov.u32 %r3, 0; mov.u32 %r4, 0;",
			[]uint32{0, 0, 5, 5}, []uint32{0, 0, 0, 0}},
		{"vectors", gpu.ArrayShape{Width: 2, Texel: gpu.Texel{Format: gpu.FormatUint32, Channels: 2}, Surface: true},
			"shl.b32 %r11, %r10, 3; sust.b.1d.v2.b32.zero [%rd2, {%r11}], {%r10, 3}; suld.b.1d.v2.b32.zero {%r1, %r2}, [%rd2, {%r11}]; suld.b.1d.b64.clamp %rd5, [%rd2, {%r11}]; mov.b64 {%r3, %r4}, %rd5;",
			[]uint32{0, 3, 1, 3}, []uint32{1, 3, 1, 3}},
		{"3-D", gpu.ArrayShape{Width: 1, Height: 2, Depth: 2, Texel: words, Surface: true},
			"mov.u32 %r11, 0; sust.b.3d.b32.zero [%rd2, {%r11, %r10, %r10, %r11}], {9}; mov.u32 %r1, 0; mov.u32 %r2, 0; mov.u32 %r3, 0; mov.u32 %r4, 0;",
			[]uint32{9, 0, 0, 9}, []uint32{0, 0, 0, 0}},
		{"layers", gpu.ArrayShape{Width: 2, Height: 1, Depth: 2, Layered: true, Texel: words, Surface: true},
			"mov.u32 %r11, 0; mov.u32 %r12, 4; sust.b.a2d.b32.zero [%rd2, {%r10, %r12, %r11, %r11}], {9}; mov.u32 %r1, 0; mov.u32 %r2, 0; mov.u32 %r3, 0; mov.u32 %r4, 0;",
			[]uint32{0, 9, 0, 9}, []uint32{0, 0, 0, 0}},
		{"formatted", gpu.ArrayShape{Width: 4, Texel: gpu.Texel{Format: gpu.FormatUint8, Channels: 4}, Surface: true},
			"sust.p.1d.v4.b32.zero [%rd2, {%r10}], {%r10, 2, 3, 999}; mov.u32 %r1, 0; mov.u32 %r2, 0; mov.u32 %r3, 0; mov.u32 %r4, 0;",
			[]uint32{0xff030200, 0xff030201, 0xff030202, 0xff030203}, []uint32{0, 0, 0, 0}},
		{"reductions", gpu.ArrayShape{Width: 4, Texel: words, Surface: true},
			"mov.u32 %r11, 0; mov.u32 %r12, 4; mov.u32 %r13, 2; sured.b.add.1d.u32.trap [%rd2, {%r11}], 1; sured.b.max.1d.s32.trap [%rd2, {%r12}], %r10; sured.p.or.1d.b32.zero [%rd2, {%r13}], %r10; mov.u32 %r1, 0; mov.u32 %r2, 0; mov.u32 %r3, 0; mov.u32 %r4, 0;",
			[]uint32{4, 3, 3, 0}, []uint32{0, 0, 0, 0}},
		{"bytes", gpu.ArrayShape{Width: 4, Texel: gpu.Texel{Format: gpu.FormatUint8, Channels: 1}, Surface: true},
			"cvt.u16.u32 %h1, %r10; sust.b.1d.b8.zero [%rd2, {%r10}], {%h1}; suld.b.1d.b8.zero {%h2}, [%rd2, {%r10}]; cvt.u32.u16 %r1, %h2; mov.u32 %r2, 0; mov.u32 %r3, 0; mov.u32 %r4, 0;",
			[]uint32{0x03020100}, []uint32{1, 0, 0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t, textured(c.body, "%r"))
			s, data := m.array(c.shape)
			s.Surface = true
			got := m.read(4, m.texture(s))[4:8]
			if !equalWords(got, c.read) || !equalWords(wordsOf(data), c.want) {
				t.Errorf("read %#x, wrote %#x, want %#x and %#x", got, wordsOf(data), c.read, c.want)
			}
		})
	}
}

// Bad handles, freed memory and accesses outside fault; nothing else happens.
func TestTextureFaults(t *testing.T) {
	const load = "tex.1d.v4.f32.s32 {%f1,%f2,%f3,%f4}, [%rd2, {%r10}];"
	const store = "shl.b32 %r11, %r10, 2; sust.b.1d.b32.trap [%rd2, {%r11}], {%r10};"
	texel := gpu.Texel{Format: gpu.FormatUint32, Channels: 1}
	for _, c := range []struct {
		name, body string
		spoil      func(m *machine, tex texture.Texture, h uint64) uint64
		kind       gpu.FaultKind
	}{
		{"no handle", load, func(*machine, texture.Texture, uint64) uint64 { return 0 }, gpu.FaultAddress},
		{"any handle", load, func(*machine, texture.Texture, uint64) uint64 { return ^uint64(0) }, gpu.FaultAddress},
		{"an old handle", load, func(m *machine, tex texture.Texture, h uint64) uint64 {
			if err := m.mem.DropTexture(h); err != nil {
				t.Error(err)
			}
			m.texture(tex)
			return h
		}, gpu.FaultAddress},
		{"freed memory", load, func(m *machine, tex texture.Texture, h uint64) uint64 {
			if err := m.mem.Unmap(tex.Base); err != nil {
				t.Error(err)
			}
			return h
		}, gpu.FaultAddress},
		{"a sampler that is none", "tex.1d.v4.f32.s32 {%f1,%f2,%f3,%f4}, [%rd2, %rd2, {%r10}];", func(_ *machine, _ texture.Texture, h uint64) uint64 { return h }, gpu.FaultAddress},
		{"a store to a texture", "mov.u32 %r11, 0; sust.b.1d.b32.trap [%rd2, {%r11}], {%r10};", func(_ *machine, _ texture.Texture, h uint64) uint64 { return h }, gpu.FaultAddress},
		{"a store outside", store, func(m *machine, tex texture.Texture, _ uint64) uint64 {
			tex.Surface = true
			return m.texture(tex)
		}, gpu.FaultAddress},
		{"a store between words", "sust.b.1d.b32.trap [%rd2, {%r10}], {%r10};", func(m *machine, tex texture.Texture, _ uint64) uint64 {
			tex.Surface = true
			return m.texture(tex)
		}, gpu.FaultMisaligned},
		{"a query of nothing", "txq.width.b32 %r1, [%rd2];", func(*machine, texture.Texture, uint64) uint64 { return 77 }, gpu.FaultAddress},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t, textured(c.body+"mov.u32 %r2, 0;", "%r"))
			tex, _ := m.array(gpu.ArrayShape{Width: 2, Texel: texel}, []uint32{1, 2})
			out, _ := m.alloc(16 * 4)
			f := m.run("k", d3(1), d3(4), 0, out, c.spoil(m, tex, m.texture(tex)))
			if f == nil || f.Kind != c.kind || f.Space != "texture" && f.Space != "surface" || f.Line == 0 {
				t.Errorf("%v", f)
			}
		})
	}
}

// The table of textures is bounded, and handles are not reused.
func TestTextureTable(t *testing.T) {
	var m Memory
	tex := texture.OfArray(64, gpu.ArrayShape{Width: 1, Texel: floats})
	seen := map[uint64]bool{}
	for range 3 {
		var all []uint64
		for {
			h, err := m.AddTexture(tex)
			if err != nil {
				break
			}
			if seen[h] || h == 0 {
				t.Fatalf("handle %#x again", h)
			}
			seen[h] = true
			all = append(all, h)
		}
		if len(all) != MaxTextures {
			t.Fatalf("%d textures", len(all))
		}
		for _, h := range all {
			if err := m.DropTexture(h); err != nil {
				t.Fatal(err)
			}
			if m.DropTexture(h) == nil || m.Texture(h) != nil {
				t.Fatal("dropped twice")
			}
		}
	}
	tex.Pitch = 0
	if _, err := m.AddTexture(tex); err == nil {
		t.Error("a bad descriptor")
	}
}

func TestBadSampler(t *testing.T) {
	_, err := Load(t.Context(), parse(t, testHeader+".global .samplerref s = { filter_mode = soft };\n.visible .entry k() { ret; }"), Options{})
	if err == nil || !strings.Contains(err.Error(), "sampler s") {
		t.Error(err)
	}
}

// BenchmarkTexture fetches with a linear filter.
func BenchmarkTexture(b *testing.B) {
	m := newMachine(b, textured(`	mov.u32 %r5, 0;
L:	tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd2, {%f10, %f1}];
	add.u32 %r5, %r5, 1;
	setp.lt.u32 %p1, %r5, 1000;
	@%p1 bra L;`, "%f"))
	tex, _ := m.array(gpu.ArrayShape{Width: 64, Height: 64, Texel: floats})
	tex.Filter = gpu.FilterLinear
	h := m.texture(tex)
	out, _ := m.alloc(16 * 32)
	b.ReportAllocs()
	for b.Loop() {
		if f := m.run("k", d3(1), d3(32), 0, out, h); f != nil {
			b.Fatal(f)
		}
	}
}
