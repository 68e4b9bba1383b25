package simt

import (
	"fmt"
	"math/bits"
	"testing"

	"vgpud/gpu"
)

// shfl matches its definition, over modes, widths and distances, with some lanes missing.
func TestShuffle(t *testing.T) {
	for _, mode := range []string{"idx", "up", "down", "bfly"} {
		m := newMachine(t, entry(fmt.Sprintf(`
	ld.global.u32 %%r3, [%%rd2];
	ld.global.u32 %%r4, [%%rd2+4];
	mov.u32 %%r9, %%laneid;
	shr.u32 %%r5, %%r1, %%r9;
	and.b32 %%r5, %%r5, 1;
	setp.eq.u32 %%p1, %%r5, 0;
	@%%p1 ret;
	add.u32 %%r6, %%r2, 100;
	shfl.sync.%s.b32 %%r7|%%p2, %%r6, %%r3, %%r4, %%r1;
	selp.u32 %%r8, 1000, 0, %%p2;
	add.u32 %%r7, %%r7, %%r8;
`, mode)+storeAt("%r2", "u32", "%r7")))
		for _, width := range []int{32, 16, 8, 2} {
			for _, distance := range []int{0, 1, 3, 7, 16, 31} {
				for _, members := range []uint32{full, 0x0fff_ffff, 0x5555_5555} {
					clamp := 31
					if mode == "up" {
						clamp = 0
					}
					arg, _ := m.words(uint32(distance), uint32((32-width)<<8|clamp))
					out, data := m.alloc(4 * lanes)
					if f := m.run("k", d3(1), d3(32), 0, out, arg, members); f != nil {
						t.Fatal(f)
					}
					for lane := range lanes {
						if members>>lane&1 == 0 {
							continue
						}
						from, ok := lane, true
						base := lane / width * width
						switch mode {
						case "idx":
							from = base + distance%width
						case "up":
							from = lane - distance
							ok = from >= base
						case "down":
							from = lane + distance
							ok = from < base+width
						case "bfly":
							from = lane ^ distance
							ok = from < base+width
						}
						want := uint32(100 + lane)
						if ok {
							want = uint32(1000 + 100 + from)
						}
						if ok && members>>from&1 == 0 {
							continue // a missing lane gives an undefined result
						}
						if got := wordsOf(data)[lane]; got != want {
							t.Fatalf("%s, width %d, distance %d, lane %d: %d, want %d", mode, width, distance, lane, got, want)
						}
					}
				}
			}
		}
	}
}

// Votes, matches and reductions work on a subset of a warp's lanes.
func TestWarpWide(t *testing.T) {
	value := func(lane int) uint32 { return uint32(lane*lane%7) - 3 }
	over := func(members uint32, f func(lane int)) {
		for m := members; m != 0; m &= m - 1 {
			f(first(m))
		}
	}
	for _, test := range []struct {
		code string
		want func(members uint32, lane int) uint32
	}{
		{"setp.gt.s32 %p3, %r6, 0; vote.sync.ballot.b32 %r7, %p3, %r1;", func(members uint32, _ int) (v uint32) {
			over(members, func(l int) { v |= bit(int32(value(l)) > 0) << l })
			return
		}},
		{"setp.ge.s32 %p3, %r6, -3; vote.sync.all.pred %p4, %p3, %r1; selp.u32 %r7, 1, 0, %p4;", func(uint32, int) uint32 { return 1 }},
		{"setp.gt.s32 %p3, %r6, 3; vote.sync.any.pred %p4, %p3, %r1; selp.u32 %r7, 1, 0, %p4;", func(uint32, int) uint32 { return 0 }},
		{"setp.gt.s32 %p3, %r6, 3; vote.sync.uni.pred %p4, %p3, %r1; selp.u32 %r7, 1, 0, %p4;", func(uint32, int) uint32 { return 1 }},
		{"match.any.sync.b32 %r7, %r6, %r1;", func(members uint32, lane int) (v uint32) {
			over(members, func(l int) { v |= bit(value(l) == value(lane)) << l })
			return
		}},
		{"match.all.sync.b32 %r7|%p3, 5, %r1; @!%p3 mov.u32 %r7, 0;", func(members uint32, _ int) uint32 { return members }},
		{"match.all.sync.b32 %r7|%p3, %r2, %r1; @%p3 mov.u32 %r7, 9;", func(members uint32, _ int) uint32 {
			return 9 * bit(bits.OnesCount32(members) == 1)
		}},
		{"redux.sync.add.s32 %r7, %r6, %r1;", func(members uint32, _ int) (v uint32) {
			over(members, func(l int) { v += value(l) })
			return
		}},
		{"redux.sync.min.s32 %r7, %r6, %r1;", func(members uint32, _ int) uint32 {
			v := int32(1000)
			over(members, func(l int) { v = min(v, int32(value(l))) })
			return uint32(v)
		}},
		{"redux.sync.max.u32 %r7, %r6, %r1;", func(members uint32, _ int) (v uint32) {
			over(members, func(l int) { v = max(v, value(l)) })
			return
		}},
		{"redux.sync.xor.b32 %r7, %r6, %r1;", func(members uint32, _ int) (v uint32) {
			over(members, func(l int) { v ^= value(l) })
			return
		}},
		{"elect.sync %r7|%p3, %r1; selp.u32 %r8, 100, 0, %p3; add.u32 %r7, %r7, %r8;", func(members uint32, lane int) uint32 {
			return uint32(first(members)) + 100*bit(lane == first(members))
		}},
		{"activemask.b32 %r7;", func(members uint32, _ int) uint32 { return members }},
	} {
		m := newMachine(t, entry(`
	shr.u32 %r5, %r1, %r2;
	and.b32 %r5, %r5, 1;
	setp.eq.u32 %p1, %r5, 0;
	@%p1 bra OUT;
	mul.lo.u32 %r6, %r2, %r2;
	rem.u32 %r6, %r6, 7;
	sub.u32 %r6, %r6, 3;
	`+test.code+storeAt("%r2", "u32", "%r7")+"OUT:"))
		for _, members := range []uint32{full, 0xf0f0_f0f0, 1 << 9, 0x8000_0001} {
			out, data := m.alloc(4 * lanes)
			if f := m.run("k", d3(1), d3(32), 0, out, out, members); f != nil {
				t.Fatal(test.code, f)
			}
			over(members, func(lane int) {
				if got, want := wordsOf(data)[lane], test.want(members, lane); got != want {
					t.Errorf("%s of %#x: lane %d got %#x, want %#x", test.code, members, lane, got, want)
				}
			})
		}
	}
}

