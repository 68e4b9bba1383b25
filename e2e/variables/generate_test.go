package variables

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"vgpud/gpu"
)

// A generated module has tables of both spaces that nobody writes, tables of which each thread
// writes its own word, counters that are only added to, and words with addresses of others. Two
// launches of its kernel use them in every way that there is.
const (
	threads = 64 // in two blocks
	words   = 64 // of a table
)

type generator struct {
	data   []byte
	text   strings.Builder
	tables []table // all are tables of words
	labels int
}

type table struct {
	name     string
	constant bool
	written  bool // by each thread its word
}

// draw returns a number below n from the input.
func (g *generator) draw(n int) int {
	if len(g.data) == 0 {
		return 0
	}
	v := int(g.data[0])
	g.data = g.data[1:]
	return v % n
}

func (g *generator) emit(format string, args ...any) { fmt.Fprintf(&g.text, "\t"+format+"\n", args...) }

// generate returns a module for an input.
func generate(data []byte) (string, []table) {
	g := &generator{data: data}
	g.text.WriteString(".version 8.0\n.target sm_80\n.address_size 64\n")
	linking := []string{"", ".visible ", ".weak "}
	for i := range 3 + g.draw(4) {
		t := table{name: fmt.Sprintf("t%d", i), constant: i == 1 || i > 2 && g.draw(2) == 0, written: i == 0}
		t.written = t.written || !t.constant && g.draw(2) == 0
		space, initial := ".global", ""
		if t.constant {
			space = ".const"
		}
		if g.draw(2) == 0 {
			initial = fmt.Sprintf(" = {%d, %d, -3}", g.draw(256), g.draw(256))
		}
		fmt.Fprintf(&g.text, "%s%s .align 16 .u32 %s[%d]%s;\n", linking[g.draw(3)], space, t.name, words, initial)
		g.tables = append(g.tables, t)
	}
	g.text.WriteString(".visible .global .u32 counter = 5;\n.visible .global .u64 wide;\n")
	for i, t := range g.tables {
		if !t.written {
			fmt.Fprintf(&g.text, ".global .u64 to_%d = generic(%s) + %d;\n", i, t.name, 4*g.draw(words/2))
		}
	}
	g.text.WriteString(".func (.param .b32 r) look (.param .b32 a)\n{\n\t.reg .b32 %r<4>; .reg .b64 %rd<4>;\n\tld.param.b32 %r1, [a];\n\tand.b32 %r1, %r1, 63;\n")
	g.emit("mov.u64 %%rd1, t1;")
	g.emit("mad.wide.u32 %%rd2, %%r1, 4, %%rd1;")
	g.emit("ld.const.u32 %%r2, [%%rd2];")
	g.emit("red.global.add.u32 [counter], 1;")
	g.text.WriteString("\tst.param.b32 [r], %r2;\n\tret;\n}\n.visible .entry k()\n{\n")
	g.text.WriteString("\t.reg .b32 %r<32>; .reg .b64 %rd<50>; .reg .pred %p<4>;\n")
	g.emit("mov.u32 %%r1, %%tid.x;")
	g.emit("mov.u32 %%r2, %%ctaid.x;")
	g.emit("mad.lo.u32 %%r1, %%r2, 32, %%r1;")
	g.emit("mul.wide.u32 %%rd1, %%r1, 4;")
	g.emit("and.b32 %%r3, %%r1, 1;")
	g.emit("setp.eq.u32 %%p1, %%r3, 1;")
	g.emit("mov.u32 %%r10, %%r1;")
	for range 4 + g.draw(16) {
		g.statement()
	}
	g.emit("mov.u64 %%rd20, t0;")
	g.emit("add.s64 %%rd20, %%rd20, %%rd1;")
	g.emit("st.global.u32 [%%rd20], %%r10;")
	g.text.WriteString("\tret;\n}\n")
	return g.text.String(), g.tables
}

