package simt

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	"vgpud/gpu/soft/arith"
)

// in3 is the input of a lane for an instruction under test: three words, which its code can also
// read as 64-bit integers, floats, doubles and halves.
type in3 struct{ a, b, c uint32 }

func (x in3) la() uint64  { return uint64(x.b)<<32 | uint64(x.a) }
func (x in3) lb() uint64  { return uint64(x.c)<<32 | uint64(x.b) }
func (x in3) fa() float32 { return math.Float32frombits(x.a) }
func (x in3) fb() float32 { return math.Float32frombits(x.b) }
func (x in3) fc() float32 { return math.Float32frombits(x.c) }
func (x in3) da() float64 { return math.Float64frombits(x.la()) }
func (x in3) db() float64 { return math.Float64frombits(x.lb()) }

func f32(x float32) uint64 { return uint64(math.Float32bits(x)) }
func b64(b bool) uint64    { return uint64(bit(b)) }

// Each entry has an instruction with its result in %rd9, and the expected result. This tests the
// wiring of operands and types; the arithmetic has its own tests.
var semantics = []struct {
	code string
	want func(x in3) uint64
}{
	{"{ .reg .pred q; setp.lt.u32 q, %ra, %rb; selp.b32 %r9, %ra, %rc, q; } R", func(x in3) uint64 { return uint64(map[bool]uint32{true: x.a, false: x.c}[x.a < x.b]) }},
	{"{ .reg .pred q; setp.lt.u32 q, %ra, %rb; selp.b64 %rd9, %la, %lb, !q; }", func(x in3) uint64 { return map[bool]uint64{true: x.lb(), false: x.la()}[x.a < x.b] }},
	{"sub.u32 %r9, %ra, %rb; R", func(x in3) uint64 { return uint64(x.a - x.b) }},
	{"mad.lo.s32 %r9, %ra, %rb, %rc; R", func(x in3) uint64 { return uint64(x.a*x.b + x.c) }},
	{"mov.v2.u32 {%r7,%r8}, {%ra,%rb}; mov.v2.u32 {%r7,%r8}, {%r8,%r7}; mov.b64 %rd9, {%r7,%r8};", func(x in3) uint64 { return uint64(x.a)<<32 | uint64(x.b) }},
	{"{ .reg .v2 .u32 v; mov.b64 v, %la; mov.b64 %rd9, {v.y,v.x}; }", func(x in3) uint64 { return uint64(x.a)<<32 | uint64(x.b) }},
	{"{ .reg .v2 .u32 v; mov.v2.u32 v, {%ra,%rc}; mov.b64 %rd9, v; }", func(x in3) uint64 { return uint64(x.c)<<32 | uint64(x.a) }},
	{"mad.wide.s32 %rd9, %ra, %rb, %la;", func(x in3) uint64 { return uint64(int64(int32(x.a))*int64(int32(x.b))) + x.la() }},
	{"mul.hi.s64 %rd9, %la, %lb;", func(x in3) uint64 { return uint64(arith.MulHiS64(int64(x.la()), int64(x.lb()))) }},
	{"sub.s16 %ha, %ha, %hb; cvt.u64.u16 %rd9, %ha;", func(x in3) uint64 { return uint64(uint16(x.a) - uint16(x.b)) }},
	{"mad.lo.u16 %ha, %ha, %hb, %hb; cvt.s64.s16 %rd9, %ha;", func(x in3) uint64 { return uint64(int64(int16(x.a)*int16(x.b) + int16(x.b))) }},
	{"shr.s16 %ha, %ha, 3; cvt.u64.u16 %rd9, %ha;", func(x in3) uint64 { return uint64(uint16(int16(x.a) >> 3)) }},
	{"neg.s16 %ha, %ha; cvt.u64.u16 %rd9, %ha;", func(x in3) uint64 { return uint64(uint16(-int16(x.a))) }},
	{"not.b16 %ha, %ha; cvt.u64.u16 %rd9, %ha;", func(x in3) uint64 { return uint64(^uint16(x.a)) }},
	{"rem.s32 %r9, %ra, %rb; R", func(x in3) uint64 { return uint64(uint32(arith.Rem(int32(x.a), int32(x.b)))) }},
	{"sad.u32 %r9, %ra, %rb, %rc; R", func(x in3) uint64 { return uint64(max(x.a, x.b) - min(x.a, x.b) + x.c) }},
	{"add.cc.u32 %r9, %ra, %rb; addc.cc.u32 %r8, %rb, %rc; addc.u32 %r7, 0, 0; add.u32 %r9, %r9, %r8; add.u32 %r9, %r9, %r7; R", func(x in3) uint64 {
		s, c := bits.Add32(x.a, x.b, 0)
		u, d := bits.Add32(x.b, x.c, c)
		return uint64(s + u + d)
	}},
	{"sub.cc.u64 %rd9, %la, %lb; subc.u64 %rd9, %lb, %la;", func(x in3) uint64 {
		_, c := bits.Sub64(x.la(), x.lb(), 0)
		return x.lb() - x.la() - c
	}},
	{"mad.lo.cc.u32 %r9, %ra, %rb, %rc; madc.hi.u32 %r9, %ra, %rb, %rc; R", func(x in3) uint64 {
		_, c := bits.Add32(x.a*x.b, x.c, 0)
		return uint64(arith.MulHiU32(x.a, x.b) + x.c + c)
	}},
	{"bfi.b32 %r9, %ra, %rb, 5, 9; R", func(x in3) uint64 { return uint64(x.b&^(0x1ff<<5) | x.a&0x1ff<<5) }},
	{"bfi.b64 %rd9, %la, %lb, 30, 9;", func(x in3) uint64 { return x.lb()&^(0x1ff<<30) | x.la()&0x1ff<<30 }},
	{"bfe.s32 %r9, %ra, 3, 7; R", func(x in3) uint64 { return uint64(uint32(int32(x.a<<22) >> 25)) }},
	{"shf.l.wrap.b32 %r9, %ra, %rb, %rc; R", func(x in3) uint64 { return uint64(uint32((uint64(x.b)<<32 | uint64(x.a)) << (x.c & 31) >> 32)) }},
	{"shf.r.clamp.b32 %r9, %ra, %rb, %rc; R", func(x in3) uint64 {
		return uint64(uint32((uint64(x.b)<<32 | uint64(x.a)) >> min(x.c, 32)))
	}},
	{"lop3.or.b32 %r9|%q, %ra, %rb, %rc, 0x96, %p; selp.u32 %r8, 7, 0, %q; add.u32 %r9, %r9, %r8; R", func(x in3) uint64 {
		v := x.a ^ x.b ^ x.c
		return uint64(v + 7*bit(v != 0 || x.a < x.b))
	}},
	{"szext.wrap.s32 %r9, %ra, 40; R", func(x in3) uint64 { return uint64(uint32(int32(int8(x.a)))) }},
	{"bmsk.clamp.b32 %r9, 4, 40; R", func(in3) uint64 { return 0xfffffff0 }},
	{"fns.b32 %r9, %ra, 3, 2; R", func(x in3) uint64 { return uint64(arith.Fns(x.a, 3, 2)) }},
	{"clz.b64 %r9, %la; R", func(x in3) uint64 { return uint64(bits.LeadingZeros64(x.la())) }},
	{"bfind.shiftamt.s32 %r9, %ra; R", func(x in3) uint64 {
		return uint64(arith.BfindShift(arith.BfindS32(int32(x.a)), 32))
	}},
	{"prmt.b32 %r9, %ra, %rb, 0x9420; R", func(x in3) uint64 { return uint64(arith.Prmt(x.a, x.b, 0x9420)) }},
	{"prmt.b32.rc8 %r9, %ra, %rb, 2; R", func(x in3) uint64 { return uint64(x.a >> 16 & 0xff * 0x01010101) }},
	{"dp4a.s32.u32 %r9, %ra, %rb, %rc; R", func(x in3) uint64 { return uint64(arith.Dp4a(x.a, x.b, x.c, true, false)) }},
	{"vabsdiff4.u32.u32.u32.add %r9, %ra, %rb, %rc; R", func(x in3) uint64 {
		s := x.c
		for i := 0; i < 32; i += 8 {
			p, q := x.a>>i&0xff, x.b>>i&0xff
			s += max(p, q) - min(p, q)
		}
		return uint64(s)
	}},
	{"vadd.s32.u32.s32.sat %r9.b1, %ra.b3, %rb.h1, %rc; R", func(x in3) uint64 {
		v := min(max(int32(x.a>>24)+int32(int16(x.b>>16)), -128), 127)
		return uint64(x.c&^0xff00 | uint32(uint8(v))<<8)
	}},
	{"setp.lt.and.s32 %p|%q, %ra, %rb, %p; selp.u32 %r9, 1, 0, %p; selp.u32 %r8, 2, 0, %q; add.u32 %r9, %r9, %r8; R", func(x in3) uint64 {
		lt := int32(x.a) < int32(x.b)
		return b64(lt && x.a < x.b) + 2*b64(!lt && x.a < x.b)
	}},
	{"setp.geu.f32 %p, %fa, %fb; selp.u32 %r9, 1, 0, !%p; R", func(x in3) uint64 { return b64(x.fa() < x.fb()) }},
	{"set.gt.f32.f32 %fd, %fa, %fb; mov.b32 %r9, %fd; R", func(x in3) uint64 { return 0x3f800000 * b64(x.fa() > x.fb()) }},
	{"set.ne.xor.u32.u64 %r9, %la, %lb, %p; R", func(x in3) uint64 { return 0xffffffff * b64((x.la() != x.lb()) != (x.a < x.b)) }},
	{"slct.s32.f32 %r9, %ra, %rb, %fc; R", func(x in3) uint64 {
		if x.fc() >= 0 {
			return uint64(x.a)
		}
		return uint64(x.b)
	}},
	{"cvt.sat.s8.s32 %r9, %ra; R", func(x in3) uint64 { return uint64(uint32(max(min(int32(x.a), 127), -128))) }},
	{"cvt.sat.u32.s64 %r9, %la; R", func(x in3) uint64 { return uint64(min(max(int64(x.la()), 0), math.MaxUint32)) }},
	{"cvt.s8.u32 %rd9, %ra;", func(x in3) uint64 { return uint64(int64(int8(x.a))) }},
	{"cvt.u8.u32 %rd9, %ra;", func(x in3) uint64 { return uint64(uint8(x.a)) }},
	{"cvt.rzi.u16.f32 %ha, %fa; cvt.u64.u16 %rd9, %ha;", func(x in3) uint64 { return uint64(arith.CvtIntF32[uint16](x.fa(), arith.RZ)) }},
	{"cvt.rz.f32.u64 %fd, %la; mov.b32 %r9, %fd; R", func(x in3) uint64 { return f32(arith.CvtF32Int(x.la(), arith.Mode{Round: arith.RZ})) }},
	{"cvt.rn.f32.s64 %fd, %la; mov.b32 %r9, %fd; R", func(x in3) uint64 { return f32(float32(int64(x.la()))) }},
	{"fma.rn.f32 %fd, %fa, %fb, %fc; mov.b32 %r9, %fd; R", func(x in3) uint64 { return f32(arith.FmaF32(x.fa(), x.fb(), x.fc())) }},
	{"sub.rp.ftz.sat.f32 %fd, %fa, %fb; mov.b32 %r9, %fd; R", func(x in3) uint64 {
		return f32(arith.SubF32Mode(x.fa(), x.fb(), arith.Mode{Round: arith.RP, FTZ: true, Sat: true}))
	}},
	{"max.NaN.xorsign.abs.f32 %fd, %fa, %fb; mov.b32 %r9, %fd; R", func(x in3) uint64 {
		return f32(arith.Pick{Max: true, NaN: true, XorSign: true, Abs: true}.F32(x.fa(), x.fb()))
	}},
	{"sub.f64 %dd, %da, %db; mov.b64 %rd9, %dd;", func(x in3) uint64 { return math.Float64bits(arith.SubF64(x.da(), x.db())) }},
	{"copysign.f64 %dd, %da, %db; mov.b64 %rd9, %dd;", func(x in3) uint64 { return math.Float64bits(arith.CopysignF64(x.da(), x.db())) }},
	{"sub.f16 %ha, %ha, %hb; cvt.u64.u16 %rd9, %ha;", func(x in3) uint64 { return uint64(arith.F16.Sub(uint16(x.a), uint16(x.b), arith.Mode{})) }},
	{"fma.rn.bf16x2 %r9, %ra, %rb, %rc; R", func(x in3) uint64 {
		return uint64(arith.Packed3(x.a, x.b, x.c, arith.Mode{}, arith.BF16.Fma))
	}},
	{"cvt.rn.f16x2.f32 %r9, %fa, %fb; R", func(x in3) uint64 { return uint64(arith.CvtF16F32(x.fa()))<<16 | uint64(arith.CvtF16F32(x.fb())) }},
	{"mov.b64 {%r8, %r9}, %la; mov.b64 %rd9, {%r9, %r8};", func(x in3) uint64 { return bits.RotateLeft64(x.la(), 32) }},
	{"mov.b64 %rd9, {%ha, %hb, %ha, %hb};", func(x in3) uint64 {
		return (uint64(uint16(x.b))<<16 | uint64(uint16(x.a))) * 0x1_0000_0001
	}},
	{"mov.b32 {%ha, %hb}, %ra; mov.b32 %r9, {%hb, %ha}; R", func(x in3) uint64 { return uint64(bits.RotateLeft32(x.a, 16)) }},
}

