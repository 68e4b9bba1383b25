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

// build returns the graph of a function with the given body.
func build(t fataler, body string) *Graph {
	t.Helper()
	src := ".version 9.0\n.target sm_90\n.address_size 64\n" +
		".extern .func die() .noreturn;\n.extern .func help();\n.func f() {\n" +
		".reg .pred p, q; .reg .b32 r;\n" + body + "\n}\n"
	m, err := ptx.Parse(src)
	if err != nil {
		t.Fatalf("%v\n%s", err, src)
	}
	p, err := ptx.Resolve(m)
	if err != nil {
		t.Fatalf("%v\n%s", err, src)
	}
	g, err := Build(p.Codes[0])
	if err != nil {
		t.Fatalf("%v\n%s", err, src)
	}
	return g
}

// describe describes a graph in one line per block: its instructions, successors, dominators and
// loop.
func describe(g *Graph) string {
	name := func(b int) string {
		switch b {
		case Exit:
			return "exit"
		case None:
			return "-"
		}
		return fmt.Sprint(b)
	}
	var out strings.Builder
	for b, blk := range g.Blocks {
		var succs []string
		for _, s := range blk.Succs {
			succs = append(succs, name(s))
		}
		fmt.Fprintf(&out, "%d [%d,%d) to %s idom %s ipdom %s", b, blk.First, blk.End, strings.Join(succs, " "), name(blk.Idom), name(blk.Ipdom))
		if blk.Loop != None {
			fmt.Fprintf(&out, " loop %d", g.Loops[blk.Loop].Header)
		}
		out.WriteByte('\n')
	}
	return out.String()
}

