package flow

import (
	"fmt"
	"strings"
	"testing"
)

// ladder returns a function of n blocks, each of which branches to the last instruction, to the
// next and to itself: a shape on which simple dominator algorithms, and walks over control
// dependences, take n² steps.
func ladder(n int) string {
	var b strings.Builder
	b.WriteString("mov.b32 r0, %tid.x; setp.eq.u32 p0, r0, 0;\n")
	for i := range n {
		fmt.Fprintf(&b, "L%d: @p0 bra E; @p1 bra L%d; @p2 bra L%d;\n", i, i, n-1-i)
	}
	b.WriteString("E: ret;")
	return b.String()
}

// nested returns a function of n nested loops.
func nested(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "L%d: mov.b32 r%d, 1;\n", i, i%10)
	}
	for i := n - 1; i >= 0; i-- {
		fmt.Fprintf(&b, "@p%d bra L%d;\n", i%10, i)
	}
	return b.String()
}

func BenchmarkBuild(b *testing.B) {
	for name, body := range map[string]string{"ladder": ladder(20000), "nested": nested(20000)} {
		b.Run(name, func(b *testing.B) {
			code := kernel(b, body).Code
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Build(code); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(code.Instrs)), "ns/instr")
		})
	}
}

func BenchmarkUniformity(b *testing.B) {
	for name, body := range map[string]string{"ladder": ladder(20000), "nested": nested(20000)} {
		b.Run(name, func(b *testing.B) {
			g := kernel(b, body)
			b.ReportAllocs()
			for b.Loop() {
				g.Uniformity()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(g.Code.Instrs)), "ns/instr")
		})
	}
}
