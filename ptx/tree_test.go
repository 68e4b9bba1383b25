package ptx

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// one parses a function's body that is a single instruction.
func one(t *testing.T, decls, instr string) *Instr {
	t.Helper()
	m := mustParse(t, header+".func f() { "+decls+"\n"+instr+"\n}")
	b := m.Items[0].(*Func).Body
	i, ok := b.Stmts[len(b.Stmts)-1].(*Instr)
	if !ok {
		t.Fatalf("%s: %T is no instruction", instr, b.Stmts[len(b.Stmts)-1])
	}
	return i
}

func TestOperands(t *testing.T) {
	addr := func(name string, off int64, more ...Operand) Operand {
		o := MemSym(name, off)
		if name[0] == '%' {
			o = Mem(name, off)
		}
		o.Elems = more
		return o
	}
	sink, warp := Operand{Kind: KindSink}, Operand{Kind: KindWarpSize}
	not := func(o Operand) Operand { o.Not = true; return o }
	neg := func(o Operand) Operand { o.Neg = true; return o }
	sel := func(o Operand, s string) Operand { o.Sel, _ = ParseSelector(s); return o }
	f32 := func(bits uint64) Operand { return Operand{Kind: KindImm, Imm: ImmF32, Bits: bits} }
	for _, c := range []struct {
		text string
		want []Operand
	}{
		{"ld.u32 %r1, [%r2+-8];", []Operand{Reg("%r1"), addr("%r2", -8)}},
		{"ld.u32 %r1, [%r2-8];", []Operand{Reg("%r1"), addr("%r2", -8)}},
		{"ld.u32 %r1, [ %r2 + 0 ];", []Operand{Reg("%r1"), addr("%r2", 0)}},
		{"ld.u32 %r1, [1234];", []Operand{Reg("%r1"), {Kind: KindAddr, Base: KindImm, Bits: 1234}}},
		{"ld.u32 %r1, [buf+4*(2+1)];", []Operand{Reg("%r1"), addr("buf", 12)}},
		{"mov.u64 %rd1, $str$1;", []Operand{Reg("%rd1"), Sym("$str$1")}},
		{"mov.u64 %rd1, buf+8;", []Operand{Reg("%rd1"), {Kind: KindSymbol, Name: "buf", Bits: 8}}},
		{"mov.u64 %rd1, generic ( buf ) - 8;", []Operand{Reg("%rd1"), {Kind: KindSymbol, Name: "buf", Bits: 1<<64 - 8, Generic: true}}},
		{"tex.2d.v4.f32.f32 {%f1, %f2, _, %f4}, [%rd1, {%f5, %f6}];",
			[]Operand{Vec(Reg("%f1"), Reg("%f2"), sink, Reg("%f4")), addr("%rd1", 0, Vec(Reg("%f5"), Reg("%f6")))}},
		{"tex.a2d.v4.f32.f32 {%f1, %f2, %f3, %f4}|%p1, [tex, smp, {%r1, %f5, %f6, %f6}], {%r1, %r2}, %f1;",
			[]Operand{Pair(Vec(Reg("%f1"), Reg("%f2"), Reg("%f3"), Reg("%f4")), Reg("%p1")),
				addr("tex", 0, Sym("smp"), Vec(Reg("%r1"), Reg("%f5"), Reg("%f6"), Reg("%f6"))), Vec(Reg("%r1"), Reg("%r2")), Reg("%f1")}},
		{"shfl.sync.down.b32 %r0|%p1, %r2, WARP_SZ, 31, -1;", []Operand{Pair(Reg("%r0"), Reg("%p1")), Reg("%r2"), warp, Int(31), Int(-1)}},
		{"elect.sync _|%p1, 0xffffffff;", []Operand{Pair(sink, Reg("%p1")), Int(0xffffffff)}},
		{"mov.u32 %r1, WARP_SZ*2-1;", []Operand{Reg("%r1"), Int(63)}},
		{"setp.lt.and.f32 %p1|%p2, %f1, 0f7F800000, !%p3;", []Operand{Pair(Reg("%p1"), Reg("%p2")), Reg("%f1"), f32(0x7F800000), not(Reg("%p3"))}},
		{"mov.u32 %r1, %tid.x;", []Operand{Reg("%r1"), sel(Reg("%tid"), "x")}},
		{"vadd.s32.u32.s32 %r1, %r2.b0, -%r3.h1, %r4;", []Operand{Reg("%r1"), sel(Reg("%r2"), "b0"), neg(sel(Reg("%r3"), "h1")), Reg("%r4")}},
		{"vabsdiff4.u32.u32.u32.add %r1, %r2.b7531, %r3, %r4;", []Operand{Reg("%r1"), sel(Reg("%r2"), "b7531"), Reg("%r3"), Reg("%r4")}},
		{"mov.f64 %fd1, -0d3FF0000000000000;", []Operand{Reg("%fd1"), Float64(-1)}},
		{"mov.f32 %f1, -0f3F800000;", []Operand{Reg("%f1"), Float32(-1)}},
		{"mov.f64 %fd1, 1.5e-3;", []Operand{Reg("%fd1"), Float64(1.5e-3)}},
		{"mov.f32 %f1, 0fFFC00001;", []Operand{Reg("%f1"), f32(0xFFC00001)}},
		{"prmt.b32 %r1, %r2, 0, 0x3340U;", []Operand{Reg("%r1"), Reg("%r2"), Int(0), Int(0x3340)}},
		{"mov.u64 %rd1, 0xFFFFFFFFFFFFFFFF;", []Operand{Reg("%rd1"), Int(-1)}},
		{"call (retval0), %rd11, (param0, 5, _), prototype_0;", []Operand{List(Sym("retval0")), Reg("%rd11"), List(Sym("param0"), Int(5), sink), Sym("prototype_0")}},
		{"call.uni \n (retval0), \n _Z3fooi, \n (\n param0\n )\n ;", []Operand{List(Sym("retval0")), Sym("_Z3fooi"), List(Sym("param0"))}},
		{"call foo;", []Operand{Sym("foo")}},
		{"call (r) foo (a, b);", []Operand{List(Sym("r")), Sym("foo"), List(Sym("a"), Sym("b"))}},
		{"add.s32 %r1, (3), +4;", []Operand{Reg("%r1"), Int(3), Int(4)}},
		{"st.u64 [%rd1], %rd2 + 1;", []Operand{addr("%rd1", 0), {Kind: KindReg, Name: "%rd2", Bits: 1}}},
		{"cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];",
			[]Operand{addr("%r1", 0), addr("%rd1", 0, Vec(Reg("%r2"), Reg("%r3"))), addr("%r4", 0)}},
		{"mov.u32 %r1, %reserved_smem_offset_1;", []Operand{Reg("%r1"), Reg("%reserved_smem_offset_1")}},
		{"ret;", nil},
	} {
		if d := cmp.Diff(c.want, one(t, "", c.text).Operands); d != "" {
			t.Errorf("%s -want +got:\n%s", c.text, d)
		}
	}
}

