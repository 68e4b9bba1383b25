package simt

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// aloneForms are instructions with operands to be filled in: r, d, h, f, e and p for a source of 32,
// 64 and 16 bits, a float, a double and a predicate, and the upper-case letter for a result. # is a
// number of up to 80, and c a comparison.
var aloneForms = strings.Split(strings.TrimSpace(`
add.u32 {R}, {r}, {r}|sub.s32 {R}, {r}, {r}|mul.lo.u32 {R}, {r}, {r}|mul.hi.s32 {R}, {r}, {r}|mul.hi.u32 {R}, {r}, {r}|mad.lo.s32 {R}, {r}, {r}, {r}|mad.hi.u32 {R}, {r}, {r}, {r}|mad.hi.sat.s32 {R}, {r}, {r}, {r}
add.sat.s32 {R}, {r}, {r}|sub.sat.s32 {R}, {r}, {r}|mul24.lo.s32 {R}, {r}, {r}|mad24.hi.u32 {R}, {r}, {r}, {r}|sad.s32 {R}, {r}, {r}, {r}|sad.u64 {D}, {d}, {d}, {d}|div.s32 {R}, {r}, {r}|rem.u32 {R}, {r}, {r}|div.u64 {D}, {d}, {d}|rem.s64 {D}, {d}, {d}|div.s16 {H}, {h}, {h}
abs.s32 {R}, {r}|neg.s64 {D}, {d}|abs.s16 {H}, {h}|min.s32 {R}, {r}, {r}|max.u64 {D}, {d}, {d}|min.s16 {H}, {h}, {h}|max.relu.s16x2 {R}, {r}, {r}|add.u16x2 {R}, {r}, {r}|min.u16x2 {R}, {r}, {r}
add.s64 {D}, {d}, {d}|sub.u64 {D}, {d}, {d}|mul.lo.s64 {D}, {d}, {d}|mul.hi.s64 {D}, {d}, {d}|mad.lo.u64 {D}, {d}, {d}, {d}|mul.wide.s32 {D}, {r}, {r}|mul.wide.u32 {D}, {r}, {r}|mad.wide.s32 {D}, {r}, {r}, {d}|mul.wide.u16 {R}, {h}, {h}|mad.wide.s16 {R}, {h}, {h}, {r}
add.s16 {H}, {h}, {h}|sub.u16 {H}, {h}, {h}|mul.lo.s16 {H}, {h}, {h}|mul.hi.u16 {H}, {h}, {h}|mad.lo.u16 {H}, {h}, {h}, {h}|mad.hi.s16 {H}, {h}, {h}, {h}
add.cc.u32 {R}, {r}, {r}; addc.cc.u32 {R}, {r}, {r}; addc.u32 {R}, {r}, {r}|sub.cc.u32 {R}, {r}, {r}; subc.cc.u32 {R}, {r}, {r}; subc.u32 {R}, {r}, {r}|mad.lo.cc.u32 {R}, {r}, {r}, {r}; madc.hi.u32 {R}, {r}, {r}, {r}|add.cc.u64 {D}, {d}, {d}; addc.u64 {D}, {d}, {d}|mad.lo.cc.u64 {D}, {d}, {d}, {d}; madc.hi.u64 {D}, {d}, {d}, {d}
and.b32 {R}, {r}, {r}|or.b64 {D}, {d}, {d}|xor.b16 {H}, {h}, {h}|not.b32 {R}, {r}|not.b64 {D}, {d}|cnot.b32 {R}, {r}|and.pred {P}, {p}, {p}|or.pred {P}, {p}, {p}|xor.pred {P}, {p}, {p}|not.pred {P}, {p}|mov.pred {P}, {p}
shl.b32 {R}, {r}, {r}|shr.s32 {R}, {r}, {#}|shr.u32 {R}, {r}, {r}|shl.b64 {D}, {d}, {r}|shr.s64 {D}, {d}, {#}|shr.u64 {D}, {d}, {r}|shl.b16 {H}, {h}, {r}|shr.s16 {H}, {h}, {#}
shf.l.wrap.b32 {R}, {r}, {r}, {r}|shf.r.clamp.b32 {R}, {r}, {r}, {#}|prmt.b32 {R}, {r}, {r}, {r}|prmt.b32.ecl {R}, {r}, {r}, {r}|lop3.b32 {R}, {r}, {r}, {r}, {#}|bfe.u32 {R}, {r}, {#}, {r}|bfe.s32 {R}, {r}, {r}, {#}|bfe.s64 {D}, {d}, {#}, {#}|bfi.b32 {R}, {r}, {r}, {#}, {#}|bfi.b64 {D}, {d}, {d}, {r}, {#}
bfind.u32 {R}, {r}|bfind.shiftamt.s64 {R}, {d}|popc.b64 {R}, {d}|popc.b32 {R}, {r}|clz.b32 {R}, {r}|clz.b64 {R}, {d}|brev.b32 {R}, {r}|brev.b64 {D}, {d}|fns.b32 {R}, {r}, {#}, {r}|szext.clamp.s32 {R}, {r}, {r}|bmsk.wrap.b32 {R}, {r}, {r}|dp4a.u32.s32 {R}, {r}, {r}, {r}|dp2a.hi.s32.u32 {R}, {r}, {r}, {r}
add.f32 {F}, {f}, {f}|sub.rz.ftz.f32 {F}, {f}, {f}|mul.f32 {F}, {f}, {f}|fma.rn.f32 {F}, {f}, {f}, {f}|fma.rm.ftz.sat.f32 {F}, {f}, {f}, {f}|div.rn.f32 {F}, {f}, {f}|div.approx.ftz.f32 {F}, {f}, {f}|div.full.f32 {F}, {f}, {f}|min.f32 {F}, {f}, {f}|max.NaN.f32 {F}, {f}, {f}|min.xorsign.abs.f32 {F}, {f}, {f}
abs.f32 {F}, {f}|neg.ftz.f32 {F}, {f}|rcp.rn.f32 {F}, {f}|rcp.approx.ftz.f32 {F}, {f}|sqrt.approx.f32 {F}, {f}|sqrt.rn.f32 {F}, {f}|rsqrt.approx.f32 {F}, {f}|sin.approx.f32 {F}, {f}|lg2.approx.f32 {F}, {f}|ex2.approx.ftz.f32 {F}, {f}|tanh.approx.f32 {F}, {f}|copysign.f32 {F}, {f}, {f}
add.f64 {E}, {e}, {e}|mul.rz.f64 {E}, {e}, {e}|fma.rn.f64 {E}, {e}, {e}, {e}|div.rn.f64 {E}, {e}, {e}|min.f64 {E}, {e}, {e}|sqrt.rn.f64 {E}, {e}|rcp.approx.ftz.f64 {E}, {e}|neg.f64 {E}, {e}
add.f16 {H}, {h}, {h}|fma.rn.f16 {H}, {h}, {h}, {h}|mul.f16x2 {R}, {r}, {r}|fma.rn.relu.f16x2 {R}, {r}, {r}, {r}|max.bf16x2 {R}, {r}, {r}|neg.f16x2 {R}, {r}|min.NaN.f16 {H}, {h}, {h}|fma.rn.bf16 {H}, {h}, {h}, {h}
setp.{c}.s32 {P}, {r}, {r}|setp.{c}.u32 {P}, {r}, {r}|setp.{c}.and.s32 {P}|{P}, {r}, {r}, {p}|setp.{c}.u64 {P}, {d}, {d}|setp.{c}u.f32 {P}, {f}, {f}|setp.{c}.xor.f64 {P}, {e}, {e}, {p}|setp.{c}.s16 {P}, {h}, {h}|setp.nan.f32 {P}, {f}, {f}|setp.{c}.or.ftz.f32 {P}|{P}, {f}, {f}, {p}
set.{c}.u32.f32 {R}, {f}, {f}|set.{c}.f32.s32 {F}, {r}, {r}|set.{c}.and.u32.u32 {R}, {r}, {r}, {p}|selp.b32 {R}, {r}, {r}, {p}|selp.f64 {E}, {e}, {e}, {p}|selp.b64 {D}, {d}, {d}, {p}|selp.b16 {H}, {h}, {h}, {p}|slct.u32.s32 {R}, {r}, {r}, {r}|slct.f64.f32 {E}, {e}, {e}, {f}
cvt.u64.u32 {D}, {r}|cvt.s64.s32 {D}, {r}|cvt.u32.u64 {R}, {d}|cvt.s8.s32 {R}, {r}|cvt.u16.u32 {H}, {r}|cvt.s32.s16 {R}, {h}|cvt.sat.u8.s32 {R}, {r}|cvt.sat.s16.u32 {H}, {r}|cvt.u32.u8 {R}, {r}|cvt.s64.s16 {D}, {h}|cvt.s64.s8 {D}, {d}|cvt.u8.u64 {H}, {d}
cvt.rn.f32.s32 {F}, {r}|cvt.rz.f32.u64 {F}, {d}|cvt.rn.f64.s64 {E}, {d}|cvt.rzi.s32.f32 {R}, {f}|cvt.rpi.ftz.u8.f32 {R}, {f}|cvt.rpi.s64.f64 {D}, {e}|cvt.rmi.f32.f32 {F}, {f}|cvt.f64.f32 {E}, {f}|cvt.rn.f32.f64 {F}, {e}|cvt.sat.f32.f32 {F}, {f}|cvt.rn.f16.f32 {H}, {f}|cvt.f32.f16 {F}, {h}|cvt.rn.f16x2.f32 {R}, {f}, {f}|cvt.rn.bf16.f32 {H}, {f}
mov.u32 {R}, {r}|mov.b64 {D}, [{r}, {r}]|mov.b64 [{R}, {R}], {d}|mov.b64 [_, {R}], {d}|mov.b32 [{H}, {H}], {r}|mov.b32 {R}, [{h}, {h}]|mov.b64 {D}, [{h}, {h}, {h}, {h}]|mov.f32 {F}, {f}|mov.b32 {R}, {f}|mov.b32 {F}, {r}|mov.b64 {D}, {e}|mov.b64 {E}, {d}|mov.u16 {H}, {h}
vadd.u32.s32.s32.sat {R}, {r}, {r}|vabsdiff4.u32.u32.u32.add {R}, {r}, {r}, {r}|vset4.u32.u32.ge {R}, {r}, {r}, {r}|vmad.s32.s32.s32.shr7 {R}, {r}, {r}, {r}|testp.normal.f32 {P}, {f}|testp.subnormal.f64 {P}, {e}
M: st.global.u32 [%own+4*], {r}; ld.global.u32 {R}, [%own+4*]|M: st.global.u8 [%own+1*], {r}; ld.global.s8 {R}, [%own+1*]|M: st.global.v2.u16 [%own+4*], [{h}, {h}]; ld.global.u16 {H}, [%own+2*]|M: st.u64 [%own+8*], {d}; ld.v2.u32 [{R}, {R}], [%own+8*]
M: st.global.v4.f32 [%own+16*], [{f}, {f}, {f}, {f}]; ld.global.v4.u32 [{R}, _, {R}, {R}], [%own+16*]|M: ld.global.s16 {D}, [%own+2*]|M: st.shared.u32 [%near+4*], {r}; ld.shared.u32 {R}, [%near+4*]|M: st.shared.v2.f64 [%near+16*], [{e}, {e}]; ld.shared.u64 {D}, [%near+8*]|M: st.shared.u8 [%near+1*], {h}; ld.shared.u8 {R}, [%near+1*]
M: st.local.u32 [mine+4*], {r}; ld.local.u32 {R}, [mine+4*]|M: st.u32 [%gmine+4*], {r}; ld.u64 {D}, [%gmine+8*]|M: st.local.v2.u32 [mine+8*], [{r}, {r}]; ld.local.s16 {R}, [mine+2*]|M: st.u16 [%gnear+2*], {h}; ld.u32 {R}, [%gnear+4*]|M: st.b64 [%gsome+8*], {d}; ld.b32 {F}, [%gsome+4*]
M: atom.global.add.u32 {R}, [%own+4*], {r}|M: atom.global.min.s32 {R}, [%own+4*], {r}|M: atom.max.u64 {D}, [%own+8*], {d}|M: atom.shared.cas.b32 {R}, [%near+4*], {r}, {r}|M: atom.global.inc.u32 {R}, [%own+4*], {r}|M: red.global.or.b32 [%own+4*], {r}|M: atom.global.exch.b64 {D}, [%own+8*], {d}|M: atom.global.cas.b16 {H}, [%own+2*], {h}, {h}|M: atom.global.add.f32 {F}, [%own+4*], {f}|M: atom.add.noftz.f16x2 {R}, [%gsome+4*], {r}|M: atom.global.min.s64 {D}, [%own+8*], {d}
isspacep.shared {P}, {d}|M: isspacep.local {P}, %gmine|M: isspacep.global {P}, %gsome|M: ld.global.nc.u32 {R}, [%shared_in+4*]|M: ld.const.u32 {R}, [fixed+4*]|M: ld.const.u64 {D}, [%cfixed+8*]
`), "\n")

