package preempt

import (
	"testing"

	"vgpud/ptx"
)

// FuzzTransform checks Transform's promises for any module: no panic, and an output that parses,
// binds and has every form that the report names. (e2e/preempt tests on the soft GPU that it
// computes the same.)
func FuzzTransform(f *testing.F) {
	corpusFiles(f, func(_, src string) {
		if len(src) < 8<<10 {
			f.Add(src)
		}
	})
	f.Add(kernelOf("setp.eq.u32 %p1, %tid.x, 3; @%p1 ret; bar.sync 0; ret;"))
	f.Add(waitingKernel("L: ld.volatile.global.u32 %r1, [%rd1+-4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"))
	f.Add(waitingKernel("ld.global.u32 %r4, [%a]; L: atom.global.cas.b32 %r6, [%a], %r4, %r20; setp.eq.u32 %p1, %r6, %r4; mov.u32 %r4, %r6; @!%p1 bra L;"))
	f.Add(waitingKernel("L: { .param .b64 x; .param .b32 y; st.param.b64 [x], %a; call (y), read, (x); ld.param.b32 %r1, [y]; } setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"))
	f.Add(kernelOf("bar.sync 0; ld.shared.u32 %r3, [tile]; setp.ge.u32 %p2, %r3, 9; @%p2 bra L; shfl.sync.down.b32 %r4, %r5, 1, 31, -1; L: ret;"))
	f.Fuzz(func(t *testing.T, src string) {
		m, err := ptx.Options{MaxBytes: 1 << 20, MaxStatements: 1 << 16}.Parse(src)
		if err != nil {
			return
		}
		out, reports, err := Transform(m, Options{})
		if err != nil {
			return
		}
		text := out.String()
		again, err := ptx.Parse(text)
		if err != nil {
			t.Fatalf("the output does not parse: %v\n%s", err, text)
		}
		prog, err := ptx.Resolve(again)
		if err != nil {
			t.Fatalf("the output does not bind: %v\n%s", err, text)
		}
		for _, r := range reports {
			for _, form := range r.Forms {
				if prog.Code(EntryName(r.Kernel, form)) == nil {
					t.Fatalf("%s has no form %v:\n%s", r.Kernel, form, text)
				}
			}
		}
	})
}
