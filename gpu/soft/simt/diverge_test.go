package simt

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A random program over eight variables per thread runs in two ways: as PTX on warps, and thread by
// thread from its tree. Threads share nothing, so the results must agree, however the warps diverge
// and reconverge.

type node interface {
	// emit writes the node as PTX.
	emit(g *emitter)
	// eval executes the node for one thread and returns how control continues.
	eval(s *state) flowTo
}

type flowTo int

const (
	onward flowTo = iota
	breaking
	continuing
	returning
)

const vars = 8

type state struct {
	v     [vars]uint32
	funcs []block
	fuel  int
}

type emitter struct {
	b      strings.Builder
	labels int
	loops  [][2]string // continue and break labels
	end    string      // target of a return; "" to return in place
	store  string      // code that saves the results of a kernel
}

func (g *emitter) f(format string, args ...any) { fmt.Fprintf(&g.b, "\t"+format+"\n", args...) }

func (g *emitter) label() string {
	g.labels++
	return fmt.Sprintf("L%d", g.labels)
}

type block []node

func (b block) emit(g *emitter) {
	for _, n := range b {
		n.emit(g)
	}
}

func (b block) eval(s *state) flowTo {
	for _, n := range b {
		if to := n.eval(s); to != onward {
			return to
		}
	}
	return onward
}

// cond compares a variable with a constant, unsigned, after masking.
type cond struct {
	a, mask, than int
}

func (c cond) holds(s *state) bool { return s.v[c.a]&uint32(c.mask) < uint32(c.than) }
func (c cond) emit(g *emitter) {
	g.f("and.b32 %%t1, %%v%d, %d;", c.a, c.mask)
	g.f("setp.lt.u32 %%p1, %%t1, %d;", c.than)
}

type assign struct {
	op      string
	d, a, b int
	guard   *cond
}

func (n assign) emit(g *emitter) {
	at := ""
	if n.guard != nil {
		n.guard.emit(g)
		at = "@%p1 "
	}
	g.f("%s%s %%v%d, %%v%d, %%v%d;", at, n.op, n.d, n.a, n.b)
}

func (n assign) eval(s *state) flowTo {
	if n.guard != nil && !n.guard.holds(s) {
		return onward
	}
	a, b := s.v[n.a], s.v[n.b]
	switch n.op {
	case "add.u32":
		a += b
	case "sub.u32":
		a -= b
	case "xor.b32":
		a ^= b
	case "mul.lo.u32":
		a *= b
	case "min.s32":
		a = uint32(min(int32(a), int32(b)))
	}
	s.v[n.d] = a
	return onward
}

type branch struct {
	c         cond
	yes, no   block
	fallFirst bool
}

func (n branch) emit(g *emitter) {
	n.c.emit(g)
	other, end := g.label(), g.label()
	if n.fallFirst { // the other arm in line
		g.f("@%%p1 bra %s;", other)
		n.no.emit(g)
		g.f("bra %s;", end)
		g.f("%s:", other)
		n.yes.emit(g)
	} else {
		g.f("@!%%p1 bra %s;", other)
		n.yes.emit(g)
		if len(n.no) > 0 {
			g.f("bra.uni %s;", end)
		}
		g.f("%s:", other)
		n.no.emit(g)
	}
	g.f("%s:", end)
}

func (n branch) eval(s *state) flowTo {
	if n.c.holds(s) {
		return n.yes.eval(s)
	}
	return n.no.eval(s)
}

// loop runs its body (v[count] & 7) times, counted in a register of its depth.
type loop struct {
	count, depth int
	body         block
}

func (n loop) emit(g *emitter) {
	head, next, end := g.label(), g.label(), g.label()
	g.f("and.b32 %%c%d, %%v%d, 7;", n.depth, n.count)
	g.f("%s:", head)
	g.f("setp.eq.u32 %%p1, %%c%d, 0;", n.depth)
	g.f("@%%p1 bra %s;", end)
	g.loops = append(g.loops, [2]string{next, end})
	n.body.emit(g)
	g.loops = g.loops[:len(g.loops)-1]
	g.f("%s:", next)
	g.f("sub.u32 %%c%d, %%c%d, 1;", n.depth, n.depth)
	g.f("bra %s;", head)
	g.f("%s:", end)
}

func (n loop) eval(s *state) flowTo {
	for range s.v[n.count] & 7 {
		if s.fuel--; s.fuel < 0 {
			return returning
		}
		switch n.body.eval(s) {
		case breaking:
			return onward
		case returning:
			return returning
		}
	}
	return onward
}

