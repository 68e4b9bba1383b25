package ptx

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestPrintedModulesParseToTheSameTree checks String's promise on modules of every shape.
func TestPrintedModulesParseToTheSameTree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := (&gen{T: t}).module()
		text := m.String()
		again, err := Parse(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if d := diff(m, again); d != "" {
			t.Fatalf("-generated +parsed:\n%s\n%s", d, text)
		}
	})
}

// gen makes random modules in the form that Parse returns.
type gen struct {
	*rapid.T
	regs map[string]bool // names without a percent sign that are registers here (true) or hide one (false)
	next int             // for unique names
}

func (g *gen) n(least, most int) int { return rapid.IntRange(least, most).Draw(g.T, "n") }

func (g *gen) chance(of int) bool { return g.n(1, of) == 1 }

func pick[T any](g *gen, from ...T) T { return rapid.SampledFrom(from).Draw(g.T, "pick") }

// some returns up to most values.
func some[T any](g *gen, most int, one func() T) []T {
	var list []T
	for range g.n(0, most) {
		list = append(list, one())
	}
	return list
}

func (g *gen) name() string {
	g.next++
	return fmt.Sprintf("%s%d", pick(g, "_Z3foo", "$L__BB", "x_", "W", "generic_"), g.next)
}

func (g *gen) module() *Module {
	m := &Module{
		Version:     pick(g, Version{9, 0}, Version{8, 7}, Version{3, 2}),
		Target:      pick(g, []string{"sm_90"}, []string{"sm_100a", "debug"}),
		AddressSize: pick(g, 0, 32, 64),
	}
	g.regs = map[string]bool{}
	for range g.n(0, 5) {
		m.Items = append(m.Items, g.item())
	}
	return m
}

func (g *gen) item() Item {
	switch g.n(0, 8) {
	case 0:
		return &File{Index: g.n(0, 9), Name: pick(g, "a.cu", `C:\\x \"y\"`), Extra: pick(g, nil, []uint64{1 << 63, 12})}
	case 1:
		return &Section{Name: ".debug_info", Raw: pick(g, "", ".b8 1, 2\nx: .b32 x+4, x-y, -1\n.b64 .debug_line // end")}
	case 2:
		return &Alias{Name: g.name(), Of: g.name()}
	case 3:
		return &Pragma{Text: pick(g, []string{"nounroll"}, []string{"a", "b c"})}
	case 4:
		return &Target{Names: []string{"sm_90", "texmode_independent"}}
	case 5, 6:
		v := g.variable(pick(g, GlobalSpace, ConstSpace, SharedSpace, TexSpace))
		v.Linking = pick(g, Internal, Extern, Visible, Weak, Common)
		g.initialise(v)
		return v
	}
	return g.function()
}

func (g *gen) variable(space Space) *Var {
	v := &Var{
		Space: space, Type: Type(g.n(1, int(typeCount)-1)), Name: g.name(),
		Align: pick(g, 0, 0, 1, 16), Vector: pick(g, 0, 0, 0, 2, 4, 8),
	}
	if g.chance(8) {
		v.Attributes = []Attribute{{Name: "managed"}, {Name: "unified", Args: []uint64{1, 1<<64 - 1}}}
	}
	if space == RegSpace {
		v.Name = pick(g, "%", "") + v.Name
		v.Count = pick(g, 0, 0, 1, 999999999)
	} else if g.chance(3) {
		v.Dims = pick(g, []int64{4}, []int64{Unsized}, []int64{2, 3}, []int64{Unsized, 3})
	}
	if v.Name[0] != '%' && v.Count == 0 {
		g.regs[v.Name] = space == RegSpace
	}
	return v
}

func (g *gen) initialise(v *Var) {
	if len(v.Dims) != 1 || v.Vector != 0 || v.Type.Class() == Opaque || g.chance(2) {
		return
	}
	v.Init = &Init{Raw: pick(g, "{1, -2,3 , 0x10}", "{1.5, 0f3F800000}", "{generic(a)+4, b, 0xff00(c), 0xff(generic(d)+8)}",
		"{ // nothing\n}", "{1, 2, /* ; */ (3+4)*5}", "{WARP_SZ, W1, W2 + 8}")}
}

func (g *gen) function() *Func {
	outer := maps.Clone(g.regs)
	defer func() { g.regs = outer }()
	f := &Func{Linking: pick(g, Internal, Extern, Visible, Weak), Entry: g.chance(2), Name: g.name()}
	if g.chance(6) {
		f.Attributes = []Attribute{{Name: "unified", Args: []uint64{3, 4}}}
	}
	param := func() *Var {
		v := g.variable(ParamSpace)
		if g.chance(3) {
			v.Ptr = &Ptr{Space: pick(g, NoSpace, GlobalSpace, SharedSpace), Align: pick(g, 0, 1, 256)}
		}
		return v
	}
	f.Params = some(g, 3, param)
	if !f.Entry {
		f.Returns = some(g, 2, param)
	}
	for range g.n(0, 2) {
		f.Directives = append(f.Directives, pick(g,
			Directive{Name: "maxntid", Args: []int64{256, 1, 1}}, Directive{Name: "minnctapersm", Args: []int64{2}},
			Directive{Name: "noreturn"}, Directive{Name: "pragma", Text: []string{"nounroll", "x"}},
			Directive{Name: "something_new", Args: []int64{7}}))
	}
	if !g.chance(4) {
		f.Body = g.block(3)
	}
	return f
}

