package nvidia

import (
	"testing"
	"time"

	"vgpud/gpu"
)

// The output of kernels is available once their channel has passed them, whatever runs beside them.
func TestHardwarePrintf(t *testing.T) {
	_, c := hardwareContext(t, gpu.ContextOptions{})
	ch, beside := channelOf(t, c), channelOf(t, c)
	k := load(t, c)
	say, err := c.LoadModule([]byte(sayPTX))
	if err != nil {
		t.Fatal(err)
	}
	f, err := say.Function("say")
	if err != nil {
		t.Fatal(err)
	}
	spin, err := beside.Launch(k("spin", 300e6))
	if err != nil {
		t.Fatal(err)
	}
	one := gpu.Dim3{X: 1, Y: 1, Z: 1}
	for range 3 {
		launched := time.Now()
		fence, err := ch.Launch(&gpu.Launch{Function: f, Grid: gpu.Dim3{X: 2, Y: 1, Z: 1}, Block: one})
		called := time.Since(launched)
		ran(t, ch, fence, err)
		t.Logf("launched in %v, done after %v", called, time.Since(launched))
		start := time.Now()
		text, err := c.Printf(1000)
		if err != nil || string(text) != "hello\nhello\n" {
			t.Errorf("printed %q, %v", text, err)
		}
		t.Logf("fetched in %v; kernel beside it still running: %v", time.Since(start), beside.Done() < spin)
	}
	ran(t, beside, spin, nil)
	text, err := c.Printf(1000)
	t.Logf("afterwards: %q, %v", text, err)
}

const sayPTX = `.version 7.0
.target sm_70
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.global .align 1 .b8 text[7] = {104, 101, 108, 108, 111, 10, 0};
.visible .entry say() {
	.reg .b64 %rd<3>;
	.reg .b32 %r<2>;
	mov.u64 %rd1, text;
	cvta.global.u64 %rd2, %rd1;
	{
		.param .b64 a;
		.param .b64 b;
		.param .b32 r;
		mov.u64 %rd1, 0;
		st.param.b64 [a], %rd2;
		st.param.b64 [b], %rd1;
		call.uni (r), vprintf, (a, b);
		ld.param.b32 %r1, [r];
	}
	ret;
}
`
