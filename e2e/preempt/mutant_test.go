package preempt

import (
	"encoding/binary"
	"regexp"
	"strings"
	"testing"

	"vgpud/e2e/preempt/hard"
	"vgpud/gpu/corpus"
	"vgpud/guestagent/preempt"
	"vgpud/mediator/vgpu/abi"
	"vgpud/ptx"
)

// tileCase returns a case of hard/ptx/tile.ptx.
func tileCase(blocks int) *corpus.Case {
	n := 64 * blocks
	in, want := make([]byte, 4*n), make([]byte, 4*n)
	value := func(i int) uint32 { return uint32(i)*2654435761 + 1 }
	for i := range n {
		binary.LittleEndian.PutUint32(in[4*i:], value(i))
		binary.LittleEndian.PutUint32(want[4*i:], value(i/64*64+63-i%64)+uint32(i/64))
	}
	return &corpus.Case{
		Kernel: "tile",
		Buffers: []corpus.Buffer{
			{Name: "in", Mode: corpus.In, Elem: corpus.U32, Size: 4 * n, Init: in},
			{Name: "out", Mode: corpus.Out, Elem: corpus.U32, Size: 4 * n, Want: want},
		},
		Steps: []corpus.Launch{{
			Entry: "tile", Grid: [3]uint32{uint32(blocks), 1, 1}, Block: [3]uint32{64, 1, 1},
			Args: []corpus.Arg{{Buffer: "in"}, {Buffer: "out"}},
		}},
	}
}

// tile returns the hand-written kernel with some tagged lines replaced.
func tile(t testing.TB, tag, line string) *ptx.Module {
	t.Helper()
	lines, found := strings.Split(hard.PTX("tile"), "\n"), false
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

// TestTile runs hand-written forms: the layout of the arguments and of the control block suffices
// to write one.
func TestTile(t *testing.T) {
	var sum tally
	sound(t, tile(t, "", ""), 120, &sum, tileCase(40), tileCase(7))
	for _, f := range allForms {
		if sum.forms[f] == 0 && !one() {
			t.Errorf("no launch in form %v", f)
		}
	}
}

// TestMutants breaks the hand-written forms in one place each. A harness that misses one of these
// errors would also miss a transformation with the same error.
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

// TestTransformedMutants breaks the output of the transformation in one place each.
func TestTransformedMutants(t *testing.T) {
	many := hard.Trick{File: "indices", Entry: "three", Grid: [3]uint32{5, 3, 7}, Block: [3]uint32{8, 4, 2}}
	shared := hard.Trick{File: "barriers", Entry: "shared_again", Grid: [3]uint32{40, 1, 1}, Block: [3]uint32{128, 1, 1}}
	parted := hard.Trick{File: "returns", Entry: "divergent_loop", Grid: [3]uint32{17, 1, 1}, Block: [3]uint32{70, 1, 1}}
	findMutants(t, preempt.Check{}, []mutant{
		{"no barrier between tasks", shared, abi.PreemptCoarse, `(bra vgpud_last;\n)\tbar.sync 0;\n`, "$1"},
		{"no barrier between fetched tasks", shared, abi.PreemptPersistent, `(bra vgpud_last;\n)\tbar.sync 0;\n`, "$1"},
		{"finished threads don't wait", parted, abi.PreemptCoarse, `\nvgpud_end:\n`, "\nvgpud_end:\n\tbra vgpud_over;\n"},
		{"finished threads wait once", parted, abi.PreemptPersistent, `(.branchtargets) vgpud_hub,`, "$1 vgpud_over,"},
		{"a thread that needs a barrier does not report it", parted, abi.PreemptPersistent, `(setp.ne.u32 %vgpud_met, %vgpud_state,) 0;`, "$1 %vgpud_state;"},
		{"rows don't end", many, abi.PreemptCoarse, `\tselp.b32 %vgpud_x, 0, %vgpud_x, %vgpud_p;\n`, ""},
		{"planes don't end", many, abi.PreemptPersistent, `\tselp.b32 %vgpud_y, 0, %vgpud_y, %vgpud_p;\n`, ""},
		{"one task of each fetch runs", many, abi.PreemptPersistent, `(setp.eq.u32 %vgpud_p, %vgpud_left, 0;\n)\t@%vgpud_p bra vgpud_last;`, "$1\tbra vgpud_last;"},
		{"the last unit is full", many, abi.PreemptCoarse, `\tmin.u32 %vgpud_left, %vgpud_left, %vgpud_a;\n`, ""},
		{"no agreement", many, abi.PreemptSingle, `\tbar.red.or.pred %vgpud_p, 0, %vgpud_p;\n`, ""},
		{"a fetch is not waited for", many, abi.PreemptPersistent, `\tbar.sync 0;\n(\tld.shared.u32 %vgpud_t)`, "$1"},
		{"one place for all fetches", many, abi.PreemptPersistent, `\txor.b32 %vgpud_place, %vgpud_place, 4;\n`, ""},
		{"looks after a fetch", many, abi.PreemptPersistent, `(\tsetp.lt.u32 %vgpud_p, %vgpud_a, %vgpud_b;\n)`, "\tatom.global.add.u32 %vgpud_t, [%vgpud_control+128], 1;\n$1"},
		{"all run from 0", many, abi.PreemptSingle, `\tadd.u32 %vgpud_t, %vgpud_t, %vgpud_a;\n`, ""},
		{"any thread notes", many, abi.PreemptCoarse, `\t@!%vgpud_first bra vgpud_gone;\n`, ""},
	})
	findMutants(t, preempt.Check{AllThreads: true}, []mutant{
		{"each thread by itself", many, abi.PreemptPersistent, `\tbar.red.or.pred %vgpud_p, 0, %vgpud_p;\n(\t@%vgpud_p bra vgpud_leave;)`, "$1"},
	})
}

// mutant is one error in a form of a kernel.
type mutant struct {
	name     string
	k        hard.Trick
	form     abi.PreemptForm
	old, new string // a regular expression and its replacement
}

// findMutants makes each mutant and searches for a run that fails.
func findMutants(t *testing.T, check preempt.Check, mutants []mutant) {
	t.Helper()
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			out, _ := transformTo(t, hard.PTX(m.k.File), preempt.Options{Check: check})
			text := out.String()
			at := strings.Index(text, ".entry "+m.k.Entry+suffix[m.form]+"(")
			if at < 0 {
				t.Fatal("the form is not offered")
			}
			end := at + strings.Index(text[at:], "\n}\n")
			changed := regexp.MustCompile(m.old).ReplaceAllString(text[at:end], m.new)
			if changed == text[at:end] {
				t.Fatalf("nothing to change in\n%s", changed)
			}
			mutant, err := ptx.Parse(text[:at] + changed + text[end:])
			if err != nil {
				t.Fatal(err)
			}
			r, err := newRig(t.Context(), mutant, m.k.Case())
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