// aloneGen writes a program of random instructions and branches, by threads that share nothing.
type aloneGen struct {
	rng    *rand.Rand
	b      strings.Builder
	forms  []string
	labels int
	video  bool // the instruction takes no special registers
}

const aloneRegs = 5

func (g *aloneGen) pick(list ...string) string { return list[g.rng.IntN(len(list))] }

var aloneEdges = []uint64{0, 1, 2, 31, 32, 33, 63, 64, 65, 255, 256, 0x7fff, 0x8000, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 1 << 63, 1<<63 - 1, 1<<64 - 1, 0x3f800000, 0x7f800000, 0xff800000, 0x7fc00001, 0x00000001, 0x807fffff}

func (g *aloneGen) operand(kind byte) string {
	n := g.rng.IntN(aloneRegs)
	edge := aloneEdges[g.rng.IntN(len(aloneEdges))]
	imm := g.rng.IntN(4) == 0
	switch kind {
	case 'R', 'D', 'H', 'F', 'E', 'P':
		return fmt.Sprintf("%%%c%d", kind|32, n)
	case 'p':
		return g.pick("", "", "!") + fmt.Sprintf("%%p%d", n)
	case '#':
		return fmt.Sprint(g.rng.IntN(81))
	case 'c':
		return g.pick("eq", "ne", "lt", "le", "gt", "ge")
	case 'f':
		if imm {
			return fmt.Sprintf("0f%08X", uint32(edge))
		}
	case 'e':
		if imm {
			return fmt.Sprintf("0d%016X", edge<<32|edge>>32)
		}
	case 'r':
		if imm {
			return fmt.Sprint(int32(uint32(edge)))
		}
		if g.rng.IntN(12) == 0 && !g.video {
			return g.pick("%tid.y", "%ctaid.x", "%ntid.z", "%gone")
		}
	case 'd':
		if imm {
			return fmt.Sprint(int64(edge))
		}
	case 'h':
		if imm {
			return fmt.Sprint(int16(uint16(edge)))
		}
	}
	return fmt.Sprintf("%%%c%d", kind, n)
}

