package flow

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vgpud/ptx"
)

// traced follows the instructions of g that load from global memory, and returns the instructions
// reached.
func traced(g *Graph, body []int, control func(int) bool) string {
	var sources []int
	for i, in := range g.Code.Instrs {
		if in.Opcode == "ld" && in.Has("global") {
			sources = append(sources, i)
		}
	}
	t := g.NewTrace(g.Effects())
	t.Run(nil, nil, always) // what an earlier run found is forgotten
	t.Run(body, sources, control)
	var hit []string
	for i := range g.Code.Instrs {
		if t.Instr(i) {
			hit = append(hit, fmt.Sprint(i))
		}
	}
	return strings.Join(hit, " ")
}

func always(int) bool { return true }

func TestTrace(t *testing.T) {
	const guarded = "ld.global.b32 r0, [rd]; setp.eq.u32 p0, r0, 0; @p0 bra J; mov.b32 r1, 1; J: mov.b32 r2, r1; mov.b32 r3, 1; ret;"
	tests := []struct {
		name, body string
		control    func(int) bool
		want       string
	}{
		{"data", "ld.global.b32 r0, [rd]; add.u32 r1, r0, r2; mov.b32 r3, r2; setp.eq.u32 p0, r1, 0; @p0 ret; ret;", nil, "0 1 3 4"},
		{"no control", guarded, nil, "0 1 2"},
		{"control", guarded, always, "0 1 2 3 4"},
		{"control by some branches", "ld.global.b32 r0, [rd]; setp.eq.u32 p0, r0, 0; @p0 bra J; mov.b32 r1, 1; J: @p0 bra K; mov.b32 r2, 1; K: ret;",
			func(b int) bool { return b == 0 }, "0 1 2 3 4"},
		{"shared memory", "ld.global.b32 r0, [rd]; st.shared.b32 [rd], r0; ld.shared.b32 r1, [rd]; ld.local.b32 r2, [rd]; ret;", nil, "0 1 2"},
		{"a generic address", "ld.global.b32 r0, [rd]; st.b32 [rd], r0; ld.shared.b32 r1, [rd]; ld.local.b32 r2, [rd]; ld.param.b32 r3, [n]; ret;", nil, "0 1 2 3"},
		{"a function", "{ .param .b32 v; .param .b32 a; ld.global.b32 r0, [rd]; st.param.b32 [a], r0; call (v), help, (a); ld.param.b32 r1, [v]; } ret;", nil, "0 1 2 3"},
		{"a reduction", "ld.global.b32 r0, [rd]; setp.eq.u32 p0, r0, 0; bar.red.or.pred p1, 0, p0; @p1 ret; ret;", nil, "0 1 2 3"},
		{"nothing", "mov.b32 r0, 1; ret;", always, ""},
		{"a loop's rounds", "mov.b32 r1, 0; L: add.u32 r1, r1, 1; ld.global.b32 r0, [rd]; setp.eq.u32 p0, r0, 0; @p0 bra L; mov.b32 r2, r1; ret;", always, "1 2 3 4 5"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := kernel(t, tt.body)
			all := make([]int, len(g.Blocks))
			for b := range all {
				all[b] = b
			}
			if d := cmp.Diff(tt.want, traced(g, all, tt.control)); d != "" {
				t.Errorf("instructions reached (-want +got):\n%s", d)
			}
		})
	}
}

// TestTraceUnrelated checks that nothing is followed through registers that give an instruction no
// part of its result.
func TestTraceUnrelated(t *testing.T) {
	g := kernel(t, "ld.global.b32 r0, [rd]; add.u32 r1, r0, 1; add.u32 r2, r1, 1; add.u32 r3, r0, 1; ret;")
	e := g.Effects()
	trace := g.NewTrace(e)
	trace.Unrelated = func(i int, r int32) bool { return i == 1 }
	trace.Run([]int{0}, []int{0}, nil)
	var got []int
	for i := range g.Code.Instrs {
		if trace.Instr(i) {
			got = append(got, i)
		}
	}
	if d := cmp.Diff([]int{0, 3}, got); d != "" {
		t.Errorf("instructions reached (-want +got):\n%s", d)
	}
}

func TestBodyAndLeaving(t *testing.T) {
	g := kernel(t, `mov.b32 r0, 0;
A:	add.u32 r0, r0, 1; @p2 ret;
B:	add.u32 r1, r1, 1; @p0 bra B;
	@p1 bra A;
	ret;`)
	var got []string
	for l := range g.Loops {
		body := g.Body(l)
		got = append(got, fmt.Sprint(body, g.Leaving(body)))
	}
	if d := cmp.Diff([]string{"[1 2 3] [1 3]", "[2] [2]"}, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	// Only what is in the body is followed.
	g = kernel(t, "mov.b32 r1, 1; L: ld.global.b32 r0, [rd]; setp.eq.u32 p0, r0, 0; @p0 bra L; mov.b32 r2, r0; ret;")
	if got, want := traced(g, g.Body(0), always), "1 2 3"; got != want {
		t.Errorf("reached %s, want %s", got, want)
	}
}

func TestKnown(t *testing.T) {
	for op, want := range map[string]bool{"add": true, "ld": true, "bar": true, "shfl": true, "st": true, "frobnicate": false} {
		if Known(op) != want {
			t.Errorf("%s is known: %v", op, !want)
		}
	}
}

func TestEffectsNumberSpaces(t *testing.T) {
	g := kernel(t, "ret;")
	e := g.Effects()
	seen := map[int32]bool{}
	for _, s := range []ptx.Space{ptx.SharedSpace, ptx.LocalSpace, ptx.ParamSpace, ptx.GlobalSpace} {
		n := e.Space(s)
		if seen[n] || int(n) >= e.Numbers() || int(n) <= len(g.Code.Regs) {
			t.Errorf("%v is number %d of %d", s, n, e.Numbers())
		}
		seen[n] = true
	}
}