func TestForms(t *testing.T) {
	for _, c := range []struct {
		text, opcode string
		modifiers    []string
	}{
		{"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], %r2, [%r3];", "cp",
			[]string{"async", "bulk", "shared::cluster", "global", "mbarrier::complete_tx::bytes"}},
		{"ld.global.L1::no_allocate.L2::128B.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];", "ld",
			[]string{"global", "L1::no_allocate", "L2::128B", "v4", "u32"}},
		{"wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r1}, [%rd1], %r2;", "wmma",
			[]string{"load", "a", "sync", "aligned", "row", "m16n16k16", "f16"}},
		{"tcgen05.ld.sync.aligned.16x256b.x1.b32 {%r1}, [%r2];", "tcgen05", []string{"ld", "sync", "aligned", "16x256b", "x1", "b32"}},
		{"ld.global .u32 %r1, [%rd1];", "ld", []string{"global", "u32"}},
		{"ret;", "ret", nil},
	} {
		i := one(t, "", c.text)
		if i.Opcode != c.opcode || !cmp.Equal(i.Modifiers, c.modifiers) {
			t.Errorf("%s: %s %q", c.text, i.Opcode, i.Modifiers)
		}
		if want := strings.ReplaceAll(strings.Fields(strings.TrimSuffix(c.text, ";"))[0], " ", ""); len(c.modifiers) > 1 && c.opcode != "ld" && i.Form() != want {
			t.Errorf("form %s, want %s", i.Form(), want)
		}
		for _, m := range c.modifiers {
			if !i.Has(m) {
				t.Errorf("%s has no %s", i, m)
			}
		}
	}
}

