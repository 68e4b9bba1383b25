package flow

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"vgpud/ptx"
)

// kernel returns the graph of a kernel with parameter n and registers r0 … r9, p0 … p9.
func kernel(t fataler, body string) *Graph {
	t.Helper()
	src := ".version 9.0\n.target sm_90\n.address_size 64\n.const .b32 c[4];\n.global .b32 g;\n" +
		".func (.param .b32 v) help(.param .b32 a);\n" +
		".entry k(.param .b32 n) {\n.reg .b32 r<10>; .reg .b64 rd; .reg .pred p<10>;\n" + body + "\n}\n"
	m, err := ptx.Parse(src)
	if err != nil {
		t.Fatalf("%v\n%s", err, src)
	}
	p, err := ptx.Resolve(m)
	if err != nil {
		t.Fatalf("%v\n%s", err, src)
	}
	g, err := Build(p.Code("k"))
	if err != nil {
		t.Fatalf("%v\n%s", err, src)
	}
	return g
}

// divergence returns the registers that are divergent, the blocks at which threads may have
// diverged, and the blocks whose branch may make them diverge.
func divergence(g *Graph) string {
	u := g.Uniformity()
	var regs, apart, branches []string
	for _, s := range g.Code.Regs {
		if !u.Uniform(s) {
			regs = append(regs, s.Name)
		}
	}
	slices.Sort(regs)
	for b := range g.Blocks {
		if !u.Convergent(b) {
			apart = append(apart, fmt.Sprint(b))
		}
		if !u.Branch(b) {
			branches = append(branches, fmt.Sprint(b))
		}
	}
	return strings.Join(regs, " ") + "; " + strings.Join(apart, " ") + "; " + strings.Join(branches, " ")
}