func (g *gen) block(depth int) *Block {
	outer := maps.Clone(g.regs)
	defer func() { g.regs = outer }()
	b := &Block{}
	for range g.n(0, 6) {
		b.Stmts = append(b.Stmts, g.stmt(depth))
	}
	return b
}

func (g *gen) stmt(depth int) Stmt {
	switch g.n(0, 14) {
	case 0:
		return &Label{Name: g.name()}
	case 1, 2:
		v := g.variable(pick(g, RegSpace, RegSpace, SharedSpace, LocalSpace, ParamSpace))
		if g.chance(3) && v.Count == 0 && len(g.regs) > 1 { // hide, or redeclare, a name of an enclosing scope
			delete(g.regs, v.Name)
			v.Name = pick(g, slices.Sorted(maps.Keys(g.regs))...)
			g.regs[v.Name] = v.Space == RegSpace
		}
		return v
	case 3:
		if depth > 0 {
			return g.block(depth - 1)
		}
		return &Block{}
	case 4:
		l := &Loc{File: g.n(0, 9), Line: g.n(0, 999), Col: g.n(0, 99)}
		if g.chance(2) {
			l.Inlined = &Inlined{Function: g.name(), Offset: int64(pick(g, 0, 14)), File: 1, Line: 2, Col: 3}
		}
		return l
	case 5:
		return &Pragma{Text: []string{"used_bytes_mask 3855"}}
	case 6:
		return &BranchTargets{Name: g.name(), Labels: []string{g.name(), g.name()}}
	case 7:
		return &CallTargets{Name: g.name(), Funcs: []string{g.name()}}
	case 8:
		under := func() *Var { return &Var{Space: ParamSpace, Type: B64, Name: "_", Dims: pick(g, nil, []int64{16})} }
		c := &CallPrototype{Name: g.name(), Returns: some(g, 1, under), Params: some(g, 3, under)}
		if g.chance(2) {
			c.Directives = []Directive{{Name: "noreturn"}}
		}
		return c
	}
	return g.instr()
}

func (g *gen) instr() *Instr {
	i := &Instr{
		Opcode:    pick(g, "ld", "add", "frobnicate", "bra", "ret"),
		Modifiers: pick(g, nil, []string{"f32"}, []string{"shared::cta", "v4", "b32"}, []string{"2d", "mbarrier::complete_tx::bytes", "16x256b"}),
		Operands:  some(g, 4, func() Operand { return g.operand(2) }),
	}
	if g.chance(3) {
		i.Pred = Pred{Name: g.register(), Not: g.chance(2)}
	}
	if g.chance(8) {
		i.Opcode, i.Operands = "call", nil
		list := func() Operand { return List(some(g, 3, func() Operand { return g.operand(1) })...) }
		if g.chance(2) {
			i.Operands = append(i.Operands, list())
		}
		i.Operands = append(i.Operands, Sym(g.name()))
		if g.chance(2) {
			i.Operands = append(i.Operands, list(), Sym(g.name()))
		}
	}
	return i
}

// register returns a register's name: with a percent sign, or declared without one.
func (g *gen) register() string {
	var plain []string
	for _, name := range slices.Sorted(maps.Keys(g.regs)) {
		if g.regs[name] {
			plain = append(plain, name)
		}
	}
	if len(plain) > 0 && g.chance(2) {
		return pick(g, plain...)
	}
	return pick(g, "%r1", "%tid", "%SP", "%p12")
}

func (g *gen) operand(depth int) Operand {
	simple := func() Operand { return pick(g, Reg(g.register()), Operand{Kind: KindSink}, Sym(g.name())) }
	nested := func() Operand { return g.operand(depth - 1) }
	if depth == 0 {
		return simple()
	}
	offset := uint64(pick(g, int64(0), 8, -8, -1<<63))
	switch g.n(0, 11) {
	case 0:
		return Operand{Kind: KindImm, Imm: ImmInt, Bits: rapid.Uint64().Draw(g.T, "int")}
	case 1:
		return Operand{Kind: KindImm, Imm: ImmF32, Bits: uint64(rapid.Uint32().Draw(g.T, "f32"))}
	case 2:
		return Operand{Kind: KindImm, Imm: ImmF64, Bits: rapid.Uint64().Draw(g.T, "f64")}
	case 3:
		return Operand{Kind: KindReg, Name: g.register(), Not: true}
	case 4:
		return Operand{Kind: KindReg, Name: g.register(), Neg: g.chance(2), Sel: g.selector()}
	case 5:
		return Operand{Kind: KindSymbol, Name: g.name(), Bits: offset, Generic: g.chance(2)}
	case 6:
		o := Operand{Kind: KindAddr, Base: KindReg, Name: g.register(), Bits: offset}
		o.Elems = some(g, 3, nested)
		return o
	case 7:
		return Operand{Kind: KindAddr, Base: KindSymbol, Name: g.name(), Bits: offset, Elems: some(g, 2, nested)}
	case 8:
		return Operand{Kind: KindAddr, Base: KindImm, Bits: offset}
	case 9:
		return Vec(some(g, 4, nested)...)
	case 10:
		return Pair(simple(), simple())
	}
	return Operand{Kind: KindWarpSize}
}

func (g *gen) selector() Selector {
	s, ok := ParseSelector(pick(g, "x", "w", "b0", "b3", "h1", "h10", "h32", "b3210", "b7654"))
	if !ok {
		g.Fatal("a selector does not parse")
	}
	return s
}
