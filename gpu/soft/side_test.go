package soft

import (
	"testing"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/soft/machine"
)

// meet has a kernel that stores to one word, waits for another, and then takes two instructions of
// its SM for each count.
const meet = `
.version 7.0
.target sm_80
.address_size 64

.visible .entry meet(.param .u64 mine, .param .u64 other, .param .u32 count)
{
	.reg .pred %p<3>;
	.reg .b64 %rd<3>;
	.reg .b32 %r<5>;
	ld.param.u64 %rd1, [mine];
	ld.param.u64 %rd2, [other];
	ld.param.u32 %r1, [count];
	mov.u32 %r2, 1;
	st.volatile.global.u32 [%rd1], %r2;
wait:
	ld.volatile.global.u32 %r3, [%rd2];
	setp.eq.u32 %p1, %r3, 0;
	@%p1 bra wait;
more:
	sub.u32 %r1, %r1, 1;
	setp.ne.u32 %p2, %r1, 0;
	@%p2 bra more;
	ret;
}
`

// Kernels in two channels of a context that wait for each other both end. They share the SM, and
// the context is charged for the time once.
func TestChannelsRunSideBySide(t *testing.T) {
	for _, mode := range []machine.Mode{machine.Exclusive, machine.Slices} {
		t.Run(mode.String(), func(t *testing.T) {
			const count, warpTime = 20000, time.Microsecond
			d := newDevice(t, Options{WarpTime: warpTime, Machine: machine.Config{Mode: mode, SMs: 1}})
			r := newRig(t, d, gpu.ContextOptions{Label: "meeting"})
			other := newRig(t, d, gpu.ContextOptions{})
			m, err := r.ctx.LoadModule([]byte(meet))
			if err != nil {
				t.Fatal(err)
			}
			f, err := m.Function("meet")
			if err != nil {
				t.Fatal(err)
			}
			p := r.alloc(8)
			second := *r
			if second.ch, err = r.ctx.NewChannel(); err != nil {
				t.Fatal(err)
			}
			launch := func(r *rig, args ...any) gpu.Fence {
				return r.must(r.ch.Launch(&gpu.Launch{Function: f, Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 32, Y: 1, Z: 1}, Params: params(args...)}))
			}
			a := launch(r, p, p+4, uint32(count))
			b := launch(&second, p+4, p, uint32(count))
			other.vecadd(100)
			first, last := r.wait(a), second.wait(b)
			if first.Err != nil || last.Err != nil || first.Start >= last.End || last.Start >= first.End {
				t.Errorf("they ran as %+v and %+v", first, last)
			}
			u, err := d.Usage()
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range u.Labels {
				if l.Label != "meeting" {
					continue
				}
				// Each takes two instructions for each count, and no two at a time.
				if least := 4 * count * warpTime; l.Busy < least {
					t.Errorf("the context had the GPU for %v, its kernels take %v", l.Busy, least)
				}
				if most := max(first.End, last.End) - min(first.Start, last.Start); l.Busy > most {
					t.Errorf("the context was charged %v of %v", l.Busy, most)
				}
			}
			if u.Machine.Busy+u.Machine.Idle+u.Machine.Switching != u.Machine.Elapsed {
				t.Errorf("%+v does not add up", u.Machine)
			}
		})
	}
}
