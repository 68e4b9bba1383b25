package hard

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"vgpud/gpu/corpus"
)

// Input is the input of [Generate] for a seed.
func Input(seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 0x9e3779b9))
	b := make([]byte, 20+rng.IntN(280))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// gen generates a kernel from the bytes of an input. For any input the kernel is valid PTX, ends,
// and leaves memory that does not depend on the order of threads: barriers are where all threads
// that have not returned arrive, and shared data is read between two of them. So a difference
// between the kernel and its preemptible forms is an error of the transformation.
type gen struct {
	data       []byte
	text       strings.Builder
	labels     int
	stmts      int // number so far
	sites      int // shared arrays
	broadcasts int // number of words that one thread writes for the others
	funcs      int
	loops      int // nesting depth of loops
	// Statements that exclude looping forms are not in every kernel, or no other form would be
	// tested.
	votes, named, counted bool

	grid, block [3]uint32
	threads     uint32
}

// draw takes a number below n from the input, or 0 when the input is used up.
func (g *gen) draw(n int) int {
	if len(g.data) == 0 {
		return 0
	}
	v := int(g.data[0])
	g.data = g.data[1:]
	return v % n
}

func (g *gen) emit(format string, args ...any) { fmt.Fprintf(&g.text, "\t"+format+"\n", args...) }

func (g *gen) label() string {
	g.labels++
	return fmt.Sprintf("L%d", g.labels)
}

const (
	genValues  = 6 // registers that statements compute with, %v0 and so on
	genSites   = 4 // shared arrays
	genFuncs   = 3
	genStmts   = 40
	genThreads = 96
)

// Generate generates the kernel for data. It returns the module, whose kernel is called k, and its
// case.
func Generate(data []byte) (string, *corpus.Case) {
	g := &gen{data: data}
	g.grid = [3]uint32{uint32(1 + g.draw(9)), uint32(1 + g.draw(3)), uint32(1 + g.draw(2))}
	g.block = [3]uint32{uint32(1 + g.draw(genThreads/2)), uint32(1 + g.draw(2)), 1}
	g.threads = g.block[0] * g.block[1]
	g.funcs = g.draw(genFuncs + 1)
	g.votes, g.named, g.counted = g.draw(4) == 1, g.draw(4) == 1, g.draw(3) == 1
	g.text.WriteString(".version 8.0\n.target sm_90\n.address_size 64\n.global .align 4 .u32 totals[4];\n")
	g.text.WriteString(".func meet { bar.sync 0; ret; }\n")
	for f := g.funcs - 1; f >= 0; f-- { // a function calls functions with higher numbers, which are defined before it
		g.function(f)
	}
	g.kernel()
	c := &corpus.Case{
		Kernel: "generated",
		Buffers: []corpus.Buffer{
			{Name: "out", Mode: corpus.Scratch, Elem: corpus.U32, Size: bufferBytes, Init: make([]byte, bufferBytes)},
			{Name: "in", Mode: corpus.In, Elem: corpus.U32, Size: bufferBytes, Init: input()},
			{Name: "totals", Mode: corpus.Scratch, Elem: corpus.U32, Size: 16, Global: "totals"},
		},
		Steps: []corpus.Launch{{Entry: "k", Grid: g.grid, Block: g.block, Args: []corpus.Arg{{Buffer: "out"}, {Buffer: "in"}}}},
	}
	return g.text.String(), c
}

// function writes device function f, which may use the block's index.
func (g *gen) function(f int) {
	g.text.WriteString(fmt.Sprintf(".func (.param .b32 y) f%d(.param .b32 x)\n{\n", f))
	g.emit(".reg .b32 %%r<8>; .reg .pred %%p<2>;")
	g.emit("ld.param.u32 %%r1, [x];")
	for range g.draw(3) {
		special := []string{"%ctaid.x", "%ctaid.y", "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z", "%ntid.x", "%tid.x"}[g.draw(8)]
		g.emit("mov.u32 %%r2, %s;", special)
		g.emit("mad.lo.u32 %%r1, %%r1, 5, %%r2;")
	}
	if f+1 < g.funcs && g.draw(2) == 1 {
		skip := g.label()
		if g.draw(2) == 1 {
			g.emit("and.b32 %%r3, %%r1, 2; setp.eq.u32 %%p1, %%r3, 0; @%%p1 bra %s;", skip)
		}
		g.emit("{ .param .b32 a; .param .b32 b; st.param.b32 [a], %%r1; call (b), f%d, (a); ld.param.b32 %%r1, [b]; }", f+1)
		g.text.WriteString(skip + ":\n")
	}
	if g.draw(4) == 1 {
		g.emit("and.b32 %%r3, %%r1, 1; setp.eq.u32 %%p1, %%r3, 0; st.param.b32 [y], %%r3; @%%p1 ret;")
	}
	g.emit("st.param.b32 [y], %%r1;")
	g.emit("ret;")
	g.text.WriteString("}\n")
}