func (g *aloneGen) emit(format string, args ...any) { fmt.Fprintf(&g.b, "\t"+format+"\n", args...) }

func (g *aloneGen) instr() {
	form := strings.TrimPrefix(g.forms[g.rng.IntN(len(g.forms))], "M: ")
	g.video = form[0] == 'v'
	for _, in := range strings.Split(form, "; ") {
		var out strings.Builder
		for i := 0; i < len(in); i++ {
			switch {
			case in[i] == '{':
				out.WriteString(g.operand(in[i+1]))
				i += 2
			case in[i] == '[' && !strings.HasPrefix(in[i:], "[%") && !strings.HasPrefix(in[i:], "[mine") && !strings.HasPrefix(in[i:], "[fixed"):
				out.WriteByte('{')
				for i++; in[i] != ']'; i++ {
					if in[i] == '{' {
						out.WriteString(g.operand(in[i+1]))
						i += 2
						continue
					}
					out.WriteByte(in[i])
				}
				out.WriteByte('}')
			case in[i] == '*' && in[i+1] == ']': // the digits before it are the step
				s := out.String()
				at := strings.LastIndexByte(s, '+')
				var step int
				fmt.Sscan(s[at+1:], &step)
				out.Reset()
				fmt.Fprintf(&out, "%s%d", s[:at+1], step*g.rng.IntN(64/step))
			default:
				out.WriteByte(in[i])
			}
		}
		guard := ""
		if g.rng.IntN(5) == 0 {
			guard = "@" + g.operand('p') + " "
		}
		g.emit("%s%s;", guard, out.String())
	}
}

