package simt

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"vgpud/gpu"
)

// texturedModule has kernels that use textures, each in a different way, before and after kernels
// that use none.
const texturedModule = testHeader + `
.global .texref image;
.global .surfref canvas;
.global .samplerref smooth;
.tex .u32 old;
.global .u32 counter = 41;

.visible .entry before(.param .u64 p)
{
	.reg .b32 %r<3>; .reg .b64 %rd<2>;
	ld.param.u64 %rd1, [p];
	ld.global.u32 %r1, [counter];
	add.u32 %r1, %r1, 1;
	st.global.u32 [%rd1], %r1;
	ret;
}

.func (.param .b32 r) sampled(.param .b64 t)
{
	.reg .f32 %f<5>; .reg .b64 %rd<2>;
	ld.param.b64 %rd1, [t];
	mov.f32 %f1, 0f00000000;
	tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd1, {%f1,%f1}];
	st.param.f32 [r], %f1;
	ret;
}

.visible .entry object(.param .u64 p, .param .u64 t)
{
	.reg .f32 %f<5>; .reg .b64 %rd<3>;
	ld.param.u64 %rd1, [p];
	ld.param.u64 %rd2, [t];
	mov.f32 %f1, 0f00000000;
	tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd2, {%f1,%f1}];
	st.global.f32 [%rd1], %f1;
	ret;
}

.visible .entry reference(.param .u64 p)
{
	.reg .f32 %f<5>; .reg .b64 %rd<3>;
	ld.param.u64 %rd1, [p];
	mov.f32 %f1, 0f00000000;
	tex.1d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [image, smooth, {%f1}];
	st.global.f32 [%rd1], %f1;
	ret;
}

.visible .entry address(.param .u64 p)
{
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [p];
	mov.u64 %rd2, image;
	st.global.u64 [%rd1], %rd2;
	ret;
}

.visible .entry surface(.param .u64 p)
{
	.reg .b32 %r<3>;
	mov.u32 %r1, 0;
	sust.b.1d.b32.trap [canvas, {%r1}], {%r1};
	ret;
}

.visible .entry space(.param .u64 p)
{
	.reg .b64 %rd<3>; .reg .b32 %r<6>;
	mov.u32 %r1, 0;
	tex.1d.v4.u32.s32 {%r2,%r3,%r4,%r5}, [old, {%r1}];
	ret;
}

.visible .entry parameter(.param .texref t)
{
	.reg .f32 %f<5>;
	mov.f32 %f1, 0f00000000;
	tex.1d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [t, {%f1}];
	ret;
}

.visible .entry called(.param .u64 p)
{
	.reg .b32 %r<3>; .reg .b64 %rd<3>;
	ld.param.u64 %rd1, [p];
	{ .param .b64 t; .param .b32 r;
	st.param.b64 [t], %rd1;
	call (r), sampled, (t);
	ld.param.b32 %r1, [r]; }
	st.global.u32 [%rd1], %r1;
	ret;
}

.visible .entry after(.param .u64 p)
{
	.reg .b32 %r<3>; .reg .b64 %rd<2>;
	ld.param.u64 %rd1, [p];
	mov.u32 %r1, 7;
	st.global.u32 [%rd1], %r1;
	ret;
}
`

// A module with kernels that use textures is loaded. Launching those fails with an error that names
// the kernel and the texture; the other kernels work.
func TestTexturedKernelsAreRefusedAlone(t *testing.T) {
	m := newMachine(t, texturedModule)
	out, data := m.words(0)
	for _, k := range []struct {
		name string
		want uint32
	}{{"before", 42}, {"after", 7}} {
		if why := m.module.Kernel(k.name).Refused(); why != "" {
			t.Fatalf("%s: %s", k.name, why)
		}
		if f := m.run(k.name, d3(1), d3(1), 0, out); f != nil {
			t.Fatal(f)
		}
		if got := wordsOf(data)[0]; got != k.want {
			t.Errorf("%s gave %d, want %d", k.name, got, k.want)
		}
	}
	for name, uses := range map[string]string{
		"object": "tex.2d.v4.f32.f32: textures", "reference": "tex.1d.v4.f32.f32: textures", "called": "tex.2d.v4.f32.f32: textures",
		"address": ".texref", "surface": "sust.b.1d.b32.trap: surfaces", "space": "tex.1d.v4.u32.s32: textures", "parameter": "tex.1d.v4.f32.f32: textures",
	} {
		k := m.module.Kernel(name)
		if k == nil {
			t.Errorf("%s is not there", name)
			continue
		}
		_, err := NewGrid(Launch{Kernel: k, Grid: d3(1), Block: d3(1), Params: make([]byte, 64), Memory: m.mem, SMs: 1})
		if !errors.Is(err, gpu.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), "kernel "+name+", PTX line ") || !strings.Contains(fmt.Sprint(err), uses) {
			t.Errorf("launch of %s: %v, want it to name the kernel and %q", name, err, uses)
		}
	}
	if a := m.module.Kernel("object").Attributes(); len(a.Params) != 2 || a.ParamBytes != 16 {
		t.Errorf("attributes of a refused kernel: %+v", a)
	}
}

// A module that is too large is refused as a whole, and what is kept of a refused kernel is
// limited.
func TestRefusedKernelsAreBounded(t *testing.T) {
	var src strings.Builder
	src.WriteString(testHeader)
	long := strings.Repeat("x", 100_000)
	fmt.Fprintf(&src, ".func f()\n{\n	tex.%s;\n	ret;\n}\n", long)
	for i := range 100 {
		fmt.Fprintf(&src, ".visible .entry k%d() { call.uni f, (); ret; }\n", i)
	}
	m, err := Load(t.Context(), parse(t, src.String()), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range m.Kernels() {
		if n := len(k.Refused()); n == 0 || n > 3*maxQuoted {
			t.Fatalf("%s is refused in %d bytes", k.Name(), n)
		}
	}
	if _, err := Load(t.Context(), parse(t, src.String()), Options{MaxInstructions: 50}); !errors.Is(err, gpu.ErrUnsupported) {
		t.Errorf("beyond the limit on instructions: %v", err)
	}
}
