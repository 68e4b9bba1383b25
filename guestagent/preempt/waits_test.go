package preempt

import (
	"strings"
	"testing"

	"vgpud/ptx"
)

// waitingKernel wraps a body as a kernel with pointers, a count and a number of blocks, all loaded.
func waitingKernel(body string) string {
	return moduleOf(`.global .align 4 .u32 lock;
.global .align 4 .u32 flags[64];
.const .align 8 .u64 pointer = generic(flags);
.const .align 8 .u64 table[4];
.extern .func (.param .b64 p) malloc (.param .b64 bytes);
.func (.param .b32 v) read(.param .b64 at) {
	.reg .b64 %rd<2>; .reg .b32 %r<2>;
	ld.param.u64 %rd1, [at]; ld.volatile.global.u32 %r1, [%rd1]; st.param.b32 [v], %r1; ret;
}
.func (.param .b32 v) peek(.param .b64 at) {
	.reg .b64 %rd<2>; .reg .b32 %r<2>;
	ld.param.u64 %rd1, [at]; ld.global.u32 %r1, [%rd1]; st.param.b32 [v], %r1; ret;
}
.func (.param .b32 v) next(.param .b64 at) {
	.reg .b64 %rd<2>; .reg .b32 %r<2>;
	ld.param.u64 %rd1, [at]; ld.global.u32 %r1, [%rd1]; add.u32 %r1, %r1, 1; st.global.u32 [%rd1], %r1; st.param.b32 [v], %r1; ret;
}
.func (.param .b64 v) same(.param .b64 at) { .reg .b64 %rd<2>; ld.param.u64 %rd1, [at]; st.param.b64 [v], %rd1; ret; }
.visible .entry k(.param .u64 a, .param .u64 b, .param .u32 n, .param .align 8 .b8 s[64])
{
	.reg .pred %p<9>;
	.reg .b32 %r<29>;
	.reg .b64 %a, %b, %rd<19>;
	.reg .f64 %fd<4>;
	.reg .f32 %f<9>;
	.shared .align 4 .u32 tile;
	.local .align 8 .b8 depot[16];
	ld.param.u64 %a, [a];
	ld.param.u64 %b, [b];
	ld.param.u32 %r20, [n];
	mov.u32 %r21, %ctaid.x;
	mov.u32 %r22, %nctaid.x;
	mov.u32 %r23, %tid.x;
	mul.wide.u32 %rd1, %r21, 4;
	add.s64 %rd1, %a, %rd1;
	mul.wide.u32 %rd2, %r23, 4;
	add.s64 %rd2, %a, %rd2;
` + body + "\nret;\n}\n")
}

// waitTest is the body of a kernel, and the blocks that it must be found to wait for.
type waitTest struct{ name, want, body string }

const (
	no      = "no"      // every form
	earlier = "earlier" // only the persistent form
	all     = "all"     // no form
)

func checkWaits(t *testing.T, tests []waitTest) {
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := parse(t, waitingKernel(tt.body))
			p, err := ptx.Resolve(m)
			if err != nil {
				t.Fatal(err)
			}
			e := analyze(m, p).entries[0]
			got := no
			switch {
			case e.refused == GridSync:
				got = all
			case e.waits:
				got = earlier
			}
			if got != tt.want || e.refused != None && e.refused != GridSync {
				t.Errorf("waits for %s, want %s (%v, %v, %s)", got, tt.want, e.refused, e.loops, e.detail)
			}
			if e.waits {
				for _, f := range []Form{Single, Coarse} {
					if ok, why := e.fits(f); ok || why != GridSync {
						t.Errorf("%v fits: %v, %v", f, ok, why)
					}
				}
			}
		})
	}
}