func (g *aloneGen) label() string {
	g.labels++
	return fmt.Sprintf("L%d", g.labels)
}

// body writes instructions with branches among them.
func (g *aloneGen) body(depth int) {
	for range 3 + g.rng.IntN(8) {
		if depth == 0 || g.rng.IntN(4) > 0 {
			g.instr()
			continue
		}
		switch g.rng.IntN(5) {
		case 0, 1:
			other, end := g.label(), g.label()
			g.emit("@%s bra %s;", g.operand('p'), other)
			g.body(depth - 1)
			g.emit("bra %s;", end)
			g.b.WriteString(other + ":\n")
			g.body(depth - 1)
			g.b.WriteString(end + ":\n")
		case 2:
			head, end, next, n := g.label(), g.label(), g.label(), fmt.Sprintf("%%n%d", g.labels)
			g.emit(".reg .b32 %s; and.b32 %s, %s, 3;", n, n, g.operand('R'))
			g.b.WriteString(head + ":\n")
			g.body(depth - 1)
			g.emit("@%s bra %s;", g.operand('p'), g.pick(end, next))
			g.body(depth - 1)
			g.b.WriteString(next + ":\n")
			g.emit("setp.ne.u32 %%q, %s, 0; sub.u32 %s, %s, 1; @%%q bra %s;", n, n, n, head)
			g.b.WriteString(end + ":\n")
		case 3:
			a, b, table := g.label(), g.label(), g.label()
			g.emit("and.b32 %%k, %s, 1; %s: .branchtargets %s, %s; brx.idx %%k, %s;", g.operand('R'), table, a, b, table)
			g.b.WriteString(a + ":\n")
			g.body(depth - 1)
			g.b.WriteString(b + ":\n")
			g.body(depth - 1)
		case 4:
			g.emit("{ .param .b32 a; .param .b64 b; .param .b32 c; st.param.b32 [a], %s; st.param.b64 [b], %s; %s call (c), f, (a, b); ld.param.b32 %s, [c]; }",
				g.operand('R'), g.operand('D'), "", g.operand('R'))
		}
	}
}