// interesting returns a mix of random words and edge cases.
func interesting(r *rand.Rand) uint32 {
	edges := []uint32{0, 1, 2, 31, 32, 33, 255, 0x7fff, 0x8000, 0x7fffffff, 0x80000000, 0xffffffff, 0x3f800000, 0xbf800000, 0x7f800000, 0x7fc00001, 1 << 23, 0x4f000000}
	switch r.IntN(3) {
	case 0:
		return edges[r.IntN(len(edges))]
	case 1:
		return r.Uint32() >> r.IntN(32)
	}
	return r.Uint32()
}

func TestSemantics(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, test := range semantics {
		code := test.code
		if n := len(code); code[n-1] == 'R' {
			code = code[:n-1] + "cvt.u64.u32 %rd9, %r9;"
		}
		m := newMachine(t, fmt.Sprintf(`
.visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1, .param .u32 k_param_2)
{
	.reg .pred %%p, %%q, %%g; .reg .b32 %%ra, %%rb, %%rc, %%r<12>; .reg .b64 %%la, %%lb, %%rd<12>;
	.reg .f32 %%fa, %%fb, %%fc, %%fd; .reg .f64 %%da, %%db, %%dd; .reg .b16 %%ha, %%hb;
	ld.param.u64 %%rd1, [k_param_0]; ld.param.u64 %%rd2, [k_param_1]; ld.param.u32 %%r1, [k_param_2];
	mov.u32 %%r2, %%tid.x; mul.wide.u32 %%rd3, %%r2, 16; add.s64 %%rd3, %%rd3, %%rd2;
	ld.global.v4.u32 {%%ra, %%rb, %%rc, %%r3}, [%%rd3];
	mov.b64 %%la, {%%ra, %%rb}; mov.b64 %%lb, {%%rb, %%rc}; mov.b32 %%fa, %%ra; mov.b32 %%fb, %%rb; mov.b32 %%fc, %%rc;
	mov.b64 %%da, %%la; mov.b64 %%db, %%lb; cvt.u16.u32 %%ha, %%ra; cvt.u16.u32 %%hb, %%rb; setp.lt.u32 %%p, %%ra, %%rb;
	shr.u32 %%r4, %%r1, %%r2; and.b32 %%r4, %%r4, 1; setp.eq.u32 %%g, %%r4, 0;
	mov.u64 %%rd9, 99;
	@%%g bra SKIP;
	%s
SKIP:
	mul.wide.u32 %%rd4, %%r2, 8; add.s64 %%rd4, %%rd4, %%rd1; st.global.u64 [%%rd4], %%rd9;
	ret;
}`, code))
		for _, mask := range []uint32{full, 1 << 7, 0x0ff0_1234, 0x7fff_ffff} {
			var in []uint32
			var lanesIn [lanes]in3
			for i := range lanesIn {
				lanesIn[i] = in3{interesting(r), interesting(r), interesting(r)}
				in = append(in, lanesIn[i].a, lanesIn[i].b, lanesIn[i].c, 0)
			}
			src, _ := m.words(in...)
			out, data := m.alloc(8 * lanes)
			if f := m.run("k", d3(1), d3(lanes), 0, out, src, mask); f != nil {
				t.Fatal(test.code, f)
			}
			for i, x := range lanesIn {
				want := uint64(99)
				if mask>>i&1 != 0 {
					want = test.want(x)
				}
				if got := fetch(data[8*i:], 8, false); got != want {
					t.Errorf("%s: lane %d of %#x, %#x: got %#x, want %#x", test.code, i, mask, x, got, want)
					break
				}
			}
		}
	}
}