func (g *gen) kernel() {
	g.text.WriteString(".visible .entry k(.param .u64 out, .param .u64 in)\n{\n")
	g.emit(".reg .b32 %%v<%d>, %%t<12>; .reg .pred %%p<4>; .reg .b64 %%a<8>;", genValues)
	for i := range genSites {
		g.emit(".shared .align 4 .b8 slots%d[%d];", i, 4*g.threads)
	}
	g.emit(".shared .align 4 .b8 broadcast[%d];", 4*genSites)
	g.emit(".shared .align 4 .u32 sum;")
	g.emit(".local .align 4 .b8 own[16];")
	g.emit("mov.u32 %%t1, %%tid.y; mov.u32 %%t2, %%ntid.x; mov.u32 %%t3, %%tid.x; mad.lo.u32 %%t1, %%t1, %%t2, %%t3;") // t1: thread
	g.emit("mov.u32 %%t4, %%ctaid.z; mov.u32 %%t5, %%nctaid.y; mov.u32 %%t6, %%ctaid.y; mad.lo.u32 %%t4, %%t4, %%t5, %%t6;")
	g.emit("mov.u32 %%t5, %%nctaid.x; mov.u32 %%t6, %%ctaid.x; mad.lo.u32 %%t4, %%t4, %%t5, %%t6;")
	g.emit("mad.lo.u32 %%t2, %%t4, %d, %%t1;", g.threads) // t2: of all
	g.emit("mul.wide.u32 %%a1, %%t2, 4; ld.param.u64 %%a2, [in]; add.s64 %%a2, %%a2, %%a1; ld.global.u32 %%v0, [%%a2];")
	g.emit("ld.param.u64 %%a3, [out]; add.s64 %%a3, %%a3, %%a1;")
	g.emit("mov.u32 %%v1, %%t6; mov.u32 %%v2, %%t1; mov.u32 %%v3, %%t5; mov.u32 %%v4, %%t4; mov.u32 %%v5, 77;")
	g.emit("shl.b32 %%t3, %%t1, 2;") // t3: this thread's slot
	for i := range genSites {
		g.emit("mov.u32 %%t4, slots%d; add.u32 %%t4, %%t4, %%t3; st.shared.u32 [%%t4], %%t2;", i)
	}
	g.emit("setp.eq.u32 %%p3, %%t1, 0;")
	for i := range genSites {
		g.emit("@%%p3 st.shared.u32 [broadcast+%d], %%t2;", 4*i)
	}
	for i := range 4 {
		g.emit("st.local.u32 [own+%d], %%t2;", 4*i)
	}
	g.emit("bar.sync 0;")
	if g.counted {
		g.emit(".reg .b32 %%c<3>; mov.u32 %%c1, %d;", (g.threads+31)/32*32)
	}
	g.body(3, true)
	g.result()
	g.emit("ret;")
	g.text.WriteString("}\n")
}

// result stores what the thread has computed so far.
func (g *gen) result() {
	g.emit("mov.u32 %%t4, 0;")
	for i := range genValues {
		g.emit("mad.lo.u32 %%t4, %%t4, 31, %%v%d;", i)
	}
	g.emit("red.global.add.u32 [%%a3], %%t4;") // reveals a task that runs twice
}

// body writes some statements. together means that all threads that have not returned are here.
func (g *gen) body(depth int, together bool) {
	for range 2 + g.draw(6) {
		if g.stmts++; g.stmts > genStmts {
			return
		}
		g.stmt(depth, together)
	}
}

func (g *gen) value() string { return fmt.Sprintf("%%v%d", g.draw(genValues)) }

// varied sets %p1 depending on a thread's own values; alike depends on values that are equal in the
// block.
func (g *gen) varied() {
	g.emit("and.b32 %%t4, %s, %d; setp.%s.u32 %%p1, %%t4, %d;", g.value(), []int{1, 3, 7, 64}[g.draw(4)],
		[]string{"eq", "ne", "lt", "ge"}[g.draw(4)], g.draw(5))
}

func (g *gen) alike() {
	source := []string{"%ctaid.x", "%ctaid.y", "%ntid.x", "%nctaid.x"}[g.draw(4)]
	g.emit("mov.u32 %%t4, %s; and.b32 %%t4, %%t4, %d; setp.%s.u32 %%p1, %%t4, %d;", source, 1+g.draw(3),
		[]string{"eq", "ne"}[g.draw(2)], g.draw(3))
}

