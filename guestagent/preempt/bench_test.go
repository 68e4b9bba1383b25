package preempt

import (
	"io"
	"strings"
	"testing"

	"vgpud/e2e/kernels"
	"vgpud/ptx"
)

// BenchmarkTransform measures the way from PTX text to PTX text over the corpus: parsing, binding, the study, all three
// forms, printing. The bytes are those that come in.
func BenchmarkTransform(b *testing.B) {
	var sources []string
	bytes := 0
	for _, k := range kernels.All() {
		src := k.PTX(kernels.SM90)
		sources = append(sources, src)
		bytes += len(src)
	}
	b.SetBytes(int64(bytes))
	b.ReportAllocs()
	for b.Loop() {
		for _, src := range sources {
			m, err := ptx.Parse(src)
			if err != nil {
				b.Fatal(err)
			}
			out, _, err := Transform(m, Options{})
			if err != nil {
				b.Fatal(err)
			}
			if err := ptx.Print(io.Discard, out); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkTransformLarge is the same for one large kernel, to see what grows faster than the text.
func BenchmarkTransformLarge(b *testing.B) {
	k, _ := kernels.ByName("earlyreturn")
	src := k.PTX(kernels.SM90)
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
		if err := ptx.Print(io.Discard, out); err != nil {
			b.Fatal(err)
		}
	}
}