// add adds what was read, in %r11, to the thread's value.
func (g *generator) add() { g.emit("mad.lo.u32 %%r10, %%r10, 31, %%r11;") }

// statement uses a variable.
func (g *generator) statement() {
	n := g.draw(len(g.tables))
	t := &g.tables[n]
	space, at := "global", 4*g.draw(words)
	// Compilers have a register for each value: none has addresses of both spaces.
	first := 30
	if t.constant {
		space, first = "const", 40
	}
	reg := func(i int) string { return fmt.Sprintf("%%rd%d", first+i) }
	// where puts the address of the thread's word, or, in a table that nobody writes, of any into reg(0).
	where := func() {
		g.emit("mov.u64 %s, %s;", reg(0), t.name)
		if t.written {
			g.emit("add.s64 %s, %s, %%rd1;", reg(0), reg(0))
			return
		}
		g.emit("and.b32 %%r12, %%r10, 63;")
		g.emit("mad.wide.u32 %s, %%r12, 4, %s;", reg(0), reg(0))
	}
	switch kind := g.draw(12); {
	case kind == 0 && t.written: // its word, changed
		where()
		g.emit("ld.global.u32 %%r11, [%s];", reg(0))
		g.add()
		g.emit("@%%p1 st.global.u32 [%s], %%r10;", reg(0))
	case kind == 1 && t.written:
		where()
		g.emit("atom.global.add.u32 %%r11, [%s], %%r10;", reg(0))
		g.add()
	case t.written: // through a generic address
		g.emit("cvta.global.u64 %s, %s;", reg(1), t.name)
		g.emit("add.s64 %s, %s, %%rd1;", reg(1), reg(1))
		g.emit("ld.u32 %%r11, [%s];", reg(1))
		g.add()
		g.emit("st.u32 [%s], %%r10;", reg(1))
	case kind == 2:
		g.emit("ld.%s.u32 %%r11, [%s+%d];", space, t.name, at)
		g.add()
	case kind == 3:
		g.emit("@!%%p1 ld.%s.v4.u32 {%%r11, %%r12, %%r13, %%r14}, [%s+%d];", space, t.name, at&^15)
		g.emit("@!%%p1 mad.lo.u32 %%r10, %%r12, %%r13, %%r10;")
	case kind == 4:
		where()
		g.emit("ld.%s.u32 %%r11, [%s];", space, reg(0))
		g.add()
	case kind == 5:
		where()
		g.emit("cvta.%s.u64 %s, %s;", space, reg(1), reg(0))
		g.emit("ld.u32 %%r11, [%s];", reg(1))
		g.add()
	case kind == 6: // an address that the driver filled in
		g.emit("ld.global.u64 %s, [to_%d];", reg(1), n)
		g.emit("ld.u32 %%r11, [%s+4];", reg(1))
		g.add()
	case kind == 7:
		g.emit("red.global.add.u64 [wide], %%rd1;")
		g.emit("@%%p1 red.global.add.u32 [counter], %%r1;")
	case kind == 8: // one of two
		other := g.tables[1].name
		if !t.constant {
			other = t.name + "+16"
		}
		g.emit("selp.b64 %s, %s, %s, %%p1;", reg(2), t.name, other)
		g.emit("ld.%s.u32 %%r11, [%s+8];", space, reg(2))
		g.add()
	case kind == 9: // a loop through a table
		g.labels++
		g.emit("mov.u64 %s, %s;", reg(3), t.name)
		g.emit("add.s64 %s, %s, %d;", reg(4), reg(3), 4+at)
		g.text.WriteString(fmt.Sprintf("L%d:\n", g.labels))
		g.emit("ld.%s.u32 %%r11, [%s];", space, reg(3))
		g.add()
		g.emit("add.s64 %s, %s, 4;", reg(3), reg(3))
		g.emit("setp.lt.u64 %%p2, %s, %s;", reg(3), reg(4))
		g.emit("@%%p2 bra L%d;", g.labels)
	case kind == 10:
		g.text.WriteString("\t{\n\t.param .b32 a; .param .b32 r;\n")
		g.emit("st.param.b32 [a], %%r10;")
		g.emit("call (r), look, (a);")
		g.emit("ld.param.b32 %%r11, [r];")
		g.text.WriteString("\t}\n")
		g.add()
	default:
		g.emit("cvta.%s.u64 %s, %s;", space, reg(5), t.name)
		g.emit("ld.u32 %%r11, [%s+%d];", reg(5), at)
		g.add()
	}
}