// jump leaves a loop, its iteration, or the function, if a condition holds.
type jump struct {
	c  cond
	to flowTo
}

func (n jump) emit(g *emitter) {
	n.c.emit(g)
	switch n.to {
	case breaking:
		g.f("@%%p1 bra %s;", g.loops[len(g.loops)-1][1])
	case continuing:
		g.f("@%%p1 bra %s;", g.loops[len(g.loops)-1][0])
	case returning:
		if g.end != "" {
			g.f("@%%p1 bra %s;", g.end)
			return
		}
		over := g.label()
		g.f("@!%%p1 bra %s;", over)
		g.b.WriteString(g.store)
		g.f("ret;")
		g.f("%s:", over)
	}
}

func (n jump) eval(s *state) flowTo {
	if n.c.holds(s) {
		return n.to
	}
	return onward
}

// invoke calls a function with two variables and stores its result.
type invoke struct{ fn, d, a, b int }

func (n invoke) emit(g *emitter) {
	g.f("{ .param .b32 a; .param .b32 b; .param .b32 r;")
	g.f("st.param.b32 [a], %%v%d; st.param.b32 [b], %%v%d;", n.a, n.b)
	g.f("call (r), f%d, (a, b);", n.fn)
	g.f("ld.param.b32 %%v%d, [r]; }", n.d)
}

func (n invoke) eval(s *state) flowTo {
	inner := state{funcs: s.funcs, fuel: s.fuel}
	inner.v[0], inner.v[1] = s.v[n.a], s.v[n.b]
	s.funcs[n.fn].eval(&inner)
	s.v[n.d], s.fuel = inner.v[0], inner.fuel
	return onward
}

// shape limits what may be drawn at a place of the program.
type shape struct {
	depth, loops int
	funcs        int // functions that may be called
}

func drawCond(t *rapid.T) cond {
	mask := rapid.SampledFrom([]int{1, 3, 7, 31, 1023}).Draw(t, "mask")
	return cond{rapid.IntRange(0, vars-1).Draw(t, "a"), mask, rapid.IntRange(0, mask+1).Draw(t, "than")}
}

func drawBlock(t *rapid.T, sh shape) block {
	var b block
	for range rapid.IntRange(0, 5).Draw(t, "len") {
		b = append(b, drawNode(t, sh))
	}
	return b
}

func drawNode(t *rapid.T, sh shape) node {
	v := func(label string) int { return rapid.IntRange(0, vars-1).Draw(t, label) }
	inner := sh
	inner.depth--
	kind := rapid.IntRange(0, 11).Draw(t, "kind")
	switch {
	case kind < 3 && sh.depth > 0:
		return branch{c: drawCond(t), yes: drawBlock(t, inner), no: drawBlock(t, inner), fallFirst: rapid.Bool().Draw(t, "fall")}
	case kind < 5 && sh.depth > 0 && sh.loops < 3:
		inner.loops++
		return loop{v("count"), sh.loops, drawBlock(t, inner)}
	case kind == 5:
		to := []flowTo{returning, breaking, continuing}
		if sh.loops == 0 {
			to = to[:1]
		}
		return jump{drawCond(t), rapid.SampledFrom(to).Draw(t, "to")}
	case kind == 6 && sh.funcs > 0:
		return invoke{rapid.IntRange(0, sh.funcs-1).Draw(t, "fn"), v("d"), v("a"), v("b")}
	}
	n := assign{op: rapid.SampledFrom([]string{"add.u32", "sub.u32", "xor.b32", "mul.lo.u32", "min.s32"}).Draw(t, "op"), d: v("d"), a: v("a"), b: v("b")}
	if rapid.Bool().Draw(t, "guarded") {
		c := drawCond(t)
		n.guard = &c
	}
	return n
}

const fewRegs = "\t.reg .pred %p<2>; .reg .b32 %v<8>, %c<4>, %t<4>; .reg .b64 %rd<4>;\n"