func TestGuards(t *testing.T) {
	for text, want := range map[string]Pred{
		"@%p1 ret;":                   {Name: "%p1"},
		"@!%p1 bra L;":                {Name: "%p1", Not: true},
		"@ ! complete bra.uni L;":     {Name: "complete", Not: true},
		"@__$3 trap;":                 {Name: "__$3"},
		"@/* really */!%p1 // \nret;": {Name: "%p1", Not: true},
	} {
		if i := one(t, "", text); i.Pred != want {
			t.Errorf("%s: %+v", text, i.Pred)
		}
	}
}

func TestCall(t *testing.T) {
	for text, want := range map[string]string{
		"call (r), f, (a, b);":    "[r] f [a b] ",
		"call f;":                 "[] f [] ",
		"call f, (a);":            "[] f [a] ",
		"call (r), f;":            "[r] f [] ",
		"call (), %rd1, (), p;":   "[] %rd1 [] p",
		"call %rd1, (a), p;":      "[] %rd1 [a] p",
		"call (r), %rd1, (a), p;": "[r] %rd1 [a] p",
	} {
		c, ok := one(t, "", text).Call()
		if got := fmt.Sprintf("%v %v %v %v", c.Returns, c.Target, c.Args, c.Proto); !ok || got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	if _, ok := one(t, "", "bra f;").Call(); ok {
		t.Error("a branch is taken for a call")
	}
}

// TestRegistersByDeclaration checks that without a percent sign only a declaration in scope makes a
// register.
func TestRegistersByDeclaration(t *testing.T) {
	for _, c := range []struct {
		decls string
		kind  OperandKind
	}{
		{"", KindSymbol},
		{".reg .f16 low, x;", KindReg},
		{".reg .b32 x; { .shared .b32 x; }", KindReg},
		{"{ .reg .b32 x; }", KindSymbol},
		{".reg .b32 x<3>;", KindSymbol},
	} {
		if k := one(t, c.decls, "mov.b32 %r1, x;").Operands[1].Kind; k != c.kind {
			t.Errorf("%s: kind %d, want %d", c.decls, k, c.kind)
		}
	}
	for name, kind := range map[string]OperandKind{"x0": KindReg, "x2": KindReg, "x3": KindSymbol, "x01": KindSymbol, "x10": KindReg, "x14": KindSymbol} {
		if k := one(t, ".reg .b32 x<3>, x1<4>;", "mov.b32 %r1, "+name+";").Operands[1].Kind; k != kind {
			t.Errorf("%s: kind %d, want %d", name, k, kind)
		}
	}
	i := one(t, ".local .b8 %buf[4];", "ld.local.b8 %r1, [%buf+1];")
	if i.Operands[1].Base != KindSymbol {
		t.Error("a variable with a percent sign is taken for a register")
	}
}

func TestFunctions(t *testing.T) {
	m := mustParse(t, header+`
.extern .func  (.param .b32 func_retval0) vprintf
(
	.param .b64 vprintf_param_0,
	.param .b64 vprintf_param_1
)
;
.visible .entry k(
	.param .u64 .ptr .align 1 k_param_0,
	.param .u64 .ptr .global .align 16 k_param_1,
	.param .align 64 .b8 k_param_2[128]
)
.maxntid 256, 1, 1
.minnctapersm 2
.reqnctapercluster 2
.pragma "nounroll";
{
	ret;
}
.weak .func stop() .noreturn { trap; }
.func (.reg .u32 r) plain (.reg .u32 a) .abi_preserve 4 ;
.entry bare { ret; }`)
	f := func(i int) *Func { return m.Items[i].(*Func) }
	if v := f(0); v.Linking != Extern || v.Entry || len(v.Returns) != 1 || len(v.Params) != 2 || v.Body != nil {
		t.Errorf("vprintf: %+v", v)
	}
	k := f(1)
	if d := cmp.Diff([]*Var{
		{Space: ParamSpace, Type: U64, Name: "k_param_0", Ptr: &Ptr{Align: 1}},
		{Space: ParamSpace, Type: U64, Name: "k_param_1", Ptr: &Ptr{Space: GlobalSpace, Align: 16}},
		{Space: ParamSpace, Type: B8, Name: "k_param_2", Align: 64, Dims: []int64{128}},
	}, k.Params, cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Pos" }, cmp.Ignore())); d != "" {
		t.Errorf("parameters -want +got:\n%s", d)
	}
	if d, ok := k.Directive("maxntid"); !ok || !cmp.Equal(d.Args, []int64{256, 1, 1}) {
		t.Errorf(".maxntid: %+v", d)
	}
	if d, ok := k.Directive("pragma"); !ok || !cmp.Equal(d.Text, []string{"nounroll"}) {
		t.Errorf(".pragma: %+v", d)
	}
	if _, ok := f(2).Directive("noreturn"); !ok || f(2).Linking != Weak {
		t.Errorf("stop: %+v", f(2))
	}
	if p := f(3); p.Returns[0].Space != RegSpace || p.Directives[0].Args[0] != 4 {
		t.Errorf("plain: %+v", p)
	}
	if b := f(4); b.Params != nil || len(b.Body.Stmts) != 1 {
		t.Errorf("bare: %+v", b)
	}
}

func TestPositions(t *testing.T) {
	m := mustParse(t, ".version 9.0\n.target sm_90\n# 1 \"x\"\n\n  .func f()\n{ /* a\ncomment */ add.s32 a, b, c;\n\tL: @p ret; \r\n}\n")
	f := m.Items[0].(*Func)
	got := []Pos{f.Pos, f.Body.Pos, f.Body.Stmts[0].Position(), f.Body.Stmts[1].Position(), f.Body.Stmts[2].Position(), f.Body.End}
	want := []Pos{{5, 3}, {6, 1}, {7, 12}, {8, 2}, {8, 5}, {9, 1}}
	if !cmp.Equal(got, want) {
		t.Errorf("positions %v, want %v", got, want)
	}
}

func TestStatements(t *testing.T) {
	m := mustParse(t, header+`.func f() {
	prototype_0 : .callprototype (.param .b32 _) _ (.param .b64 _, .param .align 8 .b8 _[16]) .noreturn ;
	ts: .branchtargets
		L0,
		L1;
	cs: .calltargets a, b;
	.loc	2 12 3, function_name $L__info_string0+14, inlined_at 1 8 7
	.pragma "used_bytes_mask 3855";
	.reg .f16 low,high;
	{ } ;;
	.extern .shared .align 16 .b8 dyn[];
	.file 3 "x.cu", 0x10, 20
	L0: L1 :
}`)
	b := m.Items[0].(*Func).Body
	for _, v := range b.Stmts {
		if p, ok := v.(*CallPrototype); ok && (p.Name != "prototype_0" || len(p.Returns) != 1 || p.Params[1].Dims[0] != 16 || p.Directives[0].Name != "noreturn") {
			t.Errorf("prototype: %+v", p)
		}
	}
	var kinds []string
	for _, s := range b.Stmts {
		kinds = append(kinds, strings.TrimPrefix(fmt.Sprintf("%T", s), "*ptx."))
	}
	want := strings.Fields("CallPrototype BranchTargets CallTargets Loc Pragma Var Var Block Var File Label Label")
	if d := cmp.Diff(want, kinds); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if ts := b.Stmts[1].(*BranchTargets); ts.Name != "ts" || !cmp.Equal(ts.Labels, []string{"L0", "L1"}) {
		t.Errorf("targets: %+v", ts)
	}
	if l := b.Stmts[3].(*Loc); l.File != 2 || l.Line != 12 || l.Col != 3 || *l.Inlined != (Inlined{"$L__info_string0", 14, 1, 8, 7}) {
		t.Errorf("loc: %+v", l)
	}
	if v := b.Stmts[8].(*Var); v.Linking != Extern || !cmp.Equal(v.Dims, []int64{Unsized}) {
		t.Errorf("dyn: %+v", v)
	}
	if f := b.Stmts[9].(*File); !cmp.Equal(f.Extra, []uint64{16, 20}) {
		t.Errorf("file: %+v", f)
	}
}

func TestModules(t *testing.T) {
	m := mustParse(t, "\uFEFF"+header+"\x00\x00")
	if m.Version != (Version{9, 0}) || !cmp.Equal(m.Target, []string{"sm_90"}) || m.AddressSize != 64 || m.Items != nil || m.Warnings != nil {
		t.Errorf("a header alone: %+v", m)
	}
	m = mustParse(t, ".version 9.3\n.target sm_999z, debug")
	if len(m.Warnings) != 1 || !strings.Contains(m.Warnings[0].Error(), "1:1: PTX ISA version 9.3 is newer") {
		t.Errorf("warnings: %v", m.Warnings)
	}
	if m.AddressSize != 0 || !cmp.Equal(m.Target, []string{"sm_999z", "debug"}) {
		t.Errorf("%+v", m)
	}
	m = mustParse(t, header+"@@DWARF .byte 1 2 ;\n.version 9.0\n.address_size 64\n.section .debug_loc { }\n")
	if len(m.Warnings) != 1 || len(m.Items) != 1 || m.Items[0].(*Section).Raw != "" {
		t.Errorf("%+v", m)
	}
	// The variable's name in LLVM's description of it is not the one that PTX has.
	const names = ".b64 __PRETTY_FUNCTION__._Z1kv\n.b64 .str.1\n.b8 3, 4"
	m = mustParse(t, header+".section .debug_info {\n"+names+"\n}\n")
	if len(m.Items) != 1 || m.Items[0].(*Section).Raw != names {
		t.Errorf("%+v", m)
	}
}

func TestSelectors(t *testing.T) {
	for text, want := range map[string][]int{
		"b0": {0}, "b3": {3}, "h0": {0, 1}, "h1": {2, 3}, "b3210": {0, 1, 2, 3}, "b7604": {4, 0, 6, 7}, "h32": {4, 5, 6, 7}, "x": nil,
	} {
		s, ok := ParseSelector(text)
		if !ok || s.String() != text || !cmp.Equal(s.Bytes(), want) {
			t.Errorf("%s: %v %q %v", text, ok, s, s.Bytes())
		}
	}
	for i, names := range []string{"xr", "yg", "zb", "wa"} {
		for _, n := range strings.Split(names, "") {
			s, ok := ParseSelector(n)
			if c, is := s.Component(); !ok || !is || c != i {
				t.Errorf(".%s is component %d", n, c)
			}
		}
	}
	for _, text := range []string{"", "q", "b8", "b32", "h4321", "b12345", "xx", "h9"} {
		if s, ok := ParseSelector(text); ok {
			t.Errorf("%q is taken for %v", text, s)
		}
	}
}

func TestTypes(t *testing.T) {
	for typ := NoType + 1; typ < typeCount; typ++ {
		if got, ok := ParseType(typ.String()); !ok || got != typ {
			t.Errorf("%v: ParseType gives %v", typ, got)
		}
		if typ.Bits() == 0 || typ.Lanes() == 0 || typ.Size() != (typ.Bits()+7)/8 {
			t.Errorf("%v: %d bits, %d lanes, %d bytes", typ, typ.Bits(), typ.Lanes(), typ.Size())
		}
	}
	for s := RegSpace; s <= TexSpace; s++ {
		if got, ok := ParseSpace(s.String()); !ok || got != s {
			t.Errorf("%v: ParseSpace gives %v", s, got)
		}
	}
	if _, ok := ParseType("f33"); ok {
		t.Error("f33 is a type")
	}
	if _, ok := ParseSpace(""); ok {
		t.Error("nothing is a state space")
	}
}
