package dispatch

import (
	"strings"
	"testing"

	"vgpud/gpu"
	"vgpud/ptx"
	"vgpud/ptx/callable"
	"vgpud/ptx/variables"
)

// TestRefused lists what has no dispatcher.
func TestRefused(t *testing.T) {
	const head = ".version 7.0\n.target sm_70\n.address_size 64\n"
	for _, c := range []struct{ name, text, want string }{
		{"variable", ".global .u32 v;\n.visible .entry k(.param .u64 p) { st.global.u32 [v], 1; ret; }", "no-address: v: not found"},
		{"printing", ".extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);\n.visible .entry k(.param .u64 p) { .param .b32 r; .param .b64 f; .param .b64 a; call (r), vprintf, (f, a); ret; }", "it calls vprintf"},
		{"texture", ".global .texref v;\n.visible .entry k(.param .u64 p) { .reg .b64 %rd; mov.u64 %rd, v; ret; }", variables.Texture.String()},
		{"bindless texture", ".visible .entry k(.param .u64 p) { .reg .b64 %rd; .reg .b32 %r<2>; .reg .f32 %f<4>; ld.param.u64 %rd, [p]; mov.b32 %r0, 0; { tex.2d.v4.f32.s32 {%f0, %f1, %f2, %f3}, [%rd, {%r0, %r0}]; } ret; }", "tex goes through a cache"},
		{"bindless surface", ".visible .entry k(.param .u64 p) { .reg .b64 %rd; .reg .b32 %r<2>; ld.param.u64 %rd, [p]; mov.b32 %r0, 0; suld.b.1d.b32.trap %r1, [%rd, {%r0}]; ret; }", "suld goes through a cache"},
		{"parameters", ".visible .entry k(.param .u32 p) { ret; }", "4 bytes of parameters"},
		{"none", ".visible .entry other(.param .u64 p) { ret; }", "not found"},
		{"exit in a function", ".func f() { exit; }\n.visible .entry k(.param .u64 p) { call f, (); ret; }", callable.ExitInFunction.String()},
	} {
		m, err := ptx.Parse(head + c.text)
		if err != nil {
			t.Fatal(err)
		}
		none := func(string) (variables.Place, error) { return variables.Place{}, gpu.ErrNotFound }
		_, err = Build(m, &Kernel{Name: "k", Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 32, Y: 1, Z: 1}, ParamBytes: 8, Entries: 4}, none)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestCoherent: no load of a dispatcher may take what it wants from a cache that other events' writers
// do not reach.
func TestCoherent(t *testing.T) {
	const text = `.version 7.0
.target sm_70
.address_size 64
.const .u32 scale = 2;
.global .u32 v;
.func f(.param .b64 p) { .reg .b64 %rd; .reg .b32 %r; ld.param.b64 %rd, [p]; { ld.global.ca.nc.u32 %r, [%rd]; } ret; }
.visible .entry k(.param .u64 p) {
	.reg .b64 %rd; .reg .b32 %r<4>;
	ld.param.u64 %rd, [p];
	ld.global.nc.v2.u32 {%r0, %r1}, [%rd];
	ldu.global.u32 %r2, [v];
	ld.const.u32 %r3, [scale];
	{ .param .b64 a; st.param.b64 [a], %rd; call f, (a); }
	ret;
}
`
	m, err := ptx.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Build(m, &Kernel{Name: "k", Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 32, Y: 1, Z: 1}, ParamBytes: 8, Entries: 4},
		func(string) (variables.Place, error) { return variables.Place{Address: 1 << 20, Bytes: 4}, nil })
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ld.global.v2.u32 {%r0, %r1}", "ld.global.ca.u32 %r", "ld.global.u32 %r2", "ld.global.u32 %r3"} {
		if !strings.Contains(d.PTX, want) {
			t.Errorf("missing: %s", want)
		}
	}
	for _, not := range []string{".nc", "ldu", "ld.const"} {
		if strings.Contains(d.PTX, not) {
			t.Errorf("the dispatcher has %s", not)
		}
	}
	if t.Failed() {
		t.Log(d.PTX)
	}
}