func source(funcs []block, main block, merged bool) string {
	var src strings.Builder
	for i, f := range funcs {
		g := &emitter{labels: 1000 * (i + 1), end: "END"}
		f.emit(g)
		fmt.Fprintf(&src, ".func (.param .b32 out) f%d(.param .b32 x, .param .b32 y)\n{\n%s", i, fewRegs)
		src.WriteString("\tld.param.b32 %v0, [x]; ld.param.b32 %v1, [y];\n")
		for k := 2; k < vars; k++ {
			fmt.Fprintf(&src, "\tmov.u32 %%v%d, 0;\n", k)
		}
		src.WriteString(g.b.String() + "END:\n\tst.param.b32 [out], %v0;\n\tret;\n}\n")
	}
	g := &emitter{}
	for k := range vars {
		g.store += fmt.Sprintf("\tst.global.u32 [%%rd1+%d], %%v%d;\n", 4*k, k)
	}
	if merged {
		g.end = "END"
	}
	main.emit(g)
	src.WriteString(".visible .entry k(.param .u64 p)\n{\n" + fewRegs)
	src.WriteString("\tld.param.u64 %rd1, [p]; mov.u32 %t1, %tid.x; mul.wide.u32 %rd2, %t1, 32; add.s64 %rd1, %rd1, %rd2;\n")
	for k := range vars {
		fmt.Fprintf(&src, "\tmad.lo.u32 %%v%d, %%t1, %d, %d;\n", k, 2*k+1, 7*k)
	}
	src.WriteString(g.b.String() + "END:\n" + g.store + "\tret;\n}\n")
	return src.String()
}

func TestDivergence(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var funcs []block
		for i := range rapid.IntRange(0, 2).Draw(rt, "functions") {
			funcs = append(funcs, drawBlock(rt, shape{depth: 2, funcs: i}))
		}
		main := drawBlock(rt, shape{depth: 4, funcs: len(funcs)})
		src := source(funcs, main, rapid.Bool().Draw(rt, "merged"))
		threads := rapid.SampledFrom([]int{1, 5, 32, 50}).Draw(rt, "threads")

		want := make([]uint32, 0, threads*vars)
		for tid := range uint32(threads) {
			s := state{funcs: funcs, fuel: 20_000}
			for k := range uint32(vars) {
				s.v[k] = tid*(2*k+1) + 7*k
			}
			main.eval(&s)
			if s.fuel < 0 {
				return // too long to be useful
			}
			want = append(want, s.v[:]...)
		}
		m := newMachine(t, src)
		m.budget = rapid.SampledFrom([]int{1, 17, 10_000}).Draw(rt, "budget")
		m.module.Kernel("k").prog.yieldAfter = rapid.SampledFrom([]int32{1, 2, 5, spinLimit}).Draw(rt, "spinLimit")
		out, data := m.alloc(threads * vars * 4)
		if f := m.run("k", d3(1), d3(uint32(threads)), 0, out); f != nil {
			rt.Fatalf("%v\n%s", f, src)
		}
		for i, v := range wordsOf(data) {
			if v != want[i] {
				rt.Fatalf("thread %d, variable %d: got %d, want %d\n%s", i/vars, i%vars, v, want[i], src)
			}
		}
	})
}

// Lanes that diverge at a branch reconverge after it: the code that follows is executed once, not
// once per side.
func TestReconvergence(t *testing.T) {
	arms := func(body string) string {
		return entry(`
	and.b32 %r3, %r2, 3;
	setp.eq.u32 %p1, %r3, 0;
	setp.eq.u32 %p2, %r3, 1;
` + body + strings.Repeat("	add.u32 %r4, %r4, 1;\n", 100))
	}
	for name, test := range map[string]struct {
		body string
		want uint64 // instructions apart from the 108 that all execute
	}{
		"uniform":   {"	bra A;\nA:\n", 1},
		"if":        {"	@%p1 bra A;\n	add.u32 %r4, %r4, 2;\nA:\n", 2},
		"if else":   {"	@%p1 bra A;\n	add.u32 %r4, %r4, 2;\n	bra B;\nA:\n	add.u32 %r4, %r4, 3;\nB:\n", 4},
		"nested":    {"	@%p1 bra A;\n	@%p2 bra C;\n	add.u32 %r4, %r4, 2;\nC:\n	add.u32 %r4, %r4, 9;\n	bra B;\nA:\n	add.u32 %r4, %r4, 3;\nB:\n", 6},
		"predicate": {"	@%p1 add.u32 %r4, %r4, 2;\n", 1},
		"loop":      {"A:\n	add.u32 %r5, %r5, 1;\n	setp.lt.u32 %p3, %r5, %r3;\n	@%p3 bra A;\n", 9},
		"leavers":   {"	@%p1 ret;\n", 1},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, arms(test.body))
			if f := m.run("k", d3(1), d3(32), 0, uint64(0), uint64(0), 0); f != nil {
				t.Fatal(f)
			}
			if got := m.last.Counts().WarpInstructions; got != 108+test.want {
				t.Errorf("%d instructions, want %d", got, 108+test.want)
			}
		})
	}
}
