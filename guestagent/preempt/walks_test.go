package preempt

import (
	"strings"
	"testing"
)

// search is a binary search for the thread's index, with an instruction in the loop and loads of some
// kind.
func search(with, kind string) string {
	return "mov.u32 %r4, 0; mov.u32 %r5, %r20; L: setp.ge.u32 %p1, %r4, %r5; @%p1 bra E; " + with +
		" add.u32 %r6, %r4, %r5; shr.u32 %r6, %r6, 1; mul.wide.u32 %rd4, %r6, 4; add.s64 %rd5, %a, %rd4; ld" + kind + ".global.u32 %r1, [%rd5];" +
		" setp.lt.u32 %p2, %r1, %r23; @%p2 bra M; mov.u32 %r5, %r6; bra L; M: add.u32 %r4, %r6, 1; bra L; E:"
}

// table inserts the thread's index into a hash table with elements of some size, and ends with other
// instructions.
func table(size, end string) string {
	return "mov.u32 %r4, %r23; L: and.b32 %r5, %r4, 1023; mul.wide.u32 %rd4, %r5, " + size + "; add.s64 %rd5, %a, %rd4; add.u32 %r4, %r4, 1;" +
		" atom.global.cas.b32 %r6, [%rd5], -1, %r23; setp.eq.s32 %p2, %r6, -1; setp.eq.s32 %p3, %r6, %r23; or.pred %p1, %p2, %p3; @!%p1 bra L; " + end
}

// attempts exchanges words in a table, each found by the one before, until one is free or a count has
// ended, which starts at some number and ends with %p2.
func attempts(first, with, count string) string {
	return "mov.u32 %r4, %r23; mov.u32 %r5, " + first + "; L: " + with + " and.b32 %r6, %r4, 1023; mul.wide.u32 %rd4, %r6, 4; add.s64 %rd5, %a, %rd4;" +
		" atom.global.exch.b32 %r4, [%rd5], %r4; setp.eq.u32 %p1, %r4, -1; @%p1 bra E; " + count + " @%p2 bra L; E:"
}

