package ptx

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const header = ".version 9.0\n.target sm_90\n.address_size 64\n"

func mustParse(t testing.TB, src string) *Module {
	t.Helper()
	m, err := Parse(src)
	if err != nil {
		t.Fatalf("parse: %v\n%s", err, src)
	}
	return m
}

func mustResolve(t testing.TB, src string) *Program {
	t.Helper()
	p, err := Resolve(mustParse(t, src))
	if err != nil {
		t.Fatalf("resolve: %v\n%s", err, src)
	}
	return p
}

func TestSamplesResolve(t *testing.T) {
	for name, src := range samples(t) {
		m, err := Parse(src)
		if err != nil {
			continue // covered by another test
		}
		p, err := Resolve(m)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, c := range p.Codes {
			checkCode(t, c)
		}
	}
}

// checkCode checks what Resolve promises about a function.
func checkCode(t *testing.T, c *Code) {
	t.Helper()
	for i, s := range c.Regs {
		if s.Index != i || s.Kind != SymReg {
			t.Errorf("%s: register %d is %+v", c.Func.Name, i, s)
		}
	}
	for _, l := range c.Labels {
		if l.Index < 0 || l.Index > len(c.Instrs) {
			t.Errorf("%s: label %s at %d of %d", c.Func.Name, l.Name, l.Index, len(c.Instrs))
		}
	}
	if c.Locs != nil && len(c.Locs) != len(c.Instrs) {
		t.Errorf("%s: %d locs for %d instructions", c.Func.Name, len(c.Locs), len(c.Instrs))
	}
	var walk func(i *Instr, list []Operand)
	walk = func(i *Instr, list []Operand) {
		for _, o := range list {
			named := o.Kind == KindReg || o.Kind == KindSymbol || o.Kind == KindAddr && o.Base != KindImm
			if named != (o.Sym != nil) || named && o.Sym.Name != o.Name && o.Sym.Kind != SymFunc {
				t.Errorf("%s: %v: operand %v is bound to %+v", c.Func.Name, i, o, o.Sym)
			}
			if named && (o.Kind == KindReg || o.Base == KindReg) != o.Sym.register() {
				t.Errorf("%s: %v: operand %v is bound to %+v", c.Func.Name, i, o, o.Sym)
			}
			walk(i, o.Elems)
		}
	}
	for _, i := range c.Instrs {
		walk(i, i.Operands)
		if i.Guarded() && i.Pred.Sym == nil {
			t.Errorf("%s: %v: guard is not bound", c.Func.Name, i)
		}
	}
}

