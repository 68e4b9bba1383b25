package nvidia

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

// answerPTX has a resident kernel that polls a word in host memory and answers in another: what a
// dispatcher takes at least. The lines before ANSWER are what a dispatcher does besides.
const answerPTX = `.version 7.0
.target sm_70
.address_size 64
.visible .entry answer(.param .u64 at) {
	.reg .b64 %%rd<6>;
	.reg .b32 %%r<8>;
	.reg .pred %%p;
	ld.param.u64 %%rd1, [at];
	mov.u32 %%r1, 0;
poll:
	ld.relaxed.sys.global.u32 %%r2, [%%rd1+128];
	ld.relaxed.sys.global.u32 %%r4, [%%rd1+256];
	ld.%s.sys.global.u64 %%rd2, [%%rd1];
	cvt.u32.u64 %%r5, %%rd2;
	setp.ne.u32 %%p, %%r2, 0;
	@%%p bra end;
	setp.eq.u32 %%p, %%r5, %%r1;
	@%%p bra poll;
	mov.u32 %%r1, %%r5;
	%s
	bra poll;
end:
	ret;
}
`

// TestHardwareEventParts reports how long a resident kernel takes to answer, and what each thing adds
// that a dispatcher does besides.
func TestHardwareEventParts(t *testing.T) {
	_, c := hardwareContext(t, gpu.ContextOptions{})
	f, mem := hostFile(t, hostPage)
	p, err := c.MapHost(f, 0, mem, 0)
	if err != nil {
		t.Fatal(err)
	}
	ch := channelOf(t, c)
	const (
		answer  = "st.relaxed.sys.global.u32 [%rd1+384], %r1;"
		fence   = "fence.acq_rel.sys; "
		read    = "ld.relaxed.sys.global.u32 %r6, [%rd1+512]; add.u32 %r6, %r6, %r1; st.relaxed.cta.global.u32 [%rd1+640], %r6; "
		result  = "st.global.u32 [%rd1+768], %r1; "
		release = "st.release.sys.global.u32 [%rd1+384], %r1;"
	)
	for _, v := range []struct{ name, load, text string }{
		{"a poll and an answer", "relaxed", answer}, {"and a fence that acquires", "relaxed", fence + answer},
		{"a poll that acquires in place of both", "acquire", answer}, {"and a store that releases", "acquire", release},
		{"with a result before it", "acquire", result + release}, {"and a read of parameters", "acquire", read + result + release},
	} {
		m, err := c.LoadModule(fmt.Appendf(nil, answerPTX, v.load, v.text))
		if err != nil {
			t.Fatal(err)
		}
		k, err := m.Function("answer")
		if err != nil {
			t.Fatal(err)
		}
		clear(mem)
		one := gpu.Dim3{X: 1, Y: 1, Z: 1}
		end, err := ch.Launch(&gpu.Launch{Function: k, Grid: one, Block: one, Params: binary.LittleEndian.AppendUint64(nil, uint64(p))})
		if err != nil {
			t.Fatal(err)
		}
		doorbell, answered, stop := abi.AtomicWord64(mem, 0), abi.AtomicWord(mem, 384), abi.AtomicWord(mem, 128)
		var took []time.Duration
		for n := range uint32(5000) {
			pause := rand.N(10 * time.Microsecond)
			for from := time.Now(); time.Since(from) < pause; {
			}
			begin := time.Now()
			doorbell.Swap(uint64(n) + 1)
			for answered.Load() != n+1 {
				if time.Since(begin) > 10*time.Second {
					t.Fatalf("%s: no answer to %d", v.name, n)
				}
			}
			took = append(took, time.Since(begin))
		}
		stop.Store(1)
		if o := ran(t, ch, end, nil); o.Err != nil {
			t.Fatal(o.Err)
		}
		slices.Sort(took)
		t.Logf("%s: p50 %v, p99 %v", v.name, took[len(took)/2], took[len(took)*99/100])
		if err := m.Unload(); err != nil {
			t.Fatal(err)
		}
	}
}

// forwardedPTX has a resident kernel that polls a word in GPU memory and answers in host memory. Every
// 1,024 polls it looks whether it is to end.
const forwardedPTX = `.version 7.0
.target sm_70
.address_size 64
.visible .entry answer(.param .u64 at, .param .u64 doorbell) {
	.reg .b64 %rd<6>;
	.reg .b32 %r<8>;
	.reg .pred %p;
	ld.param.u64 %rd1, [at];
	ld.param.u64 %rd2, [doorbell];
	mov.u32 %r1, 0;
	mov.u32 %r3, 0;
poll:
	ld.relaxed.sys.global.u32 %r5, [%rd2];
	setp.ne.u32 %p, %r5, %r1;
	@%p bra rung;
	add.u32 %r3, %r3, 1;
	and.b32 %r4, %r3, 1023;
	setp.ne.u32 %p, %r4, 0;
	@%p bra poll;
	ld.relaxed.sys.global.u32 %r2, [%rd1+128];
	setp.eq.u32 %p, %r2, 0;
	@%p bra poll;
	ret;
rung:
	mov.u32 %r1, %r5;
	st.relaxed.sys.global.u32 [%rd1+384], %r1;
	bra poll;
}
`

// TestHardwareForwardedDoorbell reports how long a resident kernel takes to answer if it polls memory
// of its GPU, to which a thread of the host that does nothing else forwards the doorbell through the
// GPU's aperture (BAR1). TestHardwareEventParts has the same without forwarding.
func TestHardwareForwardedDoorbell(t *testing.T) {
	if !alone(t) {
		return
	}
	_, c := hardwareWindow(t)
	at, size, w := c.Window()
	f, mem := hostFile(t, hostPage)
	p, err := c.MapHost(f, 0, mem, 0)
	if err != nil {
		t.Fatal(err)
	}
	ch := channelOf(t, c)
	m, err := c.LoadModule([]byte(forwardedPTX))
	if err != nil {
		t.Fatal(err)
	}
	k, err := m.Function("answer")
	if err != nil {
		t.Fatal(err)
	}
	off := size - 4
	one := gpu.Dim3{X: 1, Y: 1, Z: 1}
	params := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(p)), uint64(at)+off)
	fence, err := ch.Launch(&gpu.Launch{Function: k, Grid: one, Block: one, Params: params})
	if err != nil {
		t.Fatal(err)
	}
	doorbell, answered, stop := abi.AtomicWord(mem, 0), abi.AtomicWord(mem, 384), abi.AtomicWord(mem, 128)
	forwarded := make(chan struct{})
	go func() {
		defer close(forwarded)
		runtime.LockOSThread()
		for seen := uint32(0); stop.Load() == 0; {
			if n := doorbell.Load(); n != seen {
				seen = n
				w.Store32(off, n)
			}
		}
	}()
	var took []time.Duration
	for n := range uint32(5000) {
		pause := rand.N(10 * time.Microsecond)
		for from := time.Now(); time.Since(from) < pause; {
		}
		begin := time.Now()
		doorbell.Swap(n + 1)
		for answered.Load() != n+1 {
			if time.Since(begin) > 10*time.Second {
				t.Fatalf("no answer to %d", n)
			}
		}
		took = append(took, time.Since(begin))
	}
	stop.Store(1)
	<-forwarded
	if o := ran(t, ch, fence, nil); o.Err != nil {
		t.Fatal(o.Err)
	}
	slices.Sort(took)
	t.Logf("forwarded through the aperture: p50 %v, p99 %v", took[len(took)/2], took[len(took)*99/100])
}