func TestGraphs(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"straight", "mov.b32 r, 1; ret;", `
0 [0,2) to exit idom - ipdom exit
`},
		{"off the end", "mov.b32 r, 1; call help;", `
0 [0,2) to exit idom - ipdom exit
`},
		{"diamond", "@p bra E; mov.b32 r, 1; bra J; E: mov.b32 r, 2; J: ret;", `
0 [0,1) to 2 1 idom - ipdom 3
1 [1,3) to 3 idom 0 ipdom 3
2 [3,4) to 3 idom 0 ipdom 3
3 [4,5) to exit idom 0 ipdom exit
`},
		{"early return", "@p ret; mov.b32 r, 1; ret;", `
0 [0,1) to exit 1 idom - ipdom exit
1 [1,3) to exit idom 0 ipdom exit
`},
		{"guarded trap and exit", "@p trap; @!p exit; ret;", `
0 [0,1) to exit 1 idom - ipdom exit
1 [1,2) to exit 2 idom 0 ipdom exit
2 [2,3) to exit idom 1 ipdom exit
`},
		{"loop", "mov.b32 r, 0; L: add.u32 r, r, 1; @p bra L; ret;", `
0 [0,1) to 1 idom - ipdom 1
1 [1,3) to 1 2 idom 0 ipdom 2 loop 1
2 [3,4) to exit idom 1 ipdom exit
`},
		{"nested loops", "A: mov.b32 r, 0; B: add.u32 r, r, 1; @p bra B; @q bra A; ret;", `
0 [0,1) to 1 idom - ipdom 1 loop 0
1 [1,3) to 1 2 idom 0 ipdom 2 loop 1
2 [3,4) to 0 3 idom 1 ipdom 3 loop 0
3 [4,5) to exit idom 2 ipdom exit
`},
		{"endless loop", "@p bra L; ret; L: mov.b32 r, 0; bra L;", `
0 [0,1) to 2 1 idom - ipdom exit
1 [1,2) to exit idom 0 ipdom exit
2 [2,4) to 2 idom 0 ipdom exit loop 2
`},
		{"nothing but an endless loop", "L: @p bra M; mov.b32 r, 0; M: bra L;", `
0 [0,1) to 2 1 idom - ipdom 2 loop 0
1 [1,2) to 2 idom 0 ipdom 2 loop 0
2 [2,3) to 0 idom 0 ipdom exit loop 0
`},
		{"an endless loop that continues in two places", "H: @p bra B; @q bra C; mov.b32 r, 0; C: bra H; B: bra H;", `
0 [0,1) to 4 1 idom - ipdom exit loop 0
1 [1,2) to 3 2 idom 0 ipdom 3 loop 0
2 [2,3) to 3 idom 1 ipdom 3 loop 0
3 [3,4) to 0 idom 1 ipdom 0 loop 0
4 [4,5) to 0 idom 0 ipdom 0 loop 0
`},
		{"switch", "ts: .branchtargets A, B, A; brx.idx r, ts; A: mov.b32 r, 1; B: ret;", `
0 [0,1) to 1 2 idom - ipdom 2
1 [1,2) to 2 idom 0 ipdom 2
2 [2,3) to exit idom 0 ipdom exit
`},
		{"guarded switch", "ts: .branchtargets A, B; @p brx.idx r, ts; exit; A: mov.b32 r, 1; B: ret;", `
0 [0,1) to 2 3 1 idom - ipdom exit
1 [1,2) to exit idom 0 ipdom exit
2 [2,3) to 3 idom 0 ipdom 3
3 [3,4) to exit idom 0 ipdom exit
`},
		{"branch to the end", "@p bra E; call help; E:", `
0 [0,1) to exit 1 idom - ipdom exit
1 [1,2) to exit idom 0 ipdom exit
`},
		{"branch to the next instruction", "@p bra E; E: ret;", `
0 [0,1) to 1 idom - ipdom 1
1 [1,2) to exit idom 0 ipdom exit
`},
		{"unreachable", "bra E; U: mov.b32 r, 1; @p bra U; E: ret;", `
0 [0,1) to 2 idom - ipdom 2
1 [1,3) to 1 2 idom - ipdom -
2 [3,4) to exit idom 0 ipdom exit
`},
		{"a call that never returns", "@p bra D; ret; D: call die; mov.b32 r, 1; ret;", `
0 [0,1) to 2 1 idom - ipdom exit
1 [1,2) to exit idom 0 ipdom exit
2 [2,3) to exit idom 0 ipdom exit
3 [3,5) to exit idom - ipdom -
`},
		{"empty", "", "\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(strings.TrimPrefix(c.want, "\n"), describe(build(t, c.body))); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

func TestReconvergenceAndIrreducible(t *testing.T) {
	g := build(t, "@p bra E; mov.b32 r, 1; bra J; E: @q ret; J: ret;")
	for b, want := range []int{5, 4, 5, 5} {
		if got := g.Reconvergence(b); got != want {
			t.Errorf("block %d meets again at instruction %d, want %d", b, got, want)
		}
	}
	if !g.Reducible {
		t.Error("a graph without cycles is not reducible")
	}
	g = build(t, "@p bra B; A: mov.b32 r, 1; B: @q bra A; ret;")
	if g.Reducible || len(g.Loops) != 0 {
		t.Errorf("a cycle with two entries: reducible %v, loops %v", g.Reducible, g.Loops)
	}
}

func TestBuildErrors(t *testing.T) {
	for _, body := range []string{"bra f;", "brx.idx r, f;", "brx.idx r;", "bra r;"} {
		m, err := ptx.Parse(".version 9.0\n.target sm_90\n.func f() { .reg .b32 r; " + body + " }")
		if err != nil {
			t.Fatal(err)
		}
		p, err := ptx.Resolve(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Build(p.Codes[0]); err == nil || !strings.Contains(err.Error(), "line 3") {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// randomBody returns a function in which every instruction may branch anywhere.
func randomBody(t *rapid.T) string {
	n := rapid.IntRange(1, 14).Draw(t, "instructions")
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "L%d: ", i)
		to := rapid.IntRange(0, n).Draw(t, "target")
		switch rapid.IntRange(0, 8).Draw(t, "kind") {
		case 0:
			b.WriteString("ret;")
		case 1:
			b.WriteString("@p exit;")
		case 2, 3:
			fmt.Fprintf(&b, "bra L%d;", to)
		case 4, 5:
			fmt.Fprintf(&b, "@p bra L%d;", to)
		case 6:
			fmt.Fprintf(&b, "t%d: .branchtargets L%d, L%d; brx.idx r, t%d;", i, to, rapid.IntRange(0, n).Draw(t, "other"), i)
		default:
			b.WriteString("mov.b32 r, 1;")
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "L%d:\n", n)
	return b.String()
}

// reach returns what can be reached from a block without passing through the block called without.
// Exit is the last element; an endless cycle's chosen block leads there too.
func reach(g *Graph, from, without int) []bool {
	n := len(g.Blocks)
	seen := make([]bool, n+1)
	var walk func(b int)
	walk = func(b int) {
		if b == Exit {
			b = n
		}
		if b == without || seen[b] {
			return
		}
		seen[b] = true
		if b == n {
			return
		}
		for _, s := range g.Blocks[b].Succs {
			walk(s)
		}
		if slices.Contains(g.endless, b) {
			walk(Exit)
		}
	}
	walk(from)
	return seen
}

// TestAgainstDefinitions compares dominators, post-dominators and loops with their definitions: a
// dominates b if b can't be reached without a, a post-dominates b if Exit can't be reached from b
// without a.
func TestAgainstDefinitions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := build(t, randomBody(t))
		n := len(g.Blocks)
		reachable := reach(g, 0, None)
		dom := make([][]bool, n)  // dom[a][b]: a dominates b
		pdom := make([][]bool, n) // a post-dominates b
		for a := range n {
			if g.Blocks[a].Reachable != reachable[a] {
				t.Fatalf("block %d: reachable is %v", a, g.Blocks[a].Reachable)
			}
			dom[a], pdom[a] = make([]bool, n), make([]bool, n)
			around := reach(g, 0, a)
			for b := range n {
				if !reachable[a] || !reachable[b] {
					continue
				}
				dom[a][b] = !around[b]
				pdom[a][b] = a == b || !reach(g, b, a)[n]
				if got := g.Dominates(a, b); got != dom[a][b] {
					t.Fatalf("Dominates(%d, %d) is %v\n%s", a, b, got, describe(g))
				}
			}
		}
		immediate := func(tree [][]bool, b, none int) int {
			for a := range n { // the strict dominator that all others dominate
				if a == b || !tree[a][b] {
					continue
				}
				nearest := true
				for c := range n {
					if c != b && tree[c][b] && !tree[c][a] {
						nearest = false
					}
				}
				if nearest {
					return a
				}
			}
			return none
		}
		for b := range n {
			wantI, wantP := None, None
			if reachable[b] {
				wantI, wantP = immediate(dom, b, None), immediate(pdom, b, Exit)
			}
			if g.Blocks[b].Idom != wantI || g.Blocks[b].Ipdom != wantP {
				t.Fatalf("block %d: want idom %d, ipdom %d\n%s", b, wantI, wantP, describe(g))
			}
		}
		checkLoops(t, g, dom)
		checkShape(t, g)
	})
}

// checkLoops compares the loops with the union of the natural loops of each header's back edges.
func checkLoops(t *rapid.T, g *Graph, dom [][]bool) {
	bodies := map[int][]bool{}
	for h := range g.Blocks {
		for l := range g.Blocks {
			if !dom[h][l] || !slices.Contains(g.Blocks[l].Succs, h) {
				continue
			}
			if bodies[h] == nil {
				bodies[h] = make([]bool, len(g.Blocks))
				bodies[h][h] = true
			}
			var walk func(b int)
			walk = func(b int) {
				if bodies[h][b] || !g.Blocks[b].Reachable {
					return
				}
				bodies[h][b] = true
				for _, p := range g.Blocks[b].Preds {
					walk(p)
				}
			}
			walk(l)
		}
	}
	if len(bodies) != len(g.Loops) {
		t.Fatalf("%d loops, want %d\n%s", len(g.Loops), len(bodies), describe(g))
	}
	for i, l := range g.Loops {
		if l.Parent >= i {
			t.Fatalf("loop %d comes before its parent %d", i, l.Parent)
		}
		for b := range g.Blocks {
			in := false
			for k := g.Blocks[b].Loop; k != None; k = g.Loops[k].Parent {
				in = in || k == i
			}
			if bodies[l.Header] == nil || in != bodies[l.Header][b] {
				t.Fatalf("block %d in the loop of %d: %v\n%s", b, l.Header, in, describe(g))
			}
		}
	}
}

// checkShape checks what holds of every graph.
func checkShape(t *rapid.T, g *Graph) {
	next := 0
	for b, blk := range g.Blocks {
		if blk.First != next || blk.End <= blk.First {
			t.Fatalf("block %d is [%d,%d)", b, blk.First, blk.End)
		}
		for next = blk.First; next < blk.End; next++ {
			if g.BlockOf(next) != b {
				t.Fatalf("instruction %d is in block %d", next, g.BlockOf(next))
			}
		}
		for _, s := range blk.Succs {
			if s != Exit && !slices.Contains(g.Blocks[s].Preds, b) {
				t.Fatalf("edge %d to %d is not known at its end", b, s)
			}
		}
	}
	place := map[int]int{}
	for i, b := range g.RPO {
		place[b] = i
	}
	for _, b := range g.RPO {
		if d := g.Blocks[b].Idom; d != None && place[d] >= place[b] {
			t.Fatalf("block %d comes before its dominator %d", b, d)
		}
	}
}

// fataler is what testing.T and rapid.T have in common.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}