func TestUniformity(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"parameters, constants, block index",
			"ld.param.b32 r0, [n]; mov.b32 r1, %ctaid.x; mad.lo.u32 r2, r0, r1, 3; mov.b64 rd, c; ld.const.b32 r3, [rd+4]; mov.b32 r4, WARP_SZ; mov.b32 r5, %ntid.y; ret;",
			"; ; "},
		{"thread index, lanes, clocks",
			"mov.b32 r0, %tid.x; add.u32 r1, r0, 1; mov.b32 r2, %laneid; mov.b32 r3, %clock; mov.b32 r4, %smid; ret;",
			"r0 r1 r2 r3 r4; ; "},
		{"loads and atomics",
			"mov.b64 rd, g; ld.global.b32 r0, [rd]; atom.global.add.u32 r1, [rd], r5; ld.shared.b32 r2, [rd]; ld.b32 r3, [rd]; ret;",
			"r0 r1 r2 r3; ; "},
		{"loads from constants at differing places", "mov.b32 r0, %tid.x; ld.const.b32 r1, [r0]; ret;", "r0 r1; ; "},
		{"warp exchanges",
			"shfl.sync.idx.b32 r0|p0, r5, 0, 31, -1; vote.sync.all.pred p1, p5, -1; activemask.b32 r1; ret;",
			"p0 p1 r0 r1; ; "},
		{"a reduction over the block is the same for all",
			"mov.b32 r0, %tid.x; setp.eq.u32 p0, r0, 0; bar.red.or.pred p1, 0, p0; @p1 ret; bar.sync 0; ret;",
			"p0 r0; ; "},
		{"one over part of the block is not", "bar.red.or.pred p1, 0, 64, p0; ret;", "p1; ; "},
		{"early return of some threads",
			"mov.b32 r0, %tid.x; setp.ge.u32 p0, r0, 7; @p0 ret; mov.b32 r1, 1; bar.sync 0; ret;",
			"p0 r0 r1; 1; 0"},
		{"early return of the whole block",
			"mov.b32 r0, %ctaid.x; setp.ge.u32 p0, r0, 7; @p0 ret; mov.b32 r1, 1; bar.sync 0; ret;",
			"; ; "},
		{"what meets again differs",
			"mov.b32 r0, %tid.x; setp.ge.u32 p0, r0, 7; mov.b32 r1, 0; @p0 bra J; mov.b32 r1, 1; J: mov.b32 r2, 5; mov.b32 r3, r1; ret;",
			"p0 r0 r1 r3; 1; 0"},
		{"a branch within a parted block parts too",
			"mov.b32 r0, %tid.x; setp.ge.u32 p0, r0, 7; ld.param.b32 r1, [n]; setp.eq.u32 p1, r1, 0; @p0 bra J; @p1 bra J; mov.b32 r2, 1; J: ret;",
			"p0 r0 r2; 1 2; 0"},
		{"loop over a parameter",
			"ld.param.b32 r0, [n]; mov.b32 r1, 0; L: bar.sync 0; add.u32 r1, r1, 1; setp.lt.u32 p0, r1, r0; @p0 bra L; mov.b32 r2, r1; ret;",
			"; ; "},
		{"loop over a thread's own bound",
			"mov.b32 r0, %tid.x; mov.b32 r1, 0; L: add.u32 r1, r1, 1; setp.lt.u32 p0, r1, r0; @p0 bra L; mov.b32 r2, r1; mov.b32 r3, 0; ret;",
			"p0 r0 r1 r2; 1; 1"},
		{"a guarded move chooses", "mov.b32 r0, %tid.x; setp.ne.u32 p0, r0, 0; mov.b32 r1, 1; @p0 mov.b32 r1, 2; ret;", "p0 r0 r1; ; "},
		{"carry", "mov.b32 r0, %tid.x; add.cc.u32 r1, r0, r0; addc.u32 r2, 0, 0; ret;", "r0 r1 r2; ; "},
		{"switch", "mov.b32 r0, %tid.x; ts: .branchtargets A, B; brx.idx r0, ts; A: mov.b32 r1, 1; B: ret;", "r0 r1; 1; 0"},
		{"uniform switch", "mov.b32 r0, %ctaid.x; ts: .branchtargets A, B; brx.idx r0, ts; A: mov.b32 r1, 1; B: ret;", "; ; "},
		{"calls", "{ .param .b32 v; .param .b32 a; call (v), help, (a); ld.param.b32 r0, [v]; } ret;", "r0; ; "},
		{"unknown instruction", "mov.b32 r0, 1; mov.b32 r1, 2; frobnicate.b32 r2, r0, [r1]; ret;", "r0 r2; ; "},
		{"vectors and pairs", "mov.b32 r0, %tid.x; mov.b64 rd, {r1, r0}; mov.b64 {r2, _}, rd; setp.eq.u32 p0|p1, r2, 0; ret;", "p0 p1 r0 r2 rd; ; "},
		{"endless loop", "mov.b32 r0, %tid.x; setp.eq.u32 p0, r0, 0; @p0 bra L; ret; L: mov.b32 r1, 0; bra L;", "p0 r0 r1; 1 2; 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(c.want, divergence(kernel(t, c.body))); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

func TestDeviceFunctionsKnowNothingOfTheirParameters(t *testing.T) {
	m, err := ptx.Parse(".version 9.0\n.target sm_90\n.func f(.reg .b32 a, .param .b32 b) { .reg .b32 r, s; mov.b32 r, a; ld.param.b32 s, [b]; ret; }")
	if err != nil {
		t.Fatal(err)
	}
	p, err := ptx.Resolve(m)
	if err != nil {
		t.Fatal(err)
	}
	g, err := Build(p.Codes[0])
	if err != nil {
		t.Fatal(err)
	}
	if got, want := divergence(g), "a r s; ; "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// randomKernel returns a program over r0 … r3 and p0, p1 that each thread can run by itself.
func randomKernel(t *rapid.T) string {
	n := rapid.IntRange(2, 16).Draw(t, "instructions")
	reg := rapid.IntRange(0, 3)
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "L%d: ", i)
		if rapid.IntRange(0, 3).Draw(t, "guarded") == 0 {
			fmt.Fprintf(&b, "@p%d ", rapid.IntRange(0, 1).Draw(t, "guard"))
		}
		switch rapid.IntRange(0, 7).Draw(t, "kind") {
		case 0:
			fmt.Fprintf(&b, "mov.b32 r%d, %%tid.x;", reg.Draw(t, "d"))
		case 1:
			fmt.Fprintf(&b, "mov.b32 r%d, %d;", reg.Draw(t, "d"), rapid.IntRange(0, 3).Draw(t, "c"))
		case 2, 3:
			fmt.Fprintf(&b, "add.u32 r%d, r%d, r%d;", reg.Draw(t, "d"), reg.Draw(t, "a"), reg.Draw(t, "b"))
		case 4:
			fmt.Fprintf(&b, "setp.lt.u32 p%d, r%d, r%d;", rapid.IntRange(0, 1).Draw(t, "d"), reg.Draw(t, "a"), reg.Draw(t, "b"))
		case 5:
			b.WriteString("ret;")
		default:
			fmt.Fprintf(&b, "bra L%d;", rapid.IntRange(0, n).Draw(t, "to"))
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "L%d:\n", n)
	return b.String()
}

// visit is one execution of an instruction by a thread, with the values of all registers before it.
type visit struct {
	instr int
	regs  []uint32
}

// execute runs one thread of a random kernel for at most limit steps; ended is false if it was cut
// off.
func execute(g *Graph, tid uint32, limit int) (trace []visit, ended bool) {
	regs := make([]uint32, len(g.Code.Regs))
	value := func(o *ptx.Operand) uint32 {
		switch {
		case o.Kind == ptx.KindImm:
			return uint32(o.Bits)
		case o.Sym.Kind == ptx.SymSpecial:
			return tid
		}
		return regs[o.Sym.Index]
	}
	for pc := 0; pc < len(g.Code.Instrs); {
		if len(trace) == limit {
			return trace, false
		}
		in := g.Code.Instrs[pc]
		trace = append(trace, visit{pc, slices.Clone(regs)})
		pc++
		if in.Guarded() && regs[in.Pred.Sym.Index] == 0 {
			continue
		}
		switch in.Opcode {
		case "mov":
			regs[in.Operands[0].Sym.Index] = value(&in.Operands[1])
		case "add":
			regs[in.Operands[0].Sym.Index] = value(&in.Operands[1]) + value(&in.Operands[2])
		case "setp":
			regs[in.Operands[0].Sym.Index] = 0
			if value(&in.Operands[1]) < value(&in.Operands[2]) {
				regs[in.Operands[0].Sym.Index] = 1
			}
		case "bra":
			pc = in.Operands[0].Sym.Index
		case "ret":
			return trace, true
		}
	}
	return trace, true
}

// TestUniformityHolds runs several threads of random kernels and compares their executions with all
// claims: a block that threads execute together is executed equally often by each, and what is
// uniform there is equal each time.
func TestUniformityHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := kernel(t, randomKernel(t))
		u := g.Uniformity()
		const threads, limit = 4, 200
		visits := make([][][]visit, threads) // by thread and block
		allEnded := true
		for tid := range threads {
			trace, ended := execute(g, uint32(tid), limit)
			allEnded = allEnded && ended
			visits[tid] = make([][]visit, len(g.Blocks))
			for _, v := range trace {
				b := g.BlockOf(v.instr)
				if v.instr == g.Blocks[b].End-1 { // enough to see what the branch sees
					visits[tid][b] = append(visits[tid][b], v)
				}
			}
		}
		for b := range g.Blocks {
			if !u.Convergent(b) {
				continue
			}
			for tid := 1; tid < threads; tid++ {
				mine, first := visits[tid][b], visits[0][b]
				if allEnded && len(mine) != len(first) {
					t.Fatalf("block %d: thread %d passes %d times, thread 0 %d times", b, tid, len(mine), len(first))
				}
				for k := range min(len(mine), len(first)) {
					for _, s := range g.Code.Regs {
						if u.Uniform(s) && mine[k].regs[s.Index] != first[k].regs[s.Index] {
							t.Fatalf("block %d, visit %d: %s is %d in thread %d, %d in thread 0", b, k, s.Name,
								mine[k].regs[s.Index], tid, first[k].regs[s.Index])
						}
					}
				}
			}
		}
	})
}
