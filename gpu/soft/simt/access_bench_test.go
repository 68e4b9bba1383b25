package simt

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkAccess executes loads and stores whose lanes' addresses are in patterns that programs
// have, in each space that an address can be in.
func BenchmarkAccess(b *testing.B) {
	// The address of a lane is %rd5, or the offset %r20 in shared memory.
	patterns := []struct{ name, lane string }{
		{"row", "	mov.u32 %r21, %r2;\n"},
		{"uniform", "	and.b32 %r21, %r2, 32;\n"},
		{"half rows", "	and.b32 %r21, %r2, 15;\n	shl.b32 %r22, %r2, 4;\n	and.b32 %r22, %r22, 256;\n	add.u32 %r21, %r21, %r22;\n"},
		{"columns", "	shl.b32 %r21, %r2, 5;\n	and.b32 %r21, %r21, 1023;\n"},
	}
	for _, p := range patterns {
		for _, op := range []struct {
			name, text string
			log        int
		}{
			{"u8", "ld%s.u8 %%r23, [%%rd5];\n	st%[1]s.u8 [%%rd5], %%r23;\n", 0},
			{"b32", "ld%s.b32 %%r23, [%%rd5];\n	st%[1]s.b32 [%%rd5], %%r23;\n", 2},
			{"b64", "ld%s.b64 %%rd6, [%%rd5];\n	st%[1]s.b64 [%%rd5], %%rd6;\n", 3},
			{"v4.f32", "ld%s.v4.f32 {%%f5, %%f6, %%f7, %%f8}, [%%rd5];\n	st%[1]s.v4.f32 [%%rd5], {%%f5, %%f6, %%f7, %%f8};\n", 4},
		} {
			for _, s := range []struct{ name, space, base string }{
				{"global", ".global", "%rd1"},
				{"generic", "", "%rd1"},
				{"generic shared", "", "%rd9"},
			} {
				b.Run(fmt.Sprintf("%s/%s/%s", p.name, op.name, s.name), func(b *testing.B) {
					setup := fmt.Sprintf("	mov.u64 %%rd8, buffer;\n	cvta.shared.u64 %%rd9, %%rd8;\n%s	shl.b32 %%r20, %%r21, %d;\n	cvt.u64.u32 %%rd4, %%r20;\n	add.s64 %%rd5, %s, %%rd4;\n", p.lane, op.log, s.base)
					body := setup + strings.Repeat("	"+fmt.Sprintf(op.text, s.space), 32)
					src := strings.Replace(loopKernel(body, 1023), "	.reg .pred", "	.shared .align 16 .b8 buffer[16384];\n	.reg .pred", 1)
					m := newMachine(b, src)
					out, _ := m.alloc(16384)
					measure(b, m, Launch{Kernel: m.module.Kernel("k"), Grid: d3(endless), Block: d3(64), Params: params(out, endless)})
				})
			}
		}
	}
}