// TestWaitsOrWalks checks loops that end by what the kernel writes, and by themselves.
func TestWaitsOrWalks(t *testing.T) {
	checkWaits(t, []waitTest{
		// Loops that go through what the kernel writes, and synchronize with nothing.
		{"a search in an array that is written", no, "st.global.u32 [%rd1], 1;" + search("", "")},
		{"the same between barriers", all, "st.global.u32 [%rd1], 1;" + search("bar.sync 0;", "")},
		{"the same behind a fence", all, "st.global.u32 [%rd1], 1;" + search("membar.gl;", "")},
		{"the same behind an atomic operation that acquires", all, "st.global.u32 [%rd1], 1;" + search("atom.acquire.gpu.global.add.u32 %r9, [%b], 1;", "")},
		{"the same beside a relaxed one", no, "st.global.u32 [%rd1], 1;" + search("red.relaxed.gpu.global.add.u32 [%b], 1;", "")},
		{"the same by volatile loads", all, "st.global.u32 [%rd1], 1;" + search("", ".volatile")},
		{"the same past the cache", all, "st.global.u32 [%rd1], 1;" + search("", ".cg")},
		{"the same for a time", all, "st.global.u32 [%rd1], 1;" + search("mov.u64 %rd9, %clock64;", "")},
		{"the same with a function that takes a lock", all, "st.global.u32 [%rd1], 1;" + search("{ .param .b64 x; .param .b32 y; st.param.b64 [x], %b; call (y), read, (x); }", "")},
		{"the nodes of a list that is written", no,
			"ld.global.u64 %rd4, [%a]; L: st.global.u32 [%rd4+8], 1; ld.global.u64 %rd4, [%rd4]; setp.ne.s64 %p1, %rd4, 0; @%p1 bra L;"},
		{"two words whose addresses change places", all,
			"st.global.u32 [%rd1], 1; mov.u64 %rd4, %a; add.s64 %rd5, %a, 64; L: ld.global.u32 %r1, [%rd4]; mov.u64 %rd6, %rd4; mov.u64 %rd4, %rd5; mov.u64 %rd5, %rd6; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"two words by turns of a bit", all,
			"st.global.u32 [%rd1], 1; mov.u64 %rd4, 0; L: add.s64 %rd5, %a, %rd4; ld.global.u32 %r1, [%rd5]; xor.b64 %rd4, %rd4, 64; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"two words by turns of a difference", all,
			"st.global.u32 [%rd1], 1; mov.u64 %rd4, 0; L: add.s64 %rd5, %a, %rd4; ld.global.u32 %r1, [%rd5]; sub.s64 %rd4, 64, %rd4; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"a pointer that is loaded in each round", all,
			"st.global.u32 [%rd1], 1; L: ld.global.u64 %rd4, [%b]; ld.global.u32 %r1, [%rd4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"a search by a function", no,
			"st.global.u32 [%rd1], 1; mov.u64 %rd4, %a; L: { .param .b64 x; .param .b32 y; st.param.b64 [x], %rd4; call (y), peek, (x); ld.param.b32 %r1, [y]; } add.s64 %rd4, %rd4, 4; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"the same between barriers, by a function", all,
			"st.global.u32 [%rd1], 1; mov.u64 %rd4, %a; L: bar.sync 0; { .param .b64 x; .param .b32 y; st.param.b64 [x], %rd4; call (y), peek, (x); ld.param.b32 %r1, [y]; } add.s64 %rd4, %rd4, 4; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"an object that a function works on", no,
			"st.global.u32 [%rd1], 1; L: ld.global.u64 %rd4, [%a]; { .param .b64 x; .param .b32 y; st.param.b64 [x], %rd4; call (y), next, (x); ld.param.b32 %r1, [y]; } setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"a flag that a function looks at", all,
			"st.global.u32 [%rd1], 1; L: ld.global.u64 %rd4, [%a]; { .param .b64 x; .param .b64 y; st.param.b64 [x], %rd4; call (y), same, (x); ld.param.b64 %rd5, [y]; } setp.eq.u64 %p1, %rd5, 0; @%p1 bra L;"},
		{"an object that a function looks at", all,
			"st.global.u32 [%rd1], 1; L: ld.global.u64 %rd4, [%a]; { .param .b64 x; .param .b32 y; st.param.b64 [x], %a; call (y), peek, (x); ld.param.b32 %r1, [y]; } setp.eq.u32 %p1, %r1, 0; @%p1 bra L;"},
		{"a bound that is read between barriers", no,
			"st.global.u32 [%rd1], 1; L: bar.sync 0; add.u32 %r5, %r5, 1; ld.global.u32 %r1, [%a]; setp.lt.u32 %p1, %r5, %r1; @%p1 bra L;"},
		{"the same, which the loop writes", all,
			"L: bar.sync 0; st.global.u32 [%rd1], 1; add.u32 %r5, %r5, 1; ld.global.u32 %r1, [%a]; setp.lt.u32 %p1, %r5, %r1; @%p1 bra L;"},
		{"a bound from below", all,
			"st.global.u32 [%rd1], 1; L: add.u32 %r5, %r5, 1; ld.global.u32 %r1, [%a]; setp.ge.u32 %p1, %r5, %r1; @%p1 bra L;"},
		{"a bound by a counter that comes to it from above", no,
			"st.global.u32 [%rd1], 1; L: add.u32 %r5, %r5, -1; ld.global.u32 %r1, [%a]; setp.ge.s32 %p1, %r5, %r1; @%p1 bra L;"},
		{"the same without a sign", all,
			"st.global.u32 [%rd1], 1; L: add.u32 %r5, %r5, -1; ld.global.u32 %r1, [%a]; setp.ge.u32 %p1, %r5, %r1; @%p1 bra L;"},
		// Claims.
		{"a place in a table", no, table("4", "")},
		{"the same with a mark that the host chose", no, strings.ReplaceAll(table("4", ""), "-1", "%r20")},
		{"a place in a table, and a field beside it", no, table("8", "st.global.u32 [%rd5+4], %r23;")},
		{"a place in a table, and a field over it", all, table("8", "st.global.u64 [%rd5], %rd9;")},
		{"a place in a table, and the next one", all, table("4", "st.global.u32 [%rd5+4], %r23;")},
		{"a place in a table that is given back", all, table("4", "st.volatile.global.u32 [%rd5], -1;")},
		{"the same by an exchange under another name", all, table("4", "atom.global.exch.b32 %r9, [%b], -1;")},
		{"a place in a table, counted elsewhere", no, table("4", "red.global.add.u32 [%b], 1;")},
		{"a place in a table that is taken from another", all, table("4", "atom.global.cas.b32 %r9, [%rd5], %r23, -1;")},
		{"a word of a table that somebody must take", all, strings.Replace(table("4", ""), "setp.eq.s32 %p2, %r6, -1;", "setp.eq.s32 %p2, %r6, 77;", 1)},
		{"a place in a table by a mark that changes in the loop", all,
			"mov.u32 %r9, -1; " + strings.NewReplacer("setp.eq.s32 %p2, %r6, -1;", "mov.u32 %r9, %r23; setp.eq.s32 %p2, %r6, %r9; mov.u32 %r9, -1;").Replace(table("4", ""))},
		{"a place in a table by steps of its own", no, strings.Replace(table("4", ""), "add.u32 %r4, %r4, 1;", "add.u32 %r4, %r4, %r20;", 1)},
		{"a place in a table, ended in two places", no,
			"mov.u32 %r4, %r23; bra L; M: st.global.u32 [%b], %r4; @!%p3 bra L; bra E;" +
				"L: mul.wide.u32 %rd4, %r4, 4; add.s64 %rd5, %a, %rd4; atom.global.cas.b32 %r6, [%rd5], -1, %r23; setp.eq.s32 %p1, %r6, -1; setp.eq.s32 %p2, %r6, %r23; or.pred %p3, %p1, %p2;" +
				"@%p3 bra M; add.u32 %r4, %r4, 1; and.b32 %r4, %r4, 1023; @!%p3 bra L; E:"},
		{"the same, ended by a predicate in one and by its opposite in the other", all,
			"mov.u32 %r4, %r23; bra L; M: st.global.u32 [%b], %r4; @!%p3 bra L; bra E;" +
				"L: mul.wide.u32 %rd4, %r4, 4; add.s64 %rd5, %a, %rd4; atom.global.cas.b32 %r6, [%rd5], -1, %r23; setp.eq.s32 %p1, %r6, -1; setp.eq.s32 %p2, %r6, %r23; or.pred %p3, %p1, %p2;" +
				"@!%p3 bra M; add.u32 %r4, %r4, 1; and.b32 %r4, %r4, 1023; @%p3 bra L; E:"},
		{"a link at the end of a chain", no,
			"mov.u32 %r4, %r23; L: mul.wide.u32 %rd4, %r4, 4; add.s64 %rd5, %a, %rd4; atom.global.cas.b32 %r6, [%rd5], %r4, %r21; setp.ne.s32 %p1, %r6, %r4; mov.u32 %r4, %r6; @%p1 bra L;"},
		{"the same between barriers, at the end of a chain", all,
			"mov.u32 %r4, %r23; L: bar.sync 0; mul.wide.u32 %rd4, %r4, 4; add.s64 %rd5, %a, %rd4; atom.global.cas.b32 %r6, [%rd5], %r4, %r21; setp.ne.s32 %p1, %r6, %r4; mov.u32 %r4, %r6; @%p1 bra L;"},
		{"any of several locks", all,
			"mov.u32 %r4, %r23; L: and.b32 %r5, %r4, 7; mul.wide.u32 %rd4, %r5, 4; add.s64 %rd5, %a, %rd4; add.u32 %r4, %r4, 1; atom.global.cas.b32 %r6, [%rd5], 0, 1; setp.ne.s32 %p1, %r6, 0; @%p1 bra L; st.volatile.global.u32 [%rd5], 0;"},
		// Retries.
		{"a compare-and-swap of what is loaded in each round", no,
			"L: ld.volatile.global.u32 %r4, [%a]; add.u32 %r5, %r4, 1; atom.global.cas.b32 %r6, [%a], %r4, %r5; setp.ne.s32 %p1, %r6, %r4; @%p1 bra L;"},
		{"a compare-and-swap of what is loaded from another word", all,
			"L: ld.volatile.global.u32 %r4, [%a+4]; add.u32 %r5, %r4, 1; atom.global.cas.b32 %r6, [%a], %r4, %r5; setp.ne.s32 %p1, %r6, %r4; @%p1 bra L;"},
		{"a compare-and-swap of what is loaded, but not while a bit is set", all,
			"L: ld.volatile.global.u32 %r4, [%a]; setp.lt.s32 %p2, %r4, 0; @%p2 bra L; or.b32 %r5, %r4, 0x80000000; atom.global.cas.b32 %r6, [%a], %r4, %r5; setp.ne.s32 %p1, %r6, %r4; @%p1 bra L;"},
		// Few iterations.
		{"a hundred attempts", no, attempts("0", "", "add.u32 %r5, %r5, 1; setp.ne.s32 %p2, %r5, 100;")},
		{"a hundred attempts, counted down", no, attempts("100", "", "add.s32 %r5, %r5, -1; setp.gt.s32 %p2, %r5, 0;")},
		{"a hundred attempts, counted down to zero without a sign", no, attempts("100", "", "add.u32 %r5, %r5, -1; setp.gt.u32 %p2, %r5, 0;")},
		{"attempts counted down below zero without a sign", all, attempts("100", "", "add.u32 %r5, %r5, -1; setp.ge.u32 %p2, %r5, 0;")},
		{"attempts counted up to what is negative only with a sign", all, attempts("0", "", "add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, -1;")},
		{"a hundred attempts and sleep", all, attempts("0", "nanosleep.u32 1000;", "add.u32 %r5, %r5, 1; setp.ne.s32 %p2, %r5, 100;")},
		{"a hundred thousand attempts", all, attempts("0", "", "add.u32 %r5, %r5, 1; setp.ne.s32 %p2, %r5, 100000;")},
		{"attempts by a number that is never met", all, attempts("0", "", "add.u32 %r5, %r5, 3; setp.ne.s32 %p2, %r5, 100;")},
		{"attempts away from their bound", all, attempts("0", "", "add.s32 %r5, %r5, 1; setp.gt.s32 %p2, %r5, -100;")},
		{"attempts from an unknown number on", all, attempts("%r20", "", "add.u32 %r5, %r5, 1; setp.ne.s32 %p2, %r5, 100;")},
		{"attempts to a bound that is set in the loop", all, attempts("0", "mov.u32 %r9, %r1;", "add.u32 %r5, %r5, 1; setp.ne.s32 %p2, %r5, %r9; mov.u32 %r9, 100;")},
		{"a hundred looks at one word", all,
			"mov.u32 %r5, 0; L: ld.volatile.global.u32 %r1, [%a]; setp.eq.u32 %p1, %r1, %r20; @%p1 bra E; add.u32 %r5, %r5, 1; setp.ne.s32 %p2, %r5, 100; @%p2 bra L; E:"},
		// Draws.
		{"work from a queue up to a number in memory", no,
			"L: atom.global.add.u32 %r1, [%a], 1; ld.global.u32 %r2, [%b]; setp.ge.u32 %p1, %r1, %r2; @%p1 bra E; mul.wide.u32 %rd4, %r1, 4; ld.param.u64 %rd6, [s]; add.s64 %rd5, %rd6, %rd4; st.global.u32 [%rd5], %r1; bra L; E:"},
		{"work from a queue, with atomic operations on it", no,
			"L: atom.global.add.u32 %r1, [%a], 1; setp.ge.u32 %p1, %r1, %r20; @%p1 bra E; mul.wide.u32 %rd4, %r1, 4; add.s64 %rd5, %b, %rd4; red.global.add.u32 [%rd5], -1; bra L; E:"},
		{"work from a queue that one thread describes to its block", no,
			".shared .align 4 .b8 job[8]; setp.ne.u32 %p2, %r23, 0; L: bar.sync 0; @%p2 bra M; atom.global.add.u32 %r1, [%a], 1; st.shared.u32 [job], %r1; mul.wide.u32 %rd4, %r1, 4; add.s64 %rd5, %b, %rd4; ld.global.u32 %r3, [%rd5]; st.shared.u32 [job+4], %r3; M: bar.sync 0; ld.shared.u32 %r2, [job]; setp.lt.u32 %p1, %r2, %r20; @%p1 bra L;"},
		{"the same, by the description", all,
			".shared .align 4 .b8 job[8]; setp.ne.u32 %p2, %r23, 0; L: bar.sync 0; @%p2 bra M; atom.global.add.u32 %r1, [%a], 1; st.shared.u32 [job], %r1; mul.wide.u32 %rd4, %r1, 4; add.s64 %rd5, %b, %rd4; ld.global.u32 %r3, [%rd5]; st.shared.u32 [job+4], %r3; M: bar.sync 0; ld.shared.u32 %r2, [job+4]; setp.lt.u32 %p1, %r2, %r20; @%p1 bra L;"},
	})
}

// TestClaimsInAFunction checks that a function which takes a word may take a lock: another one may
// give it back.
func TestClaimsInAFunction(t *testing.T) {
	body := strings.NewReplacer("%a", "%rd1", "%r23", "%r2").Replace(table("4", ""))
	e := analyzed(t, moduleOf(`.func take(.param .b64 at, .param .b32 v)
{
	.reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<4>;
	ld.param.u64 %rd1, [at]; ld.param.u32 %r2, [v];
	`+body+`
	ret;
}
.entry takes(.param .u64 p, .param .u32 n) {
	.reg .b64 %rd<2>; .param .b64 x; .param .b32 y; ld.param.u64 %rd1, [p];
	call take, (x, y); st.volatile.global.u32 [%rd1], -1; ret;
}
`)).entries[0]
	if e.refused != GridSync {
		t.Errorf("%v (%s)", e.refused, e.detail)
	}
}