func (g *aloneGen) kernel() string {
	g.b.WriteString(`.version 8.6
.target sm_100
.address_size 64
.const .align 8 .b32 fixed[16] = {1, 2, 3, 0x80000000, 5, 6, 0xffffffff, 8, 9, 10, 11, 12, 13, 14, 15, 16};
.func (.param .b32 z) f(.param .b32 x, .param .b64 y)
{
	.reg .b32 %a<4>; .reg .b64 %b<3>; .reg .pred %c; .local .align 8 .b8 frame[16];
	ld.param.b32 %a1, [x]; ld.param.b64 %b1, [y]; cvt.u32.u64 %a2, %b1; st.local.u32 [frame+4], %a1; setp.lt.u32 %c, %a1, %a2;
	st.param.b32 [z], %a2; @%c ret; ld.local.u32 %a3, [frame+4]; mad.lo.u32 %a3, %a3, 7, %a2; st.param.b32 [z], %a3; ret;
}
.visible .entry k(.param .u64 out, .param .u64 in, .param .u32 first)
{
	.reg .b32 %r<5>, %k, %near, %gone, %t<3>; .reg .b64 %d<5>, %own, %gnear, %gmine, %gsome, %shared_in, %cfixed, %x; .reg .b16 %h<5>; .reg .f32 %f<5>; .reg .f64 %e<5>; .reg .pred %p<5>, %q;
	.shared .align 16 .b8 all[4096]; .local .align 16 .b8 mine[64];
	ld.param.u32 %gone, [first]; mov.u32 %t1, %tid.x; add.u32 %t1, %t1, %gone; mov.u32 %gone, 77;
	ld.param.u64 %x, [out]; mul.wide.u32 %own, %t1, 256; add.s64 %own, %own, %x; ld.param.u64 %shared_in, [in];
	mov.u32 %near, all; mov.u32 %t2, %tid.x; mad.lo.u32 %near, %t2, 64, %near; cvt.u64.u32 %gnear, %near; cvta.shared.u64 %gnear, %gnear;
	mov.u64 %gmine, mine; cvta.local.u64 %gmine, %gmine; mov.u64 %cfixed, fixed;
	and.b32 %t2, %t1, 1; setp.eq.u32 %q, %t2, 0; selp.b64 %gsome, %gnear, %gmine, %q;
	st.shared.v4.u32 [%near], {%t1, 2, 3, 4}; st.shared.v4.u32 [%near+16], {5, %t1, 7, 8}; st.shared.v4.u32 [%near+32], {%t1, 2, 3, 4}; st.shared.v4.u32 [%near+48], {5, 6, 7, %t1};
	st.local.v4.u32 [mine], {%t1, 2, 3, 4}; st.local.v4.u32 [mine+16], {5, %t1, 7, 8}; st.local.v4.u32 [mine+32], {%t1, 2, 3, 4}; st.local.v4.u32 [mine+48], {5, 6, 7, %t1};
`)
	for i := range aloneRegs {
		at := "%own"
		if g.rng.IntN(4) == 0 {
			at = "%shared_in" // the same for all
		}
		g.emit("ld.global.u32 %%r%d, [%s+%d]; ld.global.u64 %%d%d, [%s+%d]; ld.global.u16 %%h%d, [%s+%d]; ld.global.f32 %%f%d, [%s+%d]; ld.global.f64 %%e%d, [%s+%d];",
			i, at, 64+4*i, i, at, 88+8*i, i, at, 128+2*i, i, at, 140+4*i, i, at, 160+8*i)
		g.emit("setp.lt.u32 %%p%d, %%r%d, 0x70000000;", i, i)
	}
	g.body(3)
	g.emit("mov.b32 %%t1, 0;")
	for i := range aloneRegs {
		g.emit("st.global.u32 [%%own+%d], %%r%d; st.global.u64 [%%own+%d], %%d%d; st.global.u16 [%%own+%d], %%h%d; st.global.f32 [%%own+%d], %%f%d; st.global.f64 [%%own+%d], %%e%d;",
			64+4*i, i, 88+8*i, i, 128+2*i, i, 140+4*i, i, 160+8*i, i)
		g.emit("selp.u32 %%t2, %d, 0, %%p%d; or.b32 %%t1, %%t1, %%t2;", 1<<i, i)
	}
	g.emit("st.global.u32 [%%own+200], %%t1; ld.shared.v4.u32 {%%r0,%%r1,%%r2,%%r3}, [%%near]; st.global.v4.u32 [%%own+208], {%%r0,%%r1,%%r2,%%r3}; ld.local.v2.u32 {%%r0,%%r1}, [mine+8]; st.global.v2.u32 [%%own+224], {%%r0,%%r1}; ret;")
	g.b.WriteString("}\n")
	return g.b.String()
}

