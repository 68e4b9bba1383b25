package executor

import (
	"strings"
	"testing"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

// A failed assertion's message reaches the guest, and its status is CUDA's.
func TestAssertion(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	fn := g.load(ptxHeader+`
.extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);
.global .align 1 .b8 expr[6] = {120, 32, 62, 32, 48, 0};
.global .align 1 .b8 file[5] = {97, 46, 99, 117, 0};
.global .align 1 .b8 name[2] = {102, 0};
.visible .entry fails(.param .u64 p)
{
	.reg .b64 %rd<8>; .reg .b32 %r<4>;
	mov.u64 %rd3, expr; mov.u64 %rd4, file; mov.u64 %rd5, name; mov.u64 %rd6, 1; mov.u32 %r3, 17;
	{ .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;
	st.param.b64 [a], %rd3; st.param.b64 [b], %rd4; st.param.b32 [c], %r3; st.param.b64 [d], %rd5; st.param.b64 [e], %rd6;
	call.uni __assertfail, (a, b, c, d, e); }
	ret;
}
`, "fails")
	l, params := launchOf(fn, 1, 0)
	if c := g.call(abi.Header{Op: abi.OpLaunch}, l, params...); c.Status != abi.StatusAssert {
		t.Fatalf("the launch: %v", c.Status)
	}
	c := g.must(abi.OpLastFault, abi.WindowArg{Window: abi.Window{Offset: staging, Size: 1 << 10}})
	const want = "a.cu:17: f: block: [0,0,0], thread: [0,0,0] Assertion `x > 0` failed."
	if text := string(r.shared[staging : staging+c.Value[0]]); text != want || abi.Status(c.Value[1]) != abi.StatusAssert {
		t.Errorf("%q, %v", text, abi.Status(c.Value[1]))
	}
	if c := g.call(abi.Header{Op: abi.OpMemInfo}, abi.Empty{}); c.Status != abi.StatusAssert || !strings.Contains(r.x.lastFault, want) {
		t.Errorf("a command after it: %v", c.Status)
	}
}
