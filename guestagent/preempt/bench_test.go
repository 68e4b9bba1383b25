package preempt

import (
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