// agreed sets %p1 to a value that is equal in the block, possibly computed by one thread and passed
// through shared memory.
func (g *gen) agreed(together bool) {
	if !together || g.draw(2) == 0 {
		g.alike()
		return
	}
	site := g.broadcasts % genSites
	if g.loops > 0 || g.broadcasts >= genSites {
		g.emit("bar.sync 0;")
	}
	g.broadcasts++
	g.emit("setp.eq.u32 %%p3, %%t1, 0; @%%p3 st.shared.u32 [broadcast+%d], %s;", 4*site, g.value())
	g.emit("bar.sync 0;")
	g.emit("ld.shared.u32 %%t4, [broadcast+%d]; and.b32 %%t4, %%t4, %d; setp.%s.u32 %%p1, %%t4, %d;", 4*site, 1+g.draw(3),
		[]string{"eq", "ne"}[g.draw(2)], g.draw(3))
}

func (g *gen) stmt(depth int, together bool) {
	kind := g.draw(18 + moreKinds)
	if depth == 0 && kind >= 2 && kind <= 5 {
		kind = 0
	}
	if kind >= 18 {
		g.more(kind-18, depth, together)
		return
	}
	if !together && kind >= 10 {
		kind -= 10
		if kind >= 2 && kind <= 5 {
			kind = 1
		}
	}
	switch kind {
	case 0:
		op := []string{"add.u32", "sub.u32", "xor.b32", "mul.lo.u32", "max.u32", "and.b32"}[g.draw(6)]
		g.emit("%s %s, %s, %s;", op, g.value(), g.value(), g.value())
	case 1:
		g.emit("mad.lo.u32 %s, %s, %d, %s;", g.value(), g.value(), 3+g.draw(100), g.value())
	case 2, 3: // if
		within := together
		if kind == 2 {
			g.varied()
			within = false
		} else {
			g.agreed(together)
		}
		other, end := g.label(), g.label()
		g.emit("@%%p1 bra %s;", other)
		g.body(depth-1, within)
		g.emit("bra %s;", end)
		g.text.WriteString(other + ":\n")
		if g.draw(2) == 1 {
			g.body(depth-1, within)
		}
		g.text.WriteString(end + ":\n")
	case 4, 5: // loop
		g.loop(depth, together && kind == 4)
	case 6: // some return
		g.varied()
		g.leave(false)
	case 7:
		g.emit("mov.u64 %%a4, totals; red.global.add.u32 [%%a4+%d], %s;", 4*g.draw(4), g.value())
	case 8:
		if g.funcs > 0 {
			g.emit("{ .param .b32 a; .param .b32 b; st.param.b32 [a], %s; call (b), f%d, (a); ld.param.b32 %s, [b]; }", g.value(), g.draw(g.funcs), g.value())
		}
	case 9:
		g.emit("and.b32 %%t4, %s, 3; mul.wide.u32 %%a5, %%t4, 4; mov.u64 %%a6, own; add.s64 %%a6, %%a6, %%a5;", g.value())
		g.emit("st.local.u32 [%%a6], %s; ld.local.u32 %s, [own+%d];", g.value(), g.value(), 4*g.draw(4))
	case 10, 11, 12:
		g.exchange()
	case 13:
		if !g.named {
			g.exchange()
			return
		}
		g.varied()
		v := g.value()
		switch g.draw(3) {
		case 0:
			g.emit("bar.red.popc.u32 %s, 0, %%p1;", v)
		case 1:
			g.emit("bar.red.or.pred %%p2, 0, %%p1; selp.u32 %s, %d, %s, %%p2;", v, g.draw(9), v)
		case 2:
			g.emit("barrier.red.and.pred %%p2, 0, !%%p1; selp.u32 %s, %d, %s, %%p2;", v, g.draw(9), v)
		}
	case 14:
		number := 0
		if g.named {
			number = g.draw(wholeNumbers)
		}
		g.emit("%s %d;", []string{"bar.sync", "barrier.sync", "barrier.cta.sync"}[g.draw(3)], number)
	case 15: // the whole block returns
		g.agreed(together)
		g.leave(true)
	case 16:
		if !g.votes {
			g.exchange()
			return
		}
		g.varied()
		v := g.value()
		g.emit("vote.sync.ballot.b32 %%t4, %%p1, -1; xor.b32 %s, %s, %%t4;", v, v)
	case 17:
		if !g.counted {
			g.exchange()
			return
		}
		g.count()
	}
}

// leave makes the threads with %p1 return, all or some of the block. If barriers have a thread
// count, which counts warps with remaining lanes, the first lane of each warp stays.
func (g *gen) leave(whole bool) {
	if g.counted && !whole {
		g.emit("and.b32 %%t4, %%t1, 31; setp.ne.and.u32 %%p1, %%t4, 0, %%p1;")
	}
	switch g.draw(3) {
	case 0:
		g.emit("@%%p1 %s;", []string{"ret", "exit"}[g.draw(2)])
	case 1:
		stay := g.label()
		g.emit("@!%%p1 bra %s;", stay)
		g.result()
		g.emit("ret;")
		g.text.WriteString(stay + ":\n")
	case 2:
		stay := g.label()
		g.emit("@!%%p1 bra %s; { .reg .b32 %%v0; mov.u32 %%v0, 3; exit; }", stay)
		g.text.WriteString(stay + ":\n")
	}
}

