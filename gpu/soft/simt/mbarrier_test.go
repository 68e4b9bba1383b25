package simt

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Warps synchronize at an mbarrier, phase after phase.
func TestMbarrier(t *testing.T) {
	m := newMachine(t, ".shared .align 8 .b64 mb;\n.shared .align 4 .u32 sum;\n"+entry(`
	mov.u32 %r9, mb;
	setp.ne.u32 %p1, %r2, 0;
	@%p1 bra READY;
	st.shared.u32 [sum], 0;
	mbarrier.init.shared::cta.b64 [%r9], 96;
READY:
	bar.sync 0;
	mov.u32 %r3, 0;
LOOP:
	atom.shared.add.u32 %r4, [sum], 1;
	mbarrier.arrive.shared::cta.b64 %rd3, [%r9];
WAIT:
	mbarrier.try_wait.shared::cta.b64 %p2, [%r9], %rd3;
	@!%p2 bra WAIT;
	ld.volatile.shared.u32 %r5, [sum];
	add.u32 %r3, %r3, 1;
	mul.lo.u32 %r6, %r3, 96;
	setp.lt.u32 %p3, %r5, %r6;
	@%p3 trap;
	setp.lt.u32 %p4, %r3, 5;
	@%p4 bra LOOP;
`+storeAt("%r2", "u32", "%r5")))
	out, data := m.alloc(4 * 96)
	if f := m.run("k", d3(1), d3(96), 0, out, out, 0); f != nil {
		t.Fatal(f)
	}
	if v := wordsOf(data)[50]; v < 480 {
		t.Error(v)
	}
}

// TestMbarrierOperations follows an mbarrier through three phases, each instruction of one lane.
func TestMbarrierOperations(t *testing.T) {
	const seen = ".reg .pred %done; .reg .b32 %seen; .reg .b64 %was, %newest;\n"
	var body strings.Builder
	var want []uint32
	do := func(format string, args ...any) { fmt.Fprintf(&body, format+"\n", args...) }
	store := func(v uint32) {
		do("st.global.u32 [%%rd1+%d], %%seen;", 4*len(want))
		want = append(want, v)
	}
	waits := func(what string, done uint32) {
		do("mbarrier.test_wait%s; selp.u32 %%seen, 1, 0, %%done;", what)
		store(done)
	}
	parity := func(phase int, done uint32) {
		waits(fmt.Sprintf(".parity.shared.b64 %%done, [%%r9], %d", phase), done)
	}
	pending := func(state string, n uint32) {
		do("mbarrier.pending_count.b64 %%seen, %s;", state)
		store(n)
	}
	do("mov.u32 %%r9, mb; mbarrier.init.shared.b64 [%%r9], 3;")
	do("mbarrier.arrive.shared.b64 %%was, [%%r9];")
	pending("%was", 3)
	waits(".shared.b64 %done, [%r9], %was", 0)
	parity(0, 0)
	parity(1, 1) // the phase before
	do("mbarrier.arrive.shared.b64 %%newest, [%%r9], 2;")
	pending("%newest", 2)
	waits(".shared.b64 %done, [%r9], %was", 1)
	parity(0, 1)
	parity(1, 0)
	do("mbarrier.arrive_drop.shared.b64 %%was, [%%r9];") // two are left, in this phase and in later ones
	pending("%was", 3)
	do("mbarrier.arrive.shared.b64 _, [%%r9], 2; mbarrier.arrive.shared.b64 %%newest, [%%r9];")
	pending("%newest", 2)
	waits(".shared.b64 %done, [%r9], %was", 1)
	parity(1, 1)
	do("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%%r9], 16;")
	do("mbarrier.arrive.expect_tx.shared.b64 %%newest, [%%r9], 8;")
	pending("%newest", 1)
	parity(0, 0)
	do("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%%r9], 20;")
	parity(0, 0)
	do("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%%r9], 4;")
	parity(0, 1)
	do("mbarrier.inval.shared.b64 [%%r9];")

	m := newMachine(t, ".shared .align 8 .b64 mb;\n"+entry(seen+body.String()))
	out, data := m.alloc(4 * len(want))
	if f := m.run("k", d3(1), d3(1), 0, out, out, 0); f != nil {
		t.Fatal(f)
	}
	if diff := cmp.Diff(want, wordsOf(data)[:len(want)]); diff != "" {
		t.Errorf("-want +got:\n%s\n%s", diff, body.String())
	}
}
