package preempt

import (
	"strings"
	"testing"
)

// TestSharedLoads checks which loads are made uniform by one more barrier, in kernels that could
// not run in a loop otherwise, and at what cost.
func TestSharedLoads(t *testing.T) {
	const (
		ticket   = "mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra M; atom.global.add.u32 %r2, [%rd1], 1; st.shared.u32 [tile], %r2; M: bar.sync 0; "
		exchange = " setp.ge.u32 %p2, %r3, 9; @%p2 bra L; shfl.sync.down.b32 %r4, %r5, 1, 31, -1; L: ret;"
	)
	tests := []struct {
		name, body string
		loops      Reason
		again      string // the repeated barrier in the coarse form
	}{
		{"a ticket", ticket + "ld.shared.u32 %r3, [tile];" + exchange, None, "ld.shared.u32 %r3, [tile];\n\tbar.sync 0;"},
		{"behind computing", ticket + "add.u32 %r6, %r7, 1; ld.shared.u32 %r3, [tile];" + exchange, None, "ld.shared.u32 %r3, [tile];\n\tbar.sync 0;"},
		{"two loads, one barrier", ticket + "ld.shared.u32 %r3, [tile]; ld.shared.u32 %r6, [tile+4]; add.u32 %r3, %r3, %r6;" + exchange, None, "ld.shared.u32 %r6, [tile+4];\n\tbar.sync 0;"},
		{"the barrier as it was", strings.Replace(ticket, "bar.sync 0", "barrier.sync 3", 1) + "ld.shared.u32 %r3, [tile];" + exchange, None, "ld.shared.u32 %r3, [tile];\n\tbarrier.sync 3;"},
		{"not what isn't wanted", ticket + "ld.shared.u32 %r6, [tile+4]; ld.shared.u32 %r3, [tile]; bar.sync 0; ld.shared.u32 %r6, [tile];" + exchange, None, "bar.sync 0;\n\tld.shared.u32 %r6, [tile];\n\tsetp"},
		{"not where each reads his own", ticket + "ld.shared.u32 %r3, [%r1];" + exchange, WarpAfterReturn, ""},
		{"not without a barrier", strings.Replace(ticket, "bar.sync 0; ", "", 1) + "ld.shared.u32 %r3, [tile];" + exchange, WarpAfterReturn, ""},
		{"not behind a store", ticket + "st.shared.u32 [tile], %r1; ld.shared.u32 %r3, [tile];" + exchange, WarpAfterReturn, ""},
		{"not behind an atomic operation", ticket + "atom.shared.add.u32 %r6, [tile], 1; ld.shared.u32 %r3, [tile];" + exchange, WarpAfterReturn, ""},
		{"not a volatile one", ticket + "ld.volatile.shared.u32 %r3, [tile];" + exchange, WarpAfterReturn, ""},
		{"not behind part of a block", strings.Replace(ticket, "bar.sync 0", "bar.sync 1, 64", 1) + "ld.shared.u32 %r3, [tile];" + exchange, WarpAfterReturn, ""},
		{"not what some load", ticket + "@%p1 ld.shared.u32 %r3, [tile];" + exchange, WarpAfterReturn, ""},
		{"not while copies go on", "cp.async.ca.shared.global [tile], [%rd1], 4; " + ticket + "ld.shared.u32 %r3, [tile];" + exchange, WarpAfterReturn, ""},
		{"not where a thread decides after all", ticket + "ld.shared.u32 %r3, [tile]; add.u32 %r3, %r3, %r1;" + exchange, WarpAfterReturn, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			src := kernelOf(tt.body)
			if e := analyzed(t, src).entries[0]; e.refused != None || e.loops != tt.loops {
				t.Fatalf("refused: %q, in loops: %q (%s), want %q", e.refused, e.loops, e.detail, tt.loops)
			}
			if tt.loops != None {
				return
			}
			out, _ := transform(t, src, Options{})
			plain := func(f Form) string {
				return strings.ReplaceAll(strings.ReplaceAll(entryText(t, out, EntryName("k", f)), "\t\t", "\t"), "\t\t", "\t")
			}
			for _, f := range []Form{Coarse, Persistent} {
				if text := plain(f); !strings.Contains(text, tt.again) {
					t.Errorf("%v has no\n%s\n%s", f, tt.again, text)
				}
			}
			barriers := count(entryText(t, out, "k"), "bar")
			if single := plain(Single); count(single, "bar") != barriers+1 { // one for the check
				t.Errorf("the form without a loop has other barriers:\n%s", single)
			}
		})
	}
}