// TestAlone runs random programs by threads that share nothing, as warps and each thread alone. They
// compute the same, whatever operands are registers, constants or equal in all lanes.
func TestAlone(t *testing.T) {
	const threads, programs = 64, 100
	for seed := range uint64(programs) {
		rng := rand.New(rand.NewPCG(seed, 3))
		g := &aloneGen{rng: rng}
		for _, line := range aloneForms {
			last := ""
			for _, f := range strings.Split(line, "|") {
				if strings.HasPrefix(f, "{P}") { // a pair of results
					last += "|" + f
					g.forms[len(g.forms)-1] = last
					continue
				}
				last = f
				g.forms = append(g.forms, f)
			}
		}
		src := g.kernel()
		m := newMachine(t, src)
		out, data := m.alloc(256 * threads)
		in, shared := m.alloc(256)
		for i := 0; i < len(data); i += 4 {
			v := uint32(aloneEdges[rng.IntN(len(aloneEdges))])
			if rng.IntN(2) == 0 {
				v = rng.Uint32() >> rng.IntN(32)
			}
			data[i], data[i+1], data[i+2], data[i+3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
		}
		copy(shared, data[3*256:])
		before := bytes.Clone(data)
		if f := m.run("k", d3(1), d3(threads), 0, out, in, 0); f != nil {
			t.Fatalf("seed %d: %v\n%s", seed, f, src)
		}
		together := bytes.Clone(data)
		copy(data, before)
		for i := range threads {
			if f := m.run("k", d3(1), d3(1), 0, out, in, i); f != nil {
				t.Fatalf("seed %d: thread %d: %v\n%s", seed, i, f, src)
			}
		}
		for i := range data {
			if data[i] != together[i] {
				t.Fatalf("seed %d: byte %d of thread %d: %#x alone, %#x in a warp\n%s", seed, i%256, i/256, data[i], together[i], src)
			}
		}
	}
}
