package simt

import (
	"slices"
	"testing"

	"vgpud/gpu/corpus"
	"vgpud/ptx"

	"github.com/google/go-cmp/cmp"
)

const tracedKernel = `
.visible .entry k(.param .u64 k_param_0)
{
	.reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .f32 %f<3>;
	ld.param.u64 %rd1, [k_param_0];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd2, %r1, 8;
	add.s64 %rd3, %rd1, %rd2;
	ld.global.u32 %r2, [%rd3];
	bar.sync 1;
	setp.lt.u32 %p1, %r1, 8;
	@%p1 bra LOW;
	sqrt.rn.f32 %f1, %f2;
	bra MEET;
LOW:
	add.u32 %r2, %r2, 1;
MEET:
	@%p1 st.global.u32 [%rd3], %r2;
	ret;
}`

// A trace has what each warp executed, where it diverged, and which lines its accesses coalesce
// into.
func TestTrace(t *testing.T) {
	mod, err := Load(t.Context(), parse(t, tracedKernel), Options{Traces: true})
	if err != nil {
		t.Fatal(err)
	}
	m := machineFor(t, mod)
	out, _ := m.alloc(2 * 64 * 8)
	var tr Trace
	if f := m.launch(Launch{Kernel: mod.Kernel("k"), Grid: d3(2), Block: d3(64), Params: params(out), Trace: &tr}); f != nil {
		t.Fatal(f)
	}
	type step struct {
		Class    OpClass
		Space    ptx.Space
		Lanes    int
		Lines    uint16
		Diverges bool
	}
	var got []step
	w := tr.Blocks[1].Warps[0]
	for _, s := range w.Steps {
		op := tr.Ops[s.Op]
		got = append(got, step{op.Class, op.Space, popcount(s.Mask), s.Lines, s.Diverges})
	}
	want := []step{
		{Class: OpLoad, Space: ptx.ParamSpace, Lanes: 32}, {Class: OpInteger, Lanes: 32}, {Class: OpIntegerMul, Lanes: 32}, {Class: OpInteger, Lanes: 32},
		{Class: OpLoad, Space: ptx.GlobalSpace, Lanes: 32, Lines: 2}, {Class: OpBarrier, Lanes: 32}, {Class: OpInteger, Lanes: 32},
		{Class: OpBranch, Lanes: 32, Diverges: true}, {Class: OpSpecial, Lanes: 24}, {Class: OpBranch, Lanes: 24}, {Class: OpInteger, Lanes: 8},
		{Class: OpStore, Space: ptx.GlobalSpace, Lanes: 32, Lines: 1}, {Class: OpExit, Lanes: 32},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error("-want +got", d)
	}
	first := out / LineBytes
	if want := []uint64{first, first + 1, first}; !slices.Equal(tr.Blocks[0].Warps[0].Lines, want) {
		t.Errorf("lines %v, want %v", tr.Blocks[0].Warps[0].Lines, want)
	}
	bar := w.Steps[5]
	if bar.Barrier != 1 || !bar.Arrives || bar.Expect != 0 {
		t.Errorf("%+v", bar)
	}
	load, add := tr.Ops[w.Steps[4].Op], tr.Ops[w.Steps[10].Op]
	if len(load.Writes) != 1 || !slices.Equal(load.Writes, add.Writes) || !slices.Equal(add.Reads, add.Writes) {
		t.Errorf("%+v, %+v", load, add)
	}
	if tr.Truncated {
		t.Error("truncated")
	}
}

// A trace ends at its limit; the grid goes on.
func TestTraceLimit(t *testing.T) {
	mod, err := Load(t.Context(), parse(t, tracedKernel), Options{Traces: true})
	if err != nil {
		t.Fatal(err)
	}
	m := machineFor(t, mod)
	out, _ := m.alloc(64 * 8)
	tr := Trace{Limit: 20}
	if f := m.launch(Launch{Kernel: mod.Kernel("k"), Grid: d3(1), Block: d3(64), Params: params(out), Trace: &tr}); f != nil {
		t.Fatal(f)
	}
	n := 0
	for _, w := range tr.Blocks[0].Warps {
		n += len(w.Steps)
	}
	if n != 20 || !tr.Truncated {
		t.Errorf("%d steps, truncated: %v", n, tr.Truncated)
	}
}

// Being traced changes neither results nor counts.
func TestTracedRunsAreTheSame(t *testing.T) {
	for _, k := range corpus.All() {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			var counts [2]Counts
			for i, traced := range []bool{false, true} {
				module, err := Load(t.Context(), parse(t, k.PTX(corpus.SM80)), Options{Traces: traced})
				if err != nil {
					t.Fatal(err)
				}
				c := k.Case(corpus.Trivial, 1)
				m, launches := prepare(t, module, c)
				steps := 0
				for _, l := range launches {
					var tr Trace
					if traced {
						l.Trace = &tr
					}
					if f := m.launch(l); f != nil {
						t.Fatal(f)
					}
					counts[i].add(m.last.Counts())
					for _, b := range tr.Blocks {
						for _, w := range b.Warps {
							steps += len(w.Steps)
						}
					}
				}
				if err := c.CheckAll(func(b *corpus.Buffer) ([]byte, error) { return m.buffers[b.Name], nil }); err != nil {
					t.Error(err)
				}
				if traced && (steps == 0 || uint64(steps) > counts[i].WarpInstructions) {
					t.Errorf("%d steps of %d instructions", steps, counts[i].WarpInstructions)
				}
			}
			if counts[0] != counts[1] {
				t.Errorf("%+v, traced %+v", counts[0], counts[1])
			}
		})
	}
}