// TestScopes numbers the registers that each "use" instruction names, in order of first use, and
// expects equal numbers for equal registers.
func TestScopes(t *testing.T) {
	p := mustResolve(t, header+`
.global .b32 g;
.func f(.param .b32 a) {
	.reg .b32 %r<4>, %r1<3>, x;
	.reg .pred %p<63>;
	use %r1, %r12, x, %r0;          // %r12 is number 2 of %r1<3>
	{ .reg .b32 x; use x, %r1; { .reg .u32 %r<2>; use %r1, %r3, x; } use %r1; }
	{ .reg .b32 x, y; use x, y; }
	{ .reg .pred %p1; use %p1; use %p2; }
	use x, %p1, %p2;
	use g, a, %tid.x;
	{ .param .b32 a; use a; }
	use a;
}`)
	var got []string
	for _, i := range p.Codes[0].Instrs {
		var line []string
		for _, o := range i.Operands {
			s := o.Sym
			switch s.Kind {
			case SymReg:
				line = append(line, s.Name+"="+string(rune('A'+s.Index)))
			case SymVar:
				line = append(line, s.Name+":"+s.Var.Space.String())
			case SymParam:
				line = append(line, s.Name+":own")
			case SymSpecial:
				line = append(line, s.Name+":special")
			}
		}
		got = append(got, strings.Join(line, " "))
	}
	// x of the function is declared, and so numbered, first.
	want := []string{
		"%r1=B %r12=C x=A %r0=D",
		"x=E %r1=B", "%r1=F %r3=G x=E", "%r1=B",
		"x=H y=I",
		"%p1=J", "%p2=K",
		"x=A %p1=L %p2=K",
		"g:global a:own %tid:special",
		"a:param", "a:own",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestLabels(t *testing.T) {
	p := mustResolve(t, header+`
.func f() {
	.reg .pred p; .reg .b32 r;
	bra L;
	{ L: @p bra L; bra M; }
	{ L: @p bra L; N: }
L:	ts: .branchtargets M, L;
	brx.idx r, ts;
M:	ret;
E:
}`)
	c := p.Codes[0]
	var got []int
	for _, i := range c.Instrs {
		if i.Opcode == "bra" {
			got = append(got, i.Operands[0].Sym.Index)
		}
	}
	ts := c.Instrs[4].Operands[1].Sym
	got = append(got, ts.Branch.Syms[0].Index, ts.Branch.Syms[1].Index)
	if want := []int{4, 1, 5, 3, 5, 4}; !cmp.Equal(want, got) {
		t.Errorf("targets %v, want %v", got, want)
	}
	var at []int
	for _, l := range c.Labels {
		at = append(at, l.Index)
	}
	if want := []int{1, 3, 4, 4, 5, 6}; !cmp.Equal(want, at) {
		t.Errorf("labels at %v, want %v", at, want)
	}
}

func TestGlobals(t *testing.T) {
	p := mustResolve(t, header+`
.func f();
.extern .global .b32 v;
.alias other, f;
.func f() { call other; call f; }
.visible .global .b32 v = 3;
.func g(.reg .b32 a, .param .b32 b) { .reg .b32 r; mov.b32 r, a; mov.b64 r, v; }`)
	if f := p.Globals["f"]; f.Func.Body == nil || p.Globals["other"] != f || p.Code("other") != p.Codes[0] {
		t.Error("the function's definition is not what its name and alias lead to")
	}
	if v := p.Globals["v"].Var; v.Linking != Visible {
		t.Errorf("v is %v, not its definition", v)
	}
	g := p.Code("g")
	if g.Params[0].Kind != SymReg || g.Params[1].Kind != SymParam || g.Params[1].Index != 1 {
		t.Errorf("parameters %+v %+v", g.Params[0], g.Params[1])
	}
	if g.Instrs[0].Operands[1].Sym != g.Params[0] {
		t.Error("a register parameter is not the register of that name")
	}
}

func TestResolveErrors(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{".reg .b32 %r<4>; mov.b32 %r3, %r4;", "undeclared name '%r4'"},
		{".reg .b32 %r<4>; mov.b32 %r03, 1;", "undeclared name '%r03'"},
		{"bra L;", "undeclared name 'L'"},
		{"{ L: } bra L;", "undeclared name 'L'"},
		{"{ .reg .b32 x; } mov.b32 x, 1;", "undeclared name 'x'"},
		{"mov.b32 %odd, 1; .reg .b32 %odd;", "undeclared name '%odd'"},
		{"L: L: ret;", "second declaration of 'L'"},
		{".reg .b32 a; .shared .b32 a;", "second declaration of 'a'"},
		{".reg .b32 %r<2>; { .reg .b32 %r<2>; } .reg .b32 %r<3>;", "second declaration of '%r<>'"},
		{"@f ret;", "guard that is no register, 'f'"},
		{"mov.b32 f.x, 1;", "operand that is no register, 'f'"},
		{"t: .branchtargets f;", "branch target that is no label, 'f'"},
	} {
		_, err := Resolve(mustParse(t, header+".func f() {\n"+c.body+"\n}"))
		var e *Error
		if !errors.As(err, &e) || e.Msg != c.want || e.Pos.Line != 5 {
			t.Errorf("%s: %v, want %s", c.body, err, c.want)
		}
	}
}

// TestRangesOfVariables checks that a range in a space of variables declares variables, as GCC does
// for the parameters of calls.
func TestRangesOfVariables(t *testing.T) {
	p := mustResolve(t, header+`.func f (.param .u64 a, .param .u64 b) { ret; }
.entry k () { .reg .u64 %R<2>; { .param .u64 %P<2>; st.param.u64 [%P0], %R0; st.param.u64 [%P1], %R1; call f, (%P0, %P1); } ret; }`)
	code := p.Codes[1]
	var vars []string
	for _, s := range code.Vars {
		if s.Kind != SymVar || s.Var.Space != ParamSpace || s.Var.Count != 0 || s.Var.Name != s.Name || s.Type != p.Codes[0].Params[0].Type {
			t.Errorf("%+v of %+v", s, s.Var)
		}
		vars = append(vars, s.Name)
	}
	if diff := cmp.Diff([]string{"%P0", "%P1"}, vars); diff != "" {
		t.Error("-want +got\n" + diff)
	}
	if len(code.Regs) != 2 {
		t.Errorf("%d registers", len(code.Regs))
	}
	st, call := code.Instrs[0], code.Instrs[2]
	if st.Operands[0].Base != KindSymbol || st.Operands[0].Sym != code.Vars[0] {
		t.Errorf("st.param's address is %+v", st.Operands[0])
	}
	args := call.Operands[1]
	if len(args.Elems) != 2 || args.Elems[1].Kind != KindSymbol || args.Elems[1].Sym != code.Vars[1] {
		t.Errorf("the call's arguments are %+v", args)
	}
}
