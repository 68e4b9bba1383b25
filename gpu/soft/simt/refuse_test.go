package simt

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"vgpud/gpu"
)

// refusedModule has kernels that use what this GPU lacks, each in a different way, before and after
// kernels that don't.
const refusedModule = testHeader + `
.global .texref image;
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

.func (.param .b32 r) multiplied(.param .b64 t)
{
	.reg .b32 %r<5>;
	mov.u32 %r1, 0;
	wgmma.fence.sync.aligned;
	st.param.b32 [r], %r1;
	ret;
}

.visible .entry matrix(.param .u64 p, .param .u64 t)
{
	wgmma.fence.sync.aligned;
	ret;
}

.visible .entry offset(.param .u64 p)
{
	.reg .f32 %f<5>; .reg .b64 %rd<3>;
	ld.param.u64 %rd1, [p];
	mov.f32 %f1, 0f00000000;
	tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd1, {%f1,%f1}], {1, 1};
	ret;
}

.visible .entry samples(.param .u64 p)
{
	.reg .b32 %r<6>;
	mov.u32 %r1, 0;
	tex.2dms.v4.u32.s32 {%r2,%r3,%r4,%r5}, [image, {%r1,%r1,%r1,%r1}];
	ret;
}

.visible .entry cluster(.param .u64 p)
{
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [p];
	mapa.u64 %rd2, %rd1, 0;
	st.global.u64 [%rd1], %rd2;
	ret;
}

.visible .entry called(.param .u64 p)
{
	.reg .b32 %r<3>; .reg .b64 %rd<3>;
	ld.param.u64 %rd1, [p];
	{ .param .b64 t; .param .b32 r;
	st.param.b64 [t], %rd1;
	call (r), multiplied, (t);
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

// A module with kernels that use what this GPU lacks is loaded. Launching those fails with an error
// that names the kernel and the instruction; the other kernels work.
func TestKernelsAreRefusedAlone(t *testing.T) {
	m := newMachine(t, refusedModule)
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
		"matrix": "wgmma.fence.sync.aligned: matrix instructions", "called": "wgmma.fence.sync.aligned: matrix instructions",
		"offset": "tex.2d.v4.f32.f32: offsets", "samples": "tex.2dms.v4.u32.s32: this shape", "cluster": "mapa.u64: clusters",
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
	if a := m.module.Kernel("matrix").Attributes(); len(a.Params) != 2 || a.ParamBytes != 16 {
		t.Errorf("attributes of a refused kernel: %+v", a)
	}
}

// A module that is too large is refused as a whole, and what is kept of a refused kernel is
// limited.
func TestRefusedKernelsAreBounded(t *testing.T) {
	var src strings.Builder
	src.WriteString(testHeader)
	long := strings.Repeat("x", 100_000)
	fmt.Fprintf(&src, ".func f()\n{\n	wgmma.%s;\n	ret;\n}\n", long)
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

// A kernel that needs more registers or local memory than there may be is refused alone.
func TestLargeKernelsAreRefusedAlone(t *testing.T) {
	var many strings.Builder
	for i := range 200 {
		fmt.Fprintf(&many, "ld.param.u64 %%rd%d, [p];\n", i)
	}
	for i := range 200 {
		fmt.Fprintf(&many, "st.global.u64 [%%rd%d+8], %%rd%d;\n", i, (i*7+3)%200)
	}
	src := testHeader + ".visible .entry registers(.param .u64 p) { .reg .b64 %rd<201>;\n" + many.String() + "ret; }\n" +
		".visible .entry local(.param .u64 p) { .local .align 8 .b8 depot[8192]; .reg .b64 %rd<3>; ld.param.u64 %rd1, [p]; mov.u64 %rd2, depot; st.global.u64 [%rd1], %rd2; ret; }\n" +
		".visible .entry fine(.param .u64 p) { .reg .b64 %rd<3>; .reg .b32 %r<2>; ld.param.u64 %rd1, [p]; mov.u32 %r1, 7; st.global.u32 [%rd1], %r1; ret; }\n"
	mod, err := Load(t.Context(), parse(t, src), Options{MaxRegisters: 64, MaxLocal: 4096})
	if err != nil {
		t.Fatal(err)
	}
	m := machineFor(t, mod)
	for name, why := range map[string]string{"registers": "registers, more than 64", "local": "8192 bytes of local memory a thread, more than 4096"} {
		_, err := NewGrid(Launch{Kernel: mod.Kernel(name), Grid: d3(1), Block: d3(1), Params: make([]byte, 8), Memory: m.mem, SMs: 1})
		if !errors.Is(err, gpu.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), "kernel "+name+", ") || !strings.Contains(fmt.Sprint(err), why) {
			t.Errorf("launch of %s: %v", name, err)
		}
	}
	out, data := m.words(0)
	if f := m.run("fine", d3(1), d3(1), 0, out); f != nil || wordsOf(data)[0] != 7 {
		t.Errorf("the kernel beside them: %v, %d", f, wordsOf(data)[0])
	}
}
