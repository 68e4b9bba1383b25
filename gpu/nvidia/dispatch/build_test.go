package dispatch

import (
	"fmt"
	"strings"
	"testing"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
	"vgpud/ptx"
	"vgpud/ptx/callable"
	"vgpud/ptx/variables"
)

// TestRefused lists what has no dispatcher.
func TestRefused(t *testing.T) {
	const head = ".version 7.0\n.target sm_70\n.address_size 64\n"
	for _, c := range []struct {
		name, text, want string
		why              abi.EventReason
	}{
		{"variable", ".global .u32 v;\n.visible .entry k(.param .u64 p) { st.global.u32 [v], 1; ret; }", "no-address: v: not found", abi.EventReasonOf("no-address")},
		{"printing", ".extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);\n.visible .entry k(.param .u64 p) { .param .b32 r; .param .b64 f; .param .b64 a; call (r), vprintf, (f, a); ret; }", "it calls vprintf", abi.EventReasonPrints},
		{"texture", ".global .texref v;\n.visible .entry k(.param .u64 p) { .reg .b64 %rd; mov.u64 %rd, v; ret; }", variables.Texture.String(), abi.EventReasonOf("texture")},
		{"bindless texture", ".visible .entry k(.param .u64 p) { .reg .b64 %rd; .reg .b32 %r<2>; .reg .f32 %f<4>; ld.param.u64 %rd, [p]; mov.b32 %r0, 0; { tex.2d.v4.f32.s32 {%f0, %f1, %f2, %f3}, [%rd, {%r0, %r0}]; } ret; }", "tex goes through a cache", abi.EventReasonFetch},
		{"bindless surface", ".visible .entry k(.param .u64 p) { .reg .b64 %rd; .reg .b32 %r<2>; ld.param.u64 %rd, [p]; mov.b32 %r0, 0; suld.b.1d.b32.trap %r1, [%rd, {%r0}]; ret; }", "suld goes through a cache", abi.EventReasonFetch},
		{"parameters", ".visible .entry k(.param .u32 p) { ret; }", "4 bytes of parameters", abi.EventReasonParams},
		{"none", ".visible .entry other(.param .u64 p) { ret; }", "not found", abi.EventReasonDriver},
		{"exit in a function", ".func f() { exit; }\n.visible .entry k(.param .u64 p) { call f, (); ret; }", callable.ExitInFunction.String(), abi.EventReasonOf("exit-in-function")},
	} {
		m, err := ptx.Parse(head + c.text)
		if err != nil {
			t.Fatal(err)
		}
		none := func(string) (variables.Place, error) { return variables.Place{}, gpu.ErrNotFound }
		_, err = Build(m, &Kernel{Name: "k", Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 32, Y: 1, Z: 1}, ParamBytes: 8, Entries: 4}, none)
		if err == nil || !strings.Contains(err.Error(), c.want) || Why(err) != c.why {
			t.Errorf("%s: %v, which is %v, want %q, which is %v", c.name, err, Why(err), c.want, c.why)
		}
	}
}

// TestReasonsHaveNumbers: each reason of the packages below has a number of its own, by which executors tell the daemon.
func TestReasonsHaveNumbers(t *testing.T) {
	names := make(map[string]bool)
	for r := callable.None + 1; !strings.HasPrefix(r.String(), "reason-"); r++ {
		names[r.String()] = true
	}
	for r := variables.None + 1; !strings.HasPrefix(r.String(), "reason-"); r++ {
		names[r.String()] = true
		if got := Why(fmt.Errorf("a kernel: %w", &variables.Refusal{Reason: r})); got.String() != r.String() {
			t.Errorf("%v is told as %v", r, got)
		}
	}
	if len(names) < 25 {
		t.Fatalf("%d reasons", len(names))
	}
	for name := range names {
		if got := abi.EventReasonOf(name); got.String() != name {
			t.Errorf("%s is told as %v", name, got)
		}
	}
	for r, want := range map[abi.EventReason]string{abi.EventReasonNone: "", 26: "reason 26", 255: "reason 255", abi.EventReasonGrid: "grid"} {
		if r.String() != want {
			t.Errorf("reason %d is %q", uint8(r), r)
		}
	}
	if got := abi.EventReasonOf(""); got != abi.EventReasonDriver {
		t.Errorf("no name is %v", got)
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
