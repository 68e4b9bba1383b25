package preempt

import (
	"fmt"
	"strings"
	"testing"

	"vgpud/gpu/corpus"
	"vgpud/ptx"
)

// BenchmarkTransform measures the transformation of the corpus into all three forms: from tree to
// tree, which is binding names, the analysis and the forms; and from text to text, with parsing and
// printing. The bytes are those of the input text.
func BenchmarkTransform(b *testing.B) {
	var sources []string
	bytes := 0
	for _, k := range corpus.All() {
		src := k.PTX(corpus.SM90)
		sources = append(sources, src)
		bytes += len(src)
	}
	transform := func(b *testing.B, m *ptx.Module) *ptx.Module {
		out, _, err := Transform(m, Options{})
		if err != nil {
			b.Fatal(err)
		}
		return out
	}
	parse := func(b *testing.B, src string) *ptx.Module {
		m, err := ptx.Parse(src)
		if err != nil {
			b.Fatal(err)
		}
		return m
	}
	b.Run("tree", func(b *testing.B) {
		b.SetBytes(int64(bytes))
		b.ReportAllocs()
		trees := make([]*ptx.Module, len(sources))
		for b.Loop() {
			b.StopTimer() // Transform binds names in the tree, so each tree is used once
			for i, src := range sources {
				trees[i] = parse(b, src)
			}
			b.StartTimer()
			for _, m := range trees {
				transform(b, m)
			}
		}
	})
	b.Run("text", func(b *testing.B) {
		b.SetBytes(int64(bytes))
		b.ReportAllocs()
		for b.Loop() {
			for _, src := range sources {
				_ = transform(b, parse(b, src)).String()
			}
		}
	})
}

// BenchmarkTransformLarge measures one large kernel, to show what grows faster than the text.
func BenchmarkTransformLarge(b *testing.B) {
	k, _ := corpus.ByName("earlyreturn")
	src := k.PTX(corpus.SM90)
	head, body, _ := strings.Cut(src, "$L__BB0_2:")
	middle, tail, _ := strings.Cut(body, "\tbar.sync")
	var all strings.Builder
	all.WriteString(head + "$L__BB0_2:" + middle)
	for all.Len() < 4<<20 {
		all.WriteString("\tmov.u32 %r12, %ctaid.x;\n\t@%p1 ld.shared.u32 %r16, [%r6];\n\tadd.s32 %r18, %r17, %r16;\n\t@%p2 bra $L__BB0_4;\n")
	}
	all.WriteString("\tbar.sync" + tail)
	b.SetBytes(int64(all.Len()))
	for b.Loop() {
		m, err := ptx.Parse(all.String())
		if err != nil {
			b.Fatal(err)
		}
		out, reports, err := Transform(m, Options{})
		if err != nil {
			b.Fatal(err)
		}
		if len(reports[0].Forms) != 3 {
			b.Fatalf("%+v", reports[0])
		}
		_ = out.String()
	}
}

// BenchmarkTransformMemory measures a large kernel that keeps many pointers in local memory, as
// unoptimized ones do: whatever it stores there, every load from there may return.
func BenchmarkTransformMemory(b *testing.B) {
	const pointers = 48
	var all strings.Builder
	all.WriteString(".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k(")
	for i := range pointers {
		if i > 0 {
			all.WriteString(",")
		}
		fmt.Fprintf(&all, "\n\t.param .u64 p%d", i)
	}
	all.WriteString(")\n{\n\t.local .b64 a[48];\n\t.reg .pred %p;\n\t.reg .b32 %r<3>;\n\t.reg .b64 %rd<99999>;\n\tmov.u32 %r1, 0;\nL:\n")
	for r := 2; all.Len() < 1<<20; r++ {
		fmt.Fprintf(&all, "\tld.local.u64 %%rd%d, [a];\n", r)
		for range 16 {
			fmt.Fprintf(&all, "\tadd.u64 %%rd%d, %%rd%d, 4;\n", r+1, r)
			r++
		}
		fmt.Fprintf(&all, "\tst.local.u64 [a], %%rd%d;\n\tld.global.u32 %%r2, [%%rd%d];\n\tst.global.u32 [%%rd%d], %%r2;\n", r, r, r)
	}
	for i := range pointers {
		fmt.Fprintf(&all, "\tld.param.u64 %%rd1, [p%d];\n\tst.local.u64 [a+%d], %%rd1;\n", i, 8*i)
	}
	all.WriteString("\tadd.u32 %r1, %r1, 1;\n\tsetp.lt.u32 %p, %r1, 9;\n\t@%p bra L;\n\tret;\n}\n")
	b.SetBytes(int64(all.Len()))
	for b.Loop() {
		m, err := ptx.Parse(all.String())
		if err != nil {
			b.Fatal(err)
		}
		if _, _, err := Transform(m, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