// loop writes a loop of a few iterations. Unless together is true, each thread has its own number
// of iterations.
func (g *gen) loop(depth int, together bool) {
	g.loops++
	defer func() { g.loops-- }()
	counter, head := fmt.Sprintf("%%i%d", g.labels), g.label()
	g.emit("{ .reg .b32 %s; .reg .pred %%more;", counter)
	if together {
		g.emit("mov.u32 %s, %d;", counter, 1+g.draw(3))
	} else {
		g.emit("and.b32 %s, %s, 3;", counter, g.value())
	}
	g.text.WriteString(head + ":\n")
	g.body(depth-1, together)
	if together && g.draw(3) == 1 { // threads return from inside the loop
		g.varied()
		g.leave(false)
	}
	g.emit("setp.gt.s32 %%more, %s, 0; sub.u32 %s, %s, 1; @%%more bra %s; }", counter, counter, counter, head)
}

// exchange passes a value to another thread through shared memory. In a loop the array is used
// again, so there is a second barrier.
func (g *gen) exchange() { g.exchangeBy("bar.sync 0;", g.threads) }

// exchangeBy passes values among the first threads of the block, which synchronize with a barrier
// of their own.
func (g *gen) exchangeBy(barrier string, threads uint32) {
	site := g.sites % genSites
	again := g.loops > 0 || g.sites >= genSites
	g.sites++
	if again {
		g.emit("%s", barrier)
	}
	g.emit("mov.u32 %%t4, slots%d; add.u32 %%t5, %%t4, %%t3; st.shared.u32 [%%t5], %s;", site, g.value())
	g.emit("%s", barrier)
	g.emit("mad.lo.u32 %%t6, %%t1, %d, %d; rem.u32 %%t6, %%t6, %d; shl.b32 %%t6, %%t6, 2; add.u32 %%t6, %%t6, %%t4; ld.shared.u32 %s, [%%t6];",
		1+g.draw(9), g.draw(100), threads, g.value())
	if again {
		g.emit("%s", barrier)
	}
}

// Numbers of barriers: those of the whole block, followed by those of some of its warps.
const (
	wholeNumbers = 8
	allNumbers   = 16
)

// count writes statements with thread counts at barriers. %c1 is the count of the warps with
// remaining lanes.
func (g *gen) count() {
	number := 1 + g.draw(wholeNumbers-1)
	switch g.draw(4) {
	case 0: // threads beyond a block-dependent number return, as at the end of an array
		source := []string{"%ctaid.x", "%ctaid.y", "%nctaid.x"}[g.draw(3)]
		g.emit("mov.u32 %%t4, %s; and.b32 %%t4, %%t4, %d; mad.lo.u32 %%t4, %%t4, %d, %d;", source, 1+g.draw(3), 1+g.draw(20), 1+g.draw(int(g.threads)))
		g.emit("setp.ge.u32 %%p1, %%t1, %%t4; add.u32 %%t4, %%t4, 31; and.b32 %%t4, %%t4, -32; min.u32 %%c1, %%c1, %%t4; @%%p1 ret;")
		g.exchangeBy(fmt.Sprintf("bar.sync %d, %%c1;", number), g.threads)
	case 1:
		g.exchangeBy(fmt.Sprintf("%s %d, %%c1;", []string{"bar.sync", "barrier.sync", "barrier.cta.sync.aligned"}[g.draw(3)], number), g.threads)
	case 2:
		g.varied()
		v := g.value()
		if g.draw(2) == 0 {
			g.emit("bar.red.popc.u32 %s, %d, %%c1, %%p1;", v, number)
		} else {
			g.emit("barrier.red.or.pred %%p2, %d, %%c1, %%p1; selp.u32 %s, %d, %s, %%p2;", number, v, g.draw(9), v)
		}
	case 3: // only the first warps; the others may be far ahead, up to the next barrier of all
		g.emit("bar.sync 0;")
		past, threads := g.label(), min(32*uint32(1+g.draw(2)), g.threads)
		g.emit("min.u32 %%c2, %%c1, %d; setp.ge.u32 %%p1, %%t1, %%c2; @%%p1 bra %s;", (threads+31)/32*32, past)
		g.exchangeBy(fmt.Sprintf("bar.sync %d, %%c2;", wholeNumbers+g.draw(allNumbers-wholeNumbers)), threads)
		g.text.WriteString(past + ":\n")
		if g.draw(2) == 1 {
			g.emit("bar.sync 0;")
		}
	}
}