func TestWaits(t *testing.T) {
	tests := []waitTest{
		{"a volatile read outside a loop", no, "ld.volatile.global.u32 %r1, [%a]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; st.global.u32 [%b], %r1; L:"},
		{"a volatile read that decides how long a loop runs", no,
			"ld.volatile.global.u32 %r1, [%a]; L: sub.u32 %r1, %r1, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"a volatile read in a loop that ends by itself", no,
			"mov.u32 %r2, 0; L: ld.volatile.global.u32 %r1, [%rd1]; add.u32 %r3, %r3, %r1; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, %r20; @%p1 bra L;"},
		{"an ordinary read", no, "L: ld.global.u32 %r1, [%a]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"a volatile read of shared memory", no, "L: ld.volatile.shared.u32 %r1, [tile]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"a generic read of shared memory", no,
			"mov.u32 %r4, tile; cvt.u64.u32 %rd4, %r4; cvta.shared.u64 %rd5, %rd4; L: ld.volatile.u32 %r1, [%rd5]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"an atomic operation whose result is not used", no, "mov.u32 %r2, 0; L: atom.global.add.u32 %r1, [%a], 1; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, %r20; @%p1 bra L;"},
		{"a loop over what the last block finds", no,
			"atom.global.inc.u32 %r1, [%a], %r22; setp.ne.u32 %p1, %r1, %r22; @%p1 bra E; L: ld.volatile.global.u32 %r2, [%rd1]; add.u32 %r23, %r23, 1; setp.lt.u32 %p2, %r23, %r22; @%p2 bra L; E:"},

		{"a flag of the block before", earlier, "L: ld.volatile.global.u32 %r1, [%rd1+-4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; st.volatile.global.u32 [%rd1], 1;"},
		{"the same, acquired", earlier, "L: ld.acquire.gpu.global.u32 %r1, [%rd1+-4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; st.release.gpu.global.u32 [%rd1], 1;"},
		{"the same, relaxed and generic", earlier, "L: ld.relaxed.gpu.u32 %r1, [%rd1+-4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; st.relaxed.gpu.u32 [%rd1], 1;"},
		{"the same, past the cache, behind a fence, in a vote", earlier,
			"L: membar.gl; ld.global.u32 %r1, [%rd1+-4]; setp.eq.u32 %p1, %r1, 99; vote.sync.any.pred %p2, %p1, -1; @%p2 bra L; bar.sync 0; st.global.u32 [%rd1], 1;"},
		{"a flag found by a ticket, through shared memory", earlier,
			"atom.global.add.u32 %r1, [%b], 1; st.shared.u32 [tile], %r1; bar.sync 0; ld.shared.u32 %r2, [tile]; mul.wide.u32 %rd4, %r2, 8; add.s64 %rd5, %a, %rd4; L: ld.volatile.global.u64 %rd6, [%rd5+-8]; setp.eq.s64 %p1, %rd6, 0; @%p1 bra L; st.volatile.global.u64 [%rd5], 1;"},
		{"a search that is called off", all,
			"mov.u32 %r5, 0; L: ld.volatile.global.u32 %r1, [%a]; setp.ne.u32 %p1, %r1, 0; @%p1 bra E; add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, %r20; @%p2 bra L; E:"},
		{"compare-and-swap until it succeeds", no,
			"ld.global.f64 %fd1, [%a]; mov.b64 %rd4, %fd1; L: mov.b64 %fd1, %rd4; add.f64 %fd2, %fd1, 0d3FF0000000000000; mov.b64 %rd5, %fd2; atom.global.cas.b64 %rd6, [%a], %rd4, %rd5; setp.ne.s64 %p1, %rd4, %rd6; mov.u64 %rd4, %rd6; @%p1 bra L;"},
		{"the same of what is read in each round", no,
			"ld.volatile.global.f32 %f1, [%rd1]; mov.b32 %r4, %f1; L: ld.global.f32 %f2, [%rd1]; add.f32 %f2, %f2, 0f3F800000; mov.b32 %r5, %f2; atom.global.cas.b32 %r6, [%rd1], %r4, %r5; setp.eq.s32 %p1, %r6, %r4; mov.u32 %r4, %r6; @%p1 bra E; bra.uni L; E:"},
		{"the same, which another block may call off", all,
			"ld.volatile.global.u32 %r4, [%rd1]; L: ld.global.u32 %r5, [%rd1]; setp.eq.u32 %p2, %r5, 0; @%p2 bra L; atom.global.cas.b32 %r6, [%rd1], %r4, %r5; setp.eq.s32 %p1, %r6, %r4; mov.u32 %r4, %r6; @%p1 bra E; bra.uni L; E:"},
		{"a compare-and-swap at the word that is read in each round", all,
			"ld.volatile.global.u32 %r4, [%rd1]; L: ld.volatile.global.u64 %rd4, [%b]; atom.global.cas.b32 %r6, [%rd4], %r4, 7; setp.eq.s32 %p1, %r6, %r4; mov.u32 %r4, %r6; @%p1 bra E; bra.uni L; E:"},
		{"a compare-and-swap by those for whom a flag is set", all,
			"ld.volatile.global.u32 %r4, [%rd1]; mov.u32 %r6, 1; L: ld.volatile.global.u32 %r5, [%b]; setp.ne.u32 %p2, %r5, 0; @%p2 atom.global.cas.b32 %r6, [%rd1], %r4, 7; setp.eq.s32 %p1, %r6, %r4; mov.u32 %r4, %r6; @%p1 bra E; bra.uni L; E:"},
		{"what is exchanged for a flag in shared memory", all,
			"L: ld.volatile.global.u32 %r5, [%b]; atom.shared.exch.b32 %r6, [tile], %r5; setp.eq.u32 %p1, %r6, 0; @%p1 bra L;"},
		{"a maximum by compare-and-swap, given up when larger", no,
			"ld.global.u32 %r4, [%a]; L: setp.ge.u32 %p2, %r4, %r20; @%p2 bra E; atom.global.cas.b32 %r6, [%a], %r4, %r20; setp.eq.u32 %p1, %r6, %r4; mov.u32 %r4, %r6; @!%p1 bra L; E:"},
		{"a loop over what it stores elsewhere", no,
			"mov.u32 %r3, 0; L: atom.global.cas.b32 %r1, [%rd1], 0, %r20; setp.ne.u32 %p1, %r1, 0; @%p1 bra N; st.global.u32 [%rd1], %r1; N: add.u32 %r3, %r3, %r22; ld.global.u32 %r2, [%b]; setp.lt.u32 %p2, %r3, %r2; @%p2 bra L;"},
		{"a lock", all, "L: atom.global.cas.b32 %r1, [lock], 0, 1; setp.ne.s32 %p1, %r1, 0; @%p1 bra L; st.volatile.global.u32 [lock], 0;"},
		{"a lock by exchange", all, "mov.u32 %r2, 1; L: atom.global.exch.b32 %r1, [lock], %r2; setp.eq.s32 %p1, %r1, 1; @%p1 bra L;"},
		{"work from a queue", no,
			"L: atom.global.add.u32 %r1, [%a], 1; setp.ge.u32 %p1, %r1, %r20; @%p1 bra E; mul.wide.u32 %rd4, %r1, 4; add.s64 %rd5, %b, %rd4; st.global.u32 [%rd5], %r1; bra L; E:"},
		{"work from a queue that one thread asks for its block", no,
			"setp.ne.u32 %p2, %r23, 0; L: @%p2 bra M; atom.global.add.u32 %r1, [%a], 1; st.shared.u32 [tile], %r1; M: bar.sync 0; ld.shared.u32 %r2, [tile]; bar.sync 0; setp.ge.u32 %p1, %r2, %r20; @%p1 bra E; mul.wide.u32 %rd4, %r2, 4; add.s64 %rd5, %b, %rd4; st.global.u32 [%rd5], %r2; bra L; E:"},
		{"work from a queue that one lane asks for its warp", no,
			"setp.ne.u32 %p2, %r23, 0; L: mov.u32 %r1, 0; @%p2 bra M; atom.global.add.u32 %r1, [%a], 32; M: shfl.sync.idx.b32 %r2, %r1, 0, 31, -1; add.u32 %r3, %r2, %r23; setp.ge.u32 %p1, %r3, %r20; @%p1 bra E; mul.wide.u32 %rd4, %r3, 4; add.s64 %rd5, %b, %rd4; st.global.u32 [%rd5], %r3; bra L; E:"},
		{"a thread decides by control alone", earlier,
			"mov.u32 %r2, 0; L: ld.volatile.global.u32 %r1, [%rd1+-4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra N; mov.u32 %r2, 1; N: setp.eq.u32 %p2, %r2, 0; @%p2 bra L; st.volatile.global.u32 [%rd1], 1;"},

		{"a counter compared with the grid's size", all, "red.global.add.u32 [%a], 1; L: ld.volatile.global.u32 %r1, [%a]; setp.lt.u32 %p1, %r1, %r22; @%p1 bra L;"},
		{"the grid's size through shared memory", all,
			"st.shared.u32 [tile], %r22; L: ld.volatile.global.u32 %r1, [%rd1]; ld.shared.u32 %r2, [tile]; sub.u32 %r3, %r1, %r2; setp.ne.u32 %p1, %r3, 0; @%p1 bra L;"},
		{"a counter compared with a parameter", all, "L: ld.volatile.global.u32 %r1, [%rd1]; setp.lt.u32 %p1, %r1, %r20; @%p1 bra L;"},
		{"a counter compared with a constant", all, "L: ld.volatile.global.u32 %r1, [%rd1]; setp.lt.u32 %p1, %r1, 64; @%p1 bra L;"},
		{"a counter read by an atomic operation", all, "L: atom.global.add.u32 %r1, [%a], 0; setp.ne.u32 %p1, %r1, 64; @%p1 bra L;"},
		{"a counter read by a compare-and-swap that changes nothing", all, "L: atom.global.cas.b32 %r1, [%a], 64, 64; setp.ne.u32 %p1, %r1, 64; @%p1 bra L;"},
		{"a compare-and-swap awaited", all, "L: atom.global.cas.b32 %r1, [%a], 64, 0; setp.ne.u32 %p1, %r1, 64; @%p1 bra L;"},
		{"a compare-and-swap repeated until it fails", all,
			"ld.global.u32 %r4, [%a]; L: atom.global.cas.b32 %r6, [%a], %r4, %r20; setp.eq.u32 %p1, %r6, %r4; mov.u32 %r4, %r6; @%p1 bra L;"},
		{"a word that the last block to arrive changes", all, "ld.volatile.global.u32 %r2, [%b]; L: ld.volatile.global.u32 %r1, [%b]; setp.eq.u32 %p1, %r1, %r2; @%p1 bra L;"},
		{"a barrier that loses patience", all,
			"mov.u32 %r5, 0; L: ld.volatile.global.u32 %r1, [%a]; setp.eq.u32 %p1, %r1, %r20; @%p1 bra E; add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 100000; @%p2 bra L; E:"},
		{"one flag for all", all, "L: ld.volatile.global.u32 %r1, [%b]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"a flag for each block, by thread", all, "L: ld.volatile.global.u32 %r1, [%rd2]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"a flag by way of global memory", all,
			"mov.u32 %r3, 0; L: ld.volatile.global.u32 %r1, [%a]; st.global.u32 [%b], %r1; ld.global.u32 %r2, [%b+4]; setp.lt.u32 %p2, %r2, %r22; @%p2 bra L;"},
		{"one flag for all, behind a fence", all, "L: membar.gl; ld.global.u32 %r1, [%b]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; st.global.u32 [%b], 1;"},
		{"a group's counter", all, "red.global.add.u32 [%rd1], 1; L: ld.volatile.global.u32 %r1, [%rd1]; setp.ne.u32 %p1, %r1, 8; @%p1 bra L;"},
		{"an address from memory", all, "ld.global.u64 %rd4, [%a]; L: ld.volatile.global.u32 %r1, [%rd4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"in a function", all, "L: { .param .b64 x; .param .b32 y; st.param.b64 [x], %a; call (y), read, (x); ld.param.b32 %r1, [y]; } setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"a return in place of a branch", all, "L: ld.volatile.global.u32 %r1, [%b]; setp.ne.u32 %p1, %r1, 0; @%p1 ret; bra L;"},
		{"one thread waits, the block loops", all,
			"L: setp.ne.u32 %p2, %r23, 0; @%p2 bra M; ld.volatile.global.u32 %r1, [%b]; st.shared.u32 [tile], %r1; M: bar.sync 0; ld.shared.u32 %r2, [tile]; setp.eq.u32 %p1, %r2, 0; @%p1 bra L;"},
		{"through a reduction", all, "L: ld.volatile.global.u32 %r1, [%b]; setp.eq.u32 %p1, %r1, 0; bar.red.or.pred %p2, 0, %p1; @%p2 bra L;"},
		{"a loop with two entries", all, "setp.eq.u32 %p1, %r23, 0; @%p1 bra M; L: add.u32 %r1, %r1, 1; M: ld.volatile.global.u32 %r1, [%b]; setp.eq.u32 %p2, %r1, 0; @%p2 bra L;"},
		{"beside instructions without operands", all,
			"L: ld.param.u32; atom.global.add.u32; setp.eq.u32; bar.red.or.pred %p2, 0, %p1; ld.volatile.global.u32 %r1, [%b]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"a switch", all, "ts: .branchtargets L, E; L: ld.volatile.global.u32 %r1, [%b]; brx.idx %r1, ts; E:"},
		// Accesses that poll, by any instruction.
		{"an ordinary read of what is written", all, "st.global.u32 [%rd1], 1; L: ld.global.u32 %r1, [%rd1+4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"the same between barriers", all, "st.global.u32 [%rd1], 1; L: bar.sync 0; ld.global.u32 %r1, [%rd1+4]; bar.sync 0; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"the same, read only", all, "st.global.u32 [%rd1], 1; L: ld.global.nc.u32 %r1, [%rd1+4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"the same, uniform", all, "st.global.u32 [%rd1], 1; L: ldu.global.u32 %r1, [%rd1+4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"a surface", all, "L: suld.b.1d.b32.trap {%r1}, [%rd4, {%r21}]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"an ordinary read of what a surface may be", all, "ld.global.u64 %rd4, [%a]; sust.b.1d.b32.trap [%rd4, {%r21}], {%r1}; L: ld.global.u32 %r1, [%rd1+4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"the same, reduced", all, "ld.global.u64 %rd4, [%a]; sured.b.add.1d.u32.trap [%rd4, {%r21}], %r1; L: ld.global.u32 %r1, [%rd1+4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"an asynchronous copy", all, "L: cp.async.ca.shared.global [tile], [%rd1], 4; cp.async.wait_all; ld.shared.u32 %r1, [tile]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"a matrix", all, "st.global.u32 [%rd1], 1; L: wmma.load.c.sync.aligned.row.m16n16k16.f32 {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}, [%rd1]; setp.eq.f32 %p1, %f1, 0f00000000; @%p1 bra L;"},
		{"several words in turns", all, "st.global.u32 [%rd1], 1; L: add.u32 %r4, %r4, 4; and.b32 %r4, %r4, 60; cvt.u64.u32 %rd4, %r4; add.s64 %rd5, %a, %rd4; ld.global.u32 %r1, [%rd5]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"by steps that may be nothing", all, "st.global.u32 [%rd1], 1; cvt.u64.u32 %rd4, %r20; L: add.s64 %rd1, %rd1, %rd4; ld.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"a byte of an index", all, "L: add.u32 %r4, %r4, 1; cvt.u32.u8 %r5, %r4; mul.wide.u32 %rd4, %r5, 4; add.s64 %rd5, %a, %rd4; ld.volatile.global.u32 %r1, [%rd5]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"an index that is halved", all, "L: add.u32 %r4, %r4, 1; shr.u32 %r5, %r4, 20; mul.wide.u32 %rd4, %r5, 4; add.s64 %rd5, %a, %rd4; ld.volatile.global.u32 %r1, [%rd5]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"an index that comes round", all, "L: add.u32 %r4, %r4, 1; mul.lo.u32 %r5, %r4, 0x80000000; mul.wide.u32 %rd4, %r5, 4; add.s64 %rd5, %a, %rd4; ld.volatile.global.u32 %r1, [%rd5]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"an index of an inner loop", all,
			"K: mov.u32 %r4, 0; L: add.u32 %r4, %r4, 1; mul.wide.u32 %rd4, %r4, 4; add.s64 %rd5, %a, %rd4; ld.volatile.global.u32 %r1, [%rd5]; setp.lt.u32 %p1, %r4, 64; @%p1 bra L; setp.eq.u32 %p2, %r1, 0; @%p2 bra K;"},
		{"one round polls, another goes on", all,
			"L: ld.volatile.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; add.s64 %rd1, %rd1, 4; add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 64; @%p2 bra L;"},
		{"all words, over and over", all,
			"L: mov.u32 %r5, 0; mov.u32 %r6, 0; mov.u64 %rd4, %a; M: ld.volatile.global.u32 %r1, [%rd4]; add.u32 %r6, %r6, %r1; add.s64 %rd4, %rd4, 4; add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 64; @%p2 bra M; setp.lt.u32 %p1, %r6, 64; @%p1 bra L;"},
		{"additions of nothing", all, "L: atom.global.add.u32 %r1, [%rd1+4], 0; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"additions of what may be nothing", all, "L: atom.global.add.u32 %r1, [%a], %r23; setp.lt.u32 %p1, %r1, %r20; @%p1 bra L;"},
		{"additions that index nothing", all, "L: atom.global.add.u32 %r1, [%a], 1; setp.lt.u32 %p1, %r1, %r20; @%p1 bra L;"},
		{"additions until there is less", all, "L: atom.global.add.u32 %r1, [%a], 1; mul.wide.u32 %rd4, %r1, 4; add.s64 %rd5, %b, %rd4; st.global.u32 [%rd5], %r1; setp.ge.u32 %p1, %r1, %r20; @%p1 bra L;"},
		{"additions until a bit is set", all, "L: atom.global.add.u32 %r1, [%a], 1; mul.wide.u32 %rd4, %r1, 4; add.s64 %rd5, %b, %rd4; st.global.u32 [%rd5], %r1; and.b32 %r2, %r1, 0x100; setp.lt.u32 %p1, %r2, 1; @%p1 bra L;"},
		{"increments that wrap", all, "L: atom.global.inc.u32 %r1, [%a], 1; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"a minimum", all, "L: atom.global.min.u32 %r1, [%a], %r20; setp.ne.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"a lock given back by the next block", all, "L: atom.global.cas.b32 %r1, [%rd1+4], 1, 1; setp.ne.u32 %p1, %r1, 1; @%p1 bra L; st.volatile.global.u32 [%rd1], 1;"},
		{"a compare-and-swap with what is not always taken over", all,
			"L: atom.global.cas.b32 %r6, [%a], %r4, %r20; setp.eq.u32 %p1, %r6, %r4; @%p3 mov.u32 %r4, %r6; @!%p1 bra L;"},
		{"a compare-and-swap at one address and another", all,
			"mov.u64 %rd4, %a; mov.u64 %rd5, %b; L: atom.global.cas.b32 %r6, [%rd4], %r4, %r20; setp.eq.u32 %p1, %r6, %r4; mov.u32 %r4, %r6; mov.u64 %rd6, %rd4; mov.u64 %rd4, %rd5; mov.u64 %rd5, %rd6; @!%p1 bra L;"},
		{"a grid barrier without locks", all,
			"st.volatile.global.u32 [%rd1], 1; setp.ne.u32 %p2, %r21, 0; @%p2 bra M; L: ld.volatile.global.u32 %r1, [%rd2]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; M: ld.volatile.global.u32 %r1, [%rd1+1024]; setp.eq.u32 %p1, %r1, 0; @%p1 bra M;"},

		{"numbers that are drawn and given back", all,
			"L: atom.global.add.u32 %r1, [%a], 1; mul.wide.u32 %rd4, %r1, 4; add.s64 %rd5, %b, %rd4; st.global.u32 [%rd5], %r1; red.global.add.u32 [%a], -1; setp.lt.u32 %p1, %r1, %r20; @%p1 bra L;"},
		{"a compare-and-swap of what the loop writes", all,
			"ld.global.u32 %r4, [%a]; L: st.global.u32 [%a], 0; atom.global.cas.b32 %r6, [%a], %r4, %r20; setp.eq.u32 %p1, %r6, %r4; mov.u32 %r4, %r6; @!%p1 bra L;"},
		{"back and forth by two of three ways round", all,
			"st.global.u32 [%rd1], 1; L: ld.volatile.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @!%p1 bra M; add.s64 %rd1, %rd1, 4; bra L; M: setp.eq.u32 %p2, %r1, 1; @!%p2 bra N; add.s64 %rd1, %rd1, -4; bra L; N: add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, 64; @%p3 bra L;"},

		// Loops that would never end if nothing wrote under another name.
		{"an ordinary read of what is written by another name", all, "st.global.u32 [%b], 1; L: ld.global.u32 %r1, [%a]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"the same between barriers, by its bits", all,
			"st.global.u32 [%b], 1; L: bar.sync 0; ld.global.v2.u32 {%r1, %r2}, [%rd1+8]; and.b32 %r3, %r1, %r2; setp.eq.u32 %p1, %r3, 0; @%p1 bra L;"},
		{"the same by one thread", all,
			"st.global.u32 [%b], 1; setp.ne.u32 %p2, %r23, 0; L: @%p2 bra M; ld.global.u32 %r1, [%rd1+4]; st.shared.u32 [tile], %r1; M: bar.sync 0; ld.shared.u32 %r2, [tile]; bar.sync 0; setp.eq.u32 %p1, %r2, 0; @%p1 bra L;"},
		{"the same in a reduction", all,
			"st.global.u32 [%b], 1; L: ld.global.u32 %r1, [%rd1+4]; setp.eq.u32 %p1, %r1, 0; bar.red.or.pred %p2, 0, %p1; @%p2 bra L;"},

		// Accesses that don't poll.
		{"an ordinary read of what is not written", no, "st.global.u32 [%b], 1; L: ld.global.u32 %r1, [%a]; add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, %r1; @%p1 bra L;"},
		{"the same where nothing is written", no, "L: ld.global.u32 %r1, [%a]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"a search along an array", no, "st.global.u32 [%rd1], 1; L: add.s64 %rd1, %rd1, 4; ld.global.u32 %r1, [%rd1]; setp.ne.u32 %p1, %r1, 7; @%p1 bra L;"},
		{"the same by the grid's stride", no,
			"st.global.u32 [%rd1], 1; mov.u32 %r5, %ntid.x; mul.lo.u32 %r6, %r5, %r22; L: add.u32 %r23, %r23, %r6; mul.wide.u32 %rd4, %r23, 4; add.s64 %rd5, %a, %rd4; ld.volatile.global.u32 %r1, [%rd5]; setp.ne.u32 %p1, %r1, 7; @%p1 bra L;"},
		{"a bound that is read in each round", no, "st.global.u32 [%rd1], 1; L: add.u32 %r5, %r5, 1; ld.global.u32 %r1, [%a]; setp.lt.u32 %p1, %r5, %r1; @%p1 bra L;"},
		{"what a list names", no,
			"L: ld.global.u32 %r1, [%b]; mul.wide.u32 %rd4, %r1, 4; add.s64 %rd5, %a, %rd4; ld.global.u32 %r2, [%rd5]; setp.eq.u32 %p1, %r2, 0; @%p1 bra E; st.global.u32 [%rd5], 0; add.s64 %b, %b, 4; add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, %r20; @%p2 bra L; E:"},

		// Look-backs, and similar kernels that are none.
		{"a window of earlier blocks", earlier,
			"sub.s32 %r3, %r21, %r23; sub.s32 %r3, %r3, 1; K: mul.wide.s32 %rd4, %r3, 4; add.s64 %rd5, %a, %rd4; L: ld.volatile.global.u32 %r1, [%rd5]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; sub.s32 %r3, %r3, 32; setp.eq.u32 %p2, %r1, 1; @%p2 bra K; st.volatile.global.u32 [%rd1], 1;"},
		{"a row for each block", earlier,
			"setp.gt.u32 %p3, %r23, 255; @%p3 bra E; shl.b32 %r3, %r21, 8; add.u32 %r3, %r3, %r23; mul.wide.u32 %rd4, %r3, 4; add.s64 %rd5, %a, %rd4; L: ld.volatile.global.u32 %r1, [%rd5+-1024]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; st.volatile.global.u32 [%rd5], 1; E:"},
		{"rows that overlap", all,
			"shl.b32 %r3, %r21, 8; add.u32 %r3, %r3, %r23; mul.wide.u32 %rd4, %r3, 4; add.s64 %rd5, %a, %rd4; L: ld.volatile.global.u32 %r1, [%rd5+-1024]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; st.volatile.global.u32 [%rd5], 1;"},
		{"the first block writes to the first word", earlier,
			"setp.eq.u32 %p2, %r21, 0; @%p2 bra F; L: ld.volatile.global.u32 %r1, [%rd1+-4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; st.volatile.global.u32 [%rd1], 1; bra E; F: st.volatile.global.u32 [%a], 1; E:"},
		{"another block writes to the first word", all,
			"setp.eq.u32 %p2, %r21, 7; @%p2 bra F; L: ld.volatile.global.u32 %r1, [%rd1+-4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; st.volatile.global.u32 [%rd1], 1; bra E; F: st.volatile.global.u32 [%a], 1; E:"},
		{"its own flag, which the block before sets", earlier, "L: ld.volatile.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; st.volatile.global.u32 [%rd1+4], 1;"},
		{"a flag before it that is written from behind", all, "L: ld.volatile.global.u32 %r1, [%rd1+-4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; st.volatile.global.u32 [%rd1+-8], 1;"},
		{"half of the flag before and half of its own", all, "L: ld.volatile.global.u64 %rd4, [%rd1+-4]; setp.eq.u64 %p1, %rd4, 0; @%p1 bra L; st.volatile.global.u32 [%rd1], 1;"},
		{"an index that is turned round", all,
			"sub.u32 %r3, %r22, %r21; mul.wide.u32 %rd4, %r3, 4; add.s64 %rd5, %a, %rd4; L: ld.volatile.global.u32 %r1, [%rd5+-4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; st.volatile.global.u32 [%rd5], 1;"},
		{"a group of blocks", all,
			"shr.u32 %r3, %r21, 3; mul.wide.u32 %rd4, %r3, 4; add.s64 %rd5, %a, %rd4; L: ld.volatile.global.u32 %r1, [%rd5+-4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; st.volatile.global.u32 [%rd5], 1;"},
		{"flags by another name", all, "L: ld.volatile.global.u32 %r1, [%rd1+-4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; st.volatile.global.u32 [%b], 1;"},
		{"flags of two names", all, "L: ld.volatile.global.u32 %r1, [%rd1+-4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; st.global.u32 [%rd1], 1; st.release.gpu.global.u32 [%b], 1;"},
		{"flags counted up", all, "L: ld.volatile.global.u32 %r1, [%rd1+-4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; red.global.add.u32 [%a], 1;"},
		{"tickets drawn over and over", all,
			"K: atom.global.add.u32 %r3, [%b], 1; mul.wide.u32 %rd4, %r3, 4; add.s64 %rd5, %a, %rd4; L: ld.volatile.global.u32 %r1, [%rd5+-4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; st.volatile.global.u32 [%rd5], 1; setp.lt.u32 %p2, %r3, %r20; @%p2 bra K;"},
		{"tickets that are given back", all,
			"atom.global.add.u32 %r3, [%b], 1; mul.wide.u32 %rd4, %r3, 4; add.s64 %rd5, %a, %rd4; L: ld.volatile.global.u32 %r1, [%rd5+-4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; st.volatile.global.u32 [%rd5], 1; st.global.u32 [%b], 0;"},
		{"tickets counted down", all,
			"atom.global.add.u32 %r3, [%b], -1; mul.wide.u32 %rd4, %r3, 4; add.s64 %rd5, %a, %rd4; L: ld.volatile.global.u32 %r1, [%rd5+-4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; st.volatile.global.u32 [%rd5], 1;"},
		{"look-backs in two orders", all,
			"atom.global.add.u32 %r3, [lock], 1; mul.wide.u32 %rd4, %r3, 4; add.s64 %rd5, %b, %rd4; L: ld.volatile.global.u32 %r1, [%rd5+-4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; M: ld.volatile.global.u32 %r1, [%rd1+-4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra M; st.global.u32 [%rd1], 1; st.global.u32 [%rd5], 1;"},
		{"a look-back and a barrier", all,
			"L: ld.volatile.global.u32 %r1, [%rd1+-4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; st.volatile.global.u32 [%rd1], 1; M: ld.volatile.global.u32 %r1, [%a+4096]; setp.eq.u32 %p1, %r1, 0; @%p1 bra M;"},

		// Kernels similar to harmless ones.
		{"an ordinary read in a function, of what the kernel writes", all,
			"st.global.u32 [%rd1], 1; L: { .param .b64 x; .param .b32 y; st.param.b64 [x], %rd2; call (y), peek, (x); ld.param.b32 %r1, [y]; } setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"the same of what it does not write", no,
			"L: { .param .b64 x; .param .b32 y; st.param.b64 [x], %rd2; call (y), peek, (x); ld.param.b32 %r1, [y]; } setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"an index whose shift leaves nothing", all,
			"L: add.u32 %r4, %r4, 0x10000; shl.b32 %r5, %r4, 16; mul.wide.u32 %rd4, %r5, 4; add.s64 %rd5, %a, %rd4; ld.volatile.global.u32 %r1, [%rd5]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"an index whose factors leave nothing", all,
			"L: add.u32 %r4, %r4, 1; mul.lo.u32 %r6, %r4, 65536; mul.lo.u32 %r5, %r6, 65536; mul.wide.u32 %rd4, %r5, 4; add.s64 %rd5, %a, %rd4; ld.volatile.global.u32 %r1, [%rd5]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"long steps whose shift leaves nothing", all,
			"L: add.u32 %r4, %r4, 0x8000000; shl.b32 %r5, %r4, 5; mul.wide.u32 %rd4, %r5, 4; add.s64 %rd5, %a, %rd4; ld.volatile.global.u32 %r1, [%rd5]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"steps of the grid whose shift leaves nothing", all,
			"L: add.u32 %r4, %r4, %r22; shl.b32 %r5, %r4, 15; mul.wide.u32 %rd4, %r5, 4; add.s64 %rd5, %a, %rd4; ld.volatile.global.u32 %r1, [%rd5]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"an index of 16 bits", all,
			".reg .b16 %h; L: add.u16 %h, %h, 0x1000; mul.wide.u16 %r5, %h, 4; cvt.u64.u32 %rd4, %r5; add.s64 %rd5, %a, %rd4; ld.volatile.global.u32 %r1, [%rd5]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"an index that stays at the largest", all,
			"L: add.sat.s32 %r5, %r5, 0x8000000; mul.wide.u32 %rd4, %r5, 4; add.s64 %rd5, %a, %rd4; ld.volatile.global.u32 %r1, [%rd5]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"drawn numbers whose factors leave nothing", all,
			"L: atom.global.add.u32 %r1, [%rd1+4], 1; mul.lo.u32 %r2, %r1, 65536; mul.lo.u32 %r3, %r2, 65536; mul.wide.u32 %rd4, %r3, 4; add.s64 %rd5, %b, %rd4; st.global.u32 [%rd5], %r1; setp.ge.u32 %p1, %r3, %r20; @%p1 bra E; setp.ge.s32 %p2, %r1, 0; @%p2 bra L; E: atom.global.or.b32 %r2, [%rd1], 0x80000000;"},
		{"the same, awaited by the numbers alone", all,
			"L: atom.global.add.u32 %r1, [%rd1+4], 1; mul.lo.u32 %r2, %r1, 65536; mul.lo.u32 %r3, %r2, 65536; mul.wide.u32 %rd4, %r3, 4; add.s64 %rd5, %b, %rd4; st.global.u32 [%rd5], %r1; setp.ge.u32 %p1, %r3, %r20; @!%p1 bra L;"},
		{"long factors that leave nothing", all,
			"L: add.u64 %rd4, %rd4, 1; shl.b64 %rd5, %rd4, 16; shl.b64 %rd6, %rd5, 16; shl.b64 %rd7, %rd6, 16; shl.b64 %rd8, %rd7, 16; add.s64 %rd9, %rd1, %rd8; ld.volatile.global.u32 %r1, [%rd9+4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"drawn numbers until the highest bit is set", all,
			"L: atom.global.add.u32 %r1, [%rd1+4], 1; and.b32 %r2, %r1, 0; mul.wide.u32 %rd4, %r2, 4; add.s64 %rd5, %b, %rd4; st.global.u32 [%rd5], %r1; setp.lt.u32 %p1, %r1, 0x80000000; @%p1 bra L; atom.global.or.b32 %r2, [%rd1], 0x80000000;"},
		{"the same by a register", all,
			"mov.u32 %r3, 0x80000000; L: atom.global.add.u32 %r1, [%rd1+4], 1; and.b32 %r2, %r1, 0; mul.wide.u32 %rd4, %r2, 4; add.s64 %rd5, %b, %rd4; st.global.u32 [%rd5], %r1; setp.lt.u32 %p1, %r1, %r3; @%p1 bra L; atom.global.or.b32 %r2, [%rd1], 0x80000000;"},
		{"a constant number of numbers", no,
			"L: atom.global.add.u32 %r1, [%a], 1; mul.wide.u32 %rd4, %r1, 4; add.s64 %rd5, %b, %rd4; st.global.u32 [%rd5], %r1; setp.lt.u32 %p1, %r1, 0x100000; @%p1 bra L;"},
		{"a larger number, drawn 32 at a time", no,
			"L: atom.global.add.u32 %r1, [%a], 32; mul.wide.u32 %rd4, %r1, 4; add.s64 %rd5, %b, %rd4; st.global.u32 [%rd5], %r1; setp.lt.u32 %p1, %r1, 0x10000000; @%p1 bra L;"},
		{"memory that others give back", all,
			"L: { .param .b64 x; .param .b64 y; st.param.b64 [x], 64; call (y), malloc, (x); ld.param.b64 %rd5, [y]; } setp.eq.u64 %p1, %rd5, 0; @%p1 bra L; st.global.u64 [%rd1], %rd5;"},
		{"memory, once", no, "{ .param .b64 x; .param .b64 y; st.param.b64 [x], 64; call (y), malloc, (x); ld.param.b64 %rd5, [y]; } st.global.u64 [%rd1], %rd5;"},
		{"a constant pointer to what is polled", all,
			"ld.const.u64 %rd5, [pointer]; st.u32 [%rd5], 1; L: bar.sync 0; ld.global.u32 %r1, [flags+4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"a constant pointer to what looks back", all,
			"ld.const.u64 %rd5, [pointer]; mul.wide.u32 %rd7, %r21, 4; add.s64 %rd6, %rd5, %rd7; mov.u64 %rd8, flags; add.s64 %rd9, %rd8, %rd7; st.u32 [%rd6+4], 1; L: ld.volatile.global.u32 %r1, [%rd9+-4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; st.volatile.global.u32 [%rd9], 1;"},
		{"a poll through a constant pointer", all,
			"st.global.u32 [flags], 1; ld.const.u64 %rd5, [pointer]; L: ld.global.u32 %r1, [%rd5+4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"the same, aligned by shifts", all,
			"st.global.u32 [flags], 1; ld.const.u64 %rd5, [pointer]; shr.u64 %rd6, %rd5, 4; shl.b64 %rd7, %rd6, 4; L: ld.global.u32 %r1, [%rd7+4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"the same through a constant that the host sets", all,
			"st.global.u32 [flags], 1; ld.const.u64 %rd5, [table]; shr.u64 %rd6, %rd5, 4; shl.b64 %rd7, %rd6, 4; L: ld.global.u32 %r1, [%rd7+4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"the same through a generic address of the constant", all,
			"st.global.u32 [flags], 1; mov.u64 %rd4, pointer; cvta.const.u64 %rd4, %rd4; ld.u64 %rd5, [%rd4]; shr.u64 %rd6, %rd5, 4; shl.b64 %rd7, %rd6, 4; L: ld.global.u32 %r1, [%rd7+4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"steps and factors of 64 bits", no,
			"st.global.u32 [%rd1], 1; L: add.s64 %rd4, %rd4, 0x8000000; shl.b64 %rd5, %rd4, 5; add.s64 %rd6, %a, %rd5; ld.global.u32 %r1, [%rd6]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"a parameter loaded with another", all,
			"ld.param.v2.u64 {%rd4, %rd5}, [s]; ld.param.u64 %rd6, [s+8]; st.global.u32 [%rd5], 1; L: ld.global.u32 %r1, [%rd6+4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"a parameter loaded by a pointer and by its name", all,
			"mov.b64 %rd4, s; ld.param.u64 %rd5, [%rd4+8]; ld.param.u64 %rd6, [s+8]; st.global.u32 [%rd5], 1; L: ld.global.u32 %r1, [%rd6+4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"the same by a pointer that moves", all,
			"mov.b64 %rd4, s; add.s64 %rd4, %rd4, %rd2; ld.param.u64 %rd5, [%rd4+8]; ld.param.u64 %rd6, [s+8]; st.global.u32 [%rd5], 1; L: ld.global.u32 %r1, [%rd6+4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		// That these loops also end by themselves leaves what they read and write to tell.
		{"a counted loop, and a parameter loaded with another", all,
			"ld.param.v2.u64 {%rd4, %rd5}, [s]; ld.param.u64 %rd6, [s+8]; st.global.u32 [%rd5], 1; L: ld.global.u32 %r1, [%rd6+4]; add.u32 %r5, %r5, 1; setp.gt.u32 %p2, %r5, 99; @%p2 bra E; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; E:"},
		{"a counted loop, and a parameter loaded by a pointer and by its name", all,
			"mov.b64 %rd4, s; ld.param.u64 %rd5, [%rd4+8]; ld.param.u64 %rd6, [s+8]; st.global.u32 [%rd5], 1; L: ld.global.u32 %r1, [%rd6+4]; add.u32 %r5, %r5, 1; setp.gt.u32 %p2, %r5, 99; @%p2 bra E; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; E:"},
		{"a pointer that a function returns", all,
			"{ .param .b64 x; .param .b64 y; st.param.b64 [x], %rd1; call (y), same, (x); ld.param.b64 %rd5, [y]; } st.global.u32 [%rd5], 1; L: ld.global.u32 %r1, [%rd1+4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"tickets from one of two counters", all,
			"and.b32 %r4, %r21, 1; mul.wide.u32 %rd6, %r4, 4; add.s64 %rd7, %b, %rd6; atom.global.add.u32 %r3, [%rd7], 1; mul.wide.u32 %rd4, %r3, 4; add.s64 %rd5, %a, %rd4; L: ld.volatile.global.u32 %r1, [%rd5+-4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; st.volatile.global.u32 [%rd5], 1;"},
		// These only look as if the loop ended by itself.
		{"a compare-and-swap of what is not a number", all,
			"L: atom.global.cas.b32 %f6, [%a], %f4, %f4; setp.eq.f32 %p1, %f6, %f4; mov.f32 %f4, %f6; @!%p1 bra L;"},
		{"drawn numbers, and another word of shared memory that stays", all,
			".shared .align 4 .u32 other; L: atom.global.add.u32 %r1, [%rd1+4], 1; st.shared.u32 [tile], %r1; bar.sync 0; ld.shared.u32 %r2, [other]; mul.wide.u32 %rd4, %r2, 4; add.s64 %rd5, %b, %rd4; st.global.u32 [%rd5], %r2; setp.ge.u32 %p1, %r2, %r20; @%p1 bra E; setp.lt.u32 %p2, %r1, 0x80000000; @%p2 bra L; E: atom.global.or.b32 %r2, [%rd1], 0x80000000;"},
		{"drawn numbers, and the register of a lane that draws none", all,
			"setp.ne.u32 %p3, %r23, 0; L: mov.u32 %r1, 0; @%p3 bra M; atom.global.add.u32 %r1, [%rd1+4], 1; M: shfl.sync.idx.b32 %r2, %r1, 1, 31, -1; mul.wide.u32 %rd4, %r2, 4; add.s64 %rd5, %b, %rd4; st.global.u32 [%rd5], %r2; setp.ge.u32 %p1, %r2, %r20; @%p1 bra E; setp.lt.u32 %p2, %r1, 0x80000000; @%p2 bra L; E: atom.global.or.b32 %r2, [%rd1], 0x80000000;"},
		{"steps that are nothing in the grid's second row", all,
			"mov.u32 %r5, %ctaid.y; mov.u32 %r6, 1; sub.u32 %r6, %r6, %r5; L: add.u32 %r4, %r4, %r6; mul.wide.u32 %rd4, %r4, 4; add.s64 %rd5, %a, %rd4; ld.volatile.global.u32 %r1, [%rd5]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"steps of the grid's height whose shift leaves nothing", all,
			"mov.u32 %r6, %nctaid.y; L: add.u32 %r4, %r4, %r6; shl.b32 %r5, %r4, 16; shl.b32 %r5, %r5, 8; mul.wide.u32 %rd4, %r5, 4; add.s64 %rd5, %a, %rd4; ld.volatile.global.u32 %r1, [%rd5]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"draws of nothing in the grid's second row", all,
			"mov.u32 %r5, %ctaid.y; mov.u32 %r6, 1; sub.u32 %r6, %r6, %r5; L: atom.global.add.u32 %r1, [%a], %r6; setp.ge.u32 %p1, %r1, %r20; @%p1 bra E; mul.wide.u32 %rd4, %r1, 4; add.s64 %rd5, %b, %rd4; st.global.u32 [%rd5], %r1; bra L; E:"},
		{"a parameter loaded in halves, or another", all,
			"ld.param.v2.u32 {%r4, %r5}, [a]; mov.b64 %rd4, {%r4, %r5}; setp.eq.u32 %p3, %r23, 0; selp.b64 %rd5, %rd4, %b, %p3; st.global.u32 [%a], 1; L: ld.global.u32 %r1, [%rd5+4]; add.u32 %r5, %r5, 1; setp.gt.u32 %p2, %r5, 99; @%p2 bra E; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; E:"},
		{"a parameter loaded as a fraction, or another", all,
			"ld.param.f64 %fd1, [a]; mov.b64 %rd4, %fd1; setp.eq.u32 %p3, %r23, 0; selp.b64 %rd5, %rd4, %b, %p3; st.global.u32 [%a], 1; L: ld.global.u32 %r1, [%rd5+4]; add.u32 %r5, %r5, 1; setp.gt.u32 %p2, %r5, 99; @%p2 bra E; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; E:"},
		{"a parameter loaded in halves, or shared memory", all,
			"ld.param.v2.u32 {%r4, %r5}, [a]; mov.b64 %rd4, {%r4, %r5}; mov.u64 %rd6, tile; cvta.shared.u64 %rd6, %rd6; setp.eq.u32 %p3, %r23, 0; selp.b64 %rd5, %rd4, %rd6, %p3; L: ld.volatile.u32 %r1, [%rd5]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"a parameter loaded as two registers shifted together, or another", all,
			"ld.param.u32 %r4, [a]; ld.param.u32 %r6, [a+4]; cvt.u64.u32 %rd4, %r4; cvt.u64.u32 %rd6, %r6; shl.b64 %rd6, %rd6, 32; or.b64 %rd4, %rd4, %rd6; setp.eq.u32 %p3, %r23, 0; selp.b64 %rd5, %rd4, %b, %p3; st.global.u32 [%a], 1; L: ld.global.u32 %r1, [%rd5+4]; add.u32 %r5, %r5, 1; setp.gt.u32 %p2, %r5, 99; @%p2 bra E; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; E:"},
		{"steps of a large grid whose shift leaves nothing", all,
			"L: add.u32 %r4, %r4, %r22; shl.b32 %r5, %r4, 12; mul.wide.u32 %rd4, %r5, 4; add.s64 %rd5, %rd1, %rd4; ld.volatile.global.u32 %r1, [%rd5+-4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; st.volatile.global.u32 [%rd1], 1;"},
		{"drawn numbers that are given back under another name", all,
			"L: atom.global.add.u32 %r1, [%a], 1; mul.wide.u32 %rd4, %r1, 4; add.s64 %rd5, %b, %rd4; st.global.u32 [%rd5], %r1; red.global.add.u32 [%b], -1; setp.lt.u32 %p1, %r1, %r20; @%p1 bra L;"},
		{"a predicated poll in a vote", all,
			"setp.eq.u32 %p3, %r23, 0; mov.u32 %r1, 1; L: @%p3 ld.relaxed.gpu.global.u32 %r1, [%b]; setp.ne.u32 %p1, %r1, 0; vote.sync.all.pred %p2, %p1, -1; @!%p2 bra L;"},
		{"a poll by reduction and ordinary load", all, "L: red.global.or.b32 [%a], 0; ld.global.u32 %r1, [%a]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"a poll by store and load", all, "L: st.global.u32 [%a+4], 1; ld.global.u32 %r1, [%a]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"an exchange through a generic address", all, "L: atom.exch.b32 %r1, [%a], 0; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"a poll by a match", all, "L: ld.volatile.global.u32 %r1, [%b]; match.any.sync.b32 %r2, %r1, -1; popc.b32 %r3, %r2; setp.ne.u32 %p1, %r3, 32; @%p1 bra L;"},
		{"a poll by redux", all, "L: ld.volatile.global.u32 %r1, [%b]; redux.sync.min.u32 %r2, %r1, -1; setp.eq.u32 %p1, %r2, 0; @%p1 bra L;"},
		{"a poll kept in local memory", all, "L: ld.volatile.global.u32 %r1, [%b]; st.local.u32 [depot], %r1; ld.local.u32 %r2, [depot]; setp.eq.u32 %p1, %r2, 0; @%p1 bra L;"},
		{"a poll as a wide atomic", all, "L: atom.global.cas.b64 %rd4, [%b], 0, 0; setp.eq.u64 %p1, %rd4, 0; @%p1 bra L;"},
		{"a barrier of clang's cooperative groups", all,
			"membar.gl; setp.ne.u32 %p3, %r23, 0; @%p3 bra E; atom.global.add.u32 %r1, [%a], 1; L: ld.volatile.global.u32 %r2, [%a]; xor.b32 %r3, %r2, %r1; setp.gt.s32 %p1, %r3, -1; @%p1 bra L; E: bar.sync 0;"},
		{"a look-back by two loads of a pair", earlier,
			"L: ld.volatile.global.v2.u32 {%r1, %r2}, [%rd1+-8]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; st.volatile.global.v2.u32 [%rd1], {%r1, %r2};"},
		{"a look-back with a release by reduction", earlier,
			"L: ld.acquire.gpu.global.u32 %r1, [%rd1+-4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; red.release.gpu.global.add.u32 [%rd1], 1;"},
		{"tickets from a counter for each block", all,
			"mul.wide.u32 %rd6, %r21, 4; add.s64 %rd7, %b, %rd6; atom.global.add.u32 %r3, [%rd7], 1; mul.wide.u32 %rd4, %r3, 4; add.s64 %rd5, %a, %rd4; L: ld.volatile.global.u32 %r1, [%rd5+-4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; st.volatile.global.u32 [%rd5], 1;"},
	}
	checkWaits(t, tests)
}

// TestWaitsInAFunction checks loops in functions that the kernel calls.
func TestWaitsInAFunction(t *testing.T) {
	src := moduleOf(`.func await(.param .b64 at) {
	.reg .b64 %rd<2>; .reg .b32 %r<2>; .reg .pred %p<2>;
	ld.param.u64 %rd1, [at];
L:	ld.volatile.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;
	ret;
}
.func again(.param .b64 at) {
	.reg .b64 %rd<2>; .reg .b32 %r<2>; .reg .pred %p<2>;
	ld.param.u64 %rd1, [at];
	ld.volatile.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @!%p1 ret;
	{ .param .b64 x; st.param.b64 [x], %rd1; call again, (x); }
	ret;
}
.entry calls(.param .u64 p) { .param .b64 x; call await, (x); ret; }
.entry recurses(.param .u64 p) { .param .b64 x; call again, (x); ret; }
.func down(.param .b64 at) {
	.reg .b64 %rd<2>; .reg .pred %p<2>;
	ld.param.u64 %rd1, [at];
	st.global.u32 [%rd1+8], 1; ld.global.u64 %rd1, [%rd1]; setp.eq.u64 %p1, %rd1, 0; @%p1 ret;
	{ .param .b64 x; st.param.b64 [x], %rd1; call down, (x); }
	ret;
}
.func count(.param .b64 at) {
	.reg .b64 %rd<2>; .reg .b32 %r<2>; .reg .pred %p<2>;
	ld.param.u64 %rd1, [at];
	atom.global.add.u32 %r1, [%rd1], 0; setp.eq.u32 %p1, %r1, 0; @!%p1 ret;
	{ .param .b64 x; st.param.b64 [x], %rd1; call count, (x); }
	ret;
}
.entry counts(.param .u64 p) { .param .b64 x; call count, (x); ret; }
.entry neither(.param .u64 p) { ret; }
.entry descends(.param .u64 p) { .param .b64 x; call down, (x); ret; }
`)
	m := parse(t, src)
	p, err := ptx.Resolve(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range analyze(m, p).entries {
		want := GridSync
		if e.fn.Name == "neither" || e.fn.Name == "descends" { // nothing synchronizes where one node leads to the next
			want = None
		}
		if e.refused != want {
			t.Errorf("%s: %v (%s), want %v", e.fn.Name, e.refused, e.detail, want)
		}
	}
}

// TestManyLoops checks that the work for nested loops is bounded.
func TestManyLoops(t *testing.T) {
	const n = 3000
	var b strings.Builder
	for i := range n {
		b.WriteString("L" + string(rune('a'+i%26)) + strings.Repeat("x", i/26) + ": ld.volatile.global.u32 %r1, [%rd1+-4];\n")
	}
	for i := n - 1; i >= 0; i-- {
		b.WriteString("setp.eq.u32 %p1, %r1, 0; @%p1 bra L" + string(rune('a'+i%26)) + strings.Repeat("x", i/26) + ";\n")
	}
	m := parse(t, waitingKernel(b.String()))
	p, err := ptx.Resolve(m)
	if err != nil {
		t.Fatal(err)
	}
	if e := analyze(m, p).entries[0]; e.refused != GridSync {
		t.Errorf("%v (%s)", e.refused, e.detail)
	}
}