// Special registers have a thread's position.
func TestSpecialRegisters(t *testing.T) {
	m := newMachine(t, `
.visible .entry k(.param .u64 k_param_0)
{
	.reg .b32 %r<40>; .reg .b64 %rd<8>;
	ld.param.u64 %rd1, [k_param_0];
	mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z;
	mov.u32 %r4, %ntid.x; mov.u32 %r5, %ntid.y; mov.u32 %r6, %ntid.z;
	mov.u32 %r7, %ctaid.x; mov.u32 %r8, %ctaid.y; mov.u32 %r9, %ctaid.z;
	mov.u32 %r10, %nctaid.x; mov.u32 %r11, %nctaid.y; mov.u32 %r12, %nctaid.z;
	mov.u32 %r13, %laneid; mov.u32 %r14, %warpid; mov.u32 %r15, %nwarpid;
	mov.u32 %r16, %lanemask_eq; mov.u32 %r17, %lanemask_le; mov.u32 %r18, %lanemask_lt; mov.u32 %r19, %lanemask_ge; mov.u32 %r20, %lanemask_gt;
	mov.u32 %r21, %nsmid; mov.u32 %r22, WARP_SZ; mov.u64 %rd2, %gridid; cvt.u32.u64 %r23, %rd2; mov.u32 %r24, %smid;
	mad.lo.u32 %r30, %r9, %r11, %r8; mad.lo.u32 %r30, %r30, %r10, %r7;
	mad.lo.u32 %r30, %r30, %r6, %r3; mad.lo.u32 %r30, %r30, %r5, %r2; mad.lo.u32 %r30, %r30, %r4, %r1;
	mul.wide.u32 %rd3, %r30, 96; add.s64 %rd3, %rd1, %rd3;
	st.global.v4.u32 [%rd3], {%r1, %r2, %r3, %r4}; st.global.v4.u32 [%rd3+16], {%r5, %r6, %r7, %r8};
	st.global.v4.u32 [%rd3+32], {%r9, %r10, %r11, %r12}; st.global.v4.u32 [%rd3+48], {%r13, %r14, %r15, %r16};
	st.global.v4.u32 [%rd3+64], {%r17, %r18, %r19, %r20}; st.global.v4.u32 [%rd3+80], {%r21, %r22, %r23, %r24};
	ret;
}`)
	grid, block := gpu.Dim3{X: 3, Y: 2, Z: 2}, gpu.Dim3{X: 5, Y: 4, Z: 2}
	out, data := m.alloc(int(grid.Count()*block.Count()) * 96)
	l := Launch{Kernel: m.module.Kernel("k"), Grid: grid, Block: block, Params: params(out), ID: 42}
	if f := m.launch(l); f != nil {
		t.Fatal(f)
	}
	words := wordsOf(data)
	for i := range uint32(len(words) / 24) {
		tid, cta := i%40, i/40
		lane := tid % 32
		want := []uint32{
			tid % 5, tid / 5 % 4, tid / 20, 5, 4, 2, cta % 3, cta / 3 % 2, cta / 6, 3, 2, 2, lane, tid / 32, 2,
			1 << lane, 2<<lane - 1, 1<<lane - 1, full << lane, full << lane << 1, 2, 32, 42,
		}
		got := words[24*i:]
		for k := range want {
			if got[k] != want[k] {
				t.Fatalf("thread %d of block %d, register %d: %#x, want %#x", tid, cta, k+1, got[k], want[k])
			}
		}
		if got[23] > 1 {
			t.Fatal("on SM", got[23])
		}
	}
}

// The clock counts the instructions between its two reads.
func TestClock(t *testing.T) {
	m := newMachine(t, entry(`
	mov.u64 %rd3, %clock64;
	add.u32 %r3, %r2, 1; add.u32 %r3, %r3, 1; add.u32 %r3, %r3, 1; add.u32 %r3, %r3, 1; add.u32 %r3, %r3, 1;
	mov.u64 %rd4, %clock64;
	sub.s64 %rd4, %rd4, %rd3;
	cvt.u32.u64 %r4, %rd4;
`+storeAt("%r2", "u32", "%r4")))
	out, data := m.alloc(4 * 32)
	if f := m.run("k", d3(1), d3(32), 0, out, out, 0); f != nil {
		t.Fatal(f)
	}
	if v := wordsOf(data)[0]; v != 6 {
		t.Errorf("%d cycles", v)
	}
}
