package preempt

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"vgpud/e2e/kernels"
	"vgpud/mediator/vgpu/abi"
	"vgpud/ptx"
)

// tileCase is a case of testdata/tile.ptx.
func tileCase(blocks int) *kernels.Case {
	n := 64 * blocks
	in, want := make([]byte, 4*n), make([]byte, 4*n)
	value := func(i int) uint32 { return uint32(i)*2654435761 + 1 }
	for i := range n {
		binary.LittleEndian.PutUint32(in[4*i:], value(i))
		binary.LittleEndian.PutUint32(want[4*i:], value(i/64*64+63-i%64)+uint32(i/64))
	}
	return &kernels.Case{
		Kernel: "tile",
		Buffers: []kernels.Buffer{
			{Name: "in", Mode: kernels.In, Elem: kernels.U32, Size: 4 * n, Init: in},
			{Name: "out", Mode: kernels.Out, Elem: kernels.U32, Size: 4 * n, Want: want},
		},
		Steps: []kernels.Launch{{
			Entry: "tile", Grid: [3]uint32{uint32(blocks), 1, 1}, Block: [3]uint32{64, 1, 1},
			Args: []kernels.Arg{{Buffer: "in"}, {Buffer: "out"}},
		}},
	}
}

// tile reads the kernel written by hand, with the lines that bear a tag replaced.
func tile(t testing.TB, tag, line string) *ptx.Module {
	t.Helper()
	src, err := os.ReadFile("testdata/tile.ptx")
	if err != nil {
		t.Fatal(err)
	}
	lines, found := strings.Split(string(src), "\n"), false
	for i, l := range lines {
		if tag != "" && strings.HasSuffix(l, "// ["+tag+"]") {
			lines[i], found = line, true
		}
	}
	if tag != "" && !found {
		t.Fatalf("no line [%s]", tag)
	}
	m, err := ptx.Parse(strings.Join(lines, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestTile runs the forms written by hand: the layout of the arguments and of the
// control block is enough to write one.
func TestTile(t *testing.T) {
	var sum tally
	sound(t, tile(t, "", ""), 120, &sum, tileCase(40), tileCase(7))
	for _, f := range allForms {
		if sum.forms[f] == 0 && !one() {
			t.Errorf("no launch in form %v", f)
		}
	}
}

// TestMutants breaks the forms written by hand in one place each. A harness that
// finds nothing wrong with one of them would find nothing wrong with a
// transformation that makes the same mistake.
func TestMutants(t *testing.T) {
	for _, m := range []struct {
		form      abi.PreemptForm
		tag, line string
	}{
		{abi.PreemptSingle, "list", ""},
		{abi.PreemptSingle, "first", ""},
		{abi.PreemptSingle, "spatial", "setp.le.u32 %p4, %r13, %r12;"},
		{abi.PreemptSingle, "agree", "and.pred %p5, %p4, %p4;"},
		{abi.PreemptSingle, "one notes", ""},
		{abi.PreemptSingle, "count", "mov.u32 %r14, 0;"},
		{abi.PreemptSingle, "count", "ld.global.u32 %r14, [%rd9+384]; add.u32 %r19, %r14, 2; st.global.u32 [%rd9+384], %r19;"},
		{abi.PreemptSingle, "note", ""},
		{abi.PreemptSingle, "the body's own", ""},
		{abi.PreemptCoarse, "note", ""},
		{abi.PreemptCoarse, "group", "add.s32 %r22, %r2, %r21; sub.u32 %r22, %r22, 1;"},
		{abi.PreemptCoarse, "last", ""},
		{abi.PreemptCoarse, "between tasks", ""},
		{abi.PreemptPersistent, "fetched", ""},
		{abi.PreemptPersistent, "last chunk", ""},
		{abi.PreemptPersistent, "between fetched tasks", ""},
		{abi.PreemptPersistent, "finished", "add.s32 %r26, %r26, 2;"},
		{abi.PreemptPersistent, "finished", ""},
		{abi.PreemptPersistent, "inside", ""},
	} {
		t.Run(m.form.String()+"/"+m.tag, func(t *testing.T) {
			t.Parallel()
			r, err := newRig(t.Context(), tile(t, m.tag, m.line), tileCase(20))
			if err != nil {
				t.Fatal(err)
			}
			if err := r.settle(1, 4); err != nil {
				t.Fatal(err)
			}
			r.only = m.form
			for n := range uint64(300) {
				if err := newDrive(r, n).run(); err != nil {
					t.Logf("found by run %d: %v", n, err)
					return
				}
			}
			t.Error("nothing found wrong")
		})
	}
}