// outcome launches the kernel of a module twice, with tables that the host has written, and returns what is in the
// variables then, which the host reads.
func outcome(t testing.TB, ctx gpu.Context, src string, tables []table, seed uint64) []byte {
	t.Helper()
	m, err := ctx.LoadModule([]byte(src))
	if err != nil {
		t.Fatalf("%v\n%s", err, src)
	}
	ch, err := ctx.NewChannel()
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(seed, 3))
	done := func(f gpu.Fence, err error) {
		t.Helper()
		if err == nil {
			err = ch.Wait(t.Context(), f)
		}
		if err == nil {
			err = ch.Outcome(f).Err
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, src)
		}
	}
	write := func() {
		for _, v := range tables {
			p, n, err := m.Global(v.name)
			if err != nil || n != 4*words {
				t.Fatal(n, err)
			}
			if rng.IntN(3) == 0 {
				continue // it keeps what it has
			}
			var b []byte
			for range words {
				b = binary.LittleEndian.AppendUint32(b, rng.Uint32())
			}
			done(ch.CopyIn(p, b))
		}
	}
	f, err := m.Function("k")
	if err != nil {
		t.Fatalf("%v\n%s", err, src)
	}
	for range 2 {
		write()
		done(ch.Launch(&gpu.Launch{Function: f, Grid: gpu.Dim3{X: threads / 32, Y: 1, Z: 1}, Block: gpu.Dim3{X: 32, Y: 1, Z: 1}}))
	}
	var all []byte
	for _, name := range append([]string{"counter", "wide"}, names(tables)...) {
		p, n, err := m.Global(name)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, n)
		done(ch.CopyOut(b, p))
		all = append(all, b...)
	}
	if err := ch.Close(); err != nil {
		t.Fatal(err)
	}
	if err := m.Unload(); err != nil {
		t.Fatal(err)
	}
	return all
}

func names(tables []table) (list []string) {
	for _, t := range tables {
		list = append(list, t.name)
	}
	return list
}

// try compares launches of a generated kernel from its module and from one of its own.
func try(t testing.TB, ctx gpu.Context, bound *boundContext, data []byte) {
	t.Helper()
	src, tables := generate(data)
	seed := uint64(len(data))
	want := outcome(t, ctx, src, tables, seed)
	if got := outcome(t, bound, src, tables, seed); !bytes.Equal(got, want) {
		t.Fatalf("the variables are not as after launches from the original:\n%s", src)
	}
	if len(bound.reasons) > 0 {
		t.Fatalf("refused: %v\n%s", bound.reasons, src)
	}
}

func input(seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, 80+rng.IntN(100))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// TestGenerated compares generated kernels' launches, each of which has to be bound.
func TestGenerated(t *testing.T) {
	ctx, bound := newContext(t)
	for seed := range uint64(150) {
		try(t, ctx, bound, input(seed))
	}
	if bound.bound != 150 {
		t.Errorf("%d kernels bound", bound.bound)
	}
}

// FuzzGenerated is TestGenerated for any input.
func FuzzGenerated(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(input(seed))
	}
	ctx, bound := newContext(f)
	f.Fuzz(func(t *testing.T, data []byte) { try(t, ctx, bound, data[:min(len(data), 400)]) })
}
