package simt

import (
	"testing"

	"vgpud/gpu"
)

// entry wraps a body in a kernel with two pointers, p0 (in %rd1) and p1 (in %rd2), a number n (in
// %r1), the thread's index in %r2 and many registers.
func entry(body string) string {
	return `
.visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1, .param .u32 k_param_2)
{
	.reg .pred %p<20>; .reg .b16 %rs<20>; .reg .b32 %r<60>; .reg .f32 %f<40>; .reg .b64 %rd<40>; .reg .f64 %fd<20>;
	ld.param.u64 %rd1, [k_param_0];
	ld.param.u64 %rd2, [k_param_1];
	ld.param.u32 %r1, [k_param_2];
	mov.u32 %r2, %tid.x;
` + body + `
	ret;
}`
}

// storeAt stores a register at p0[index].
func storeAt(index, typ, reg string) string {
	return "	mul.wide.u32 %rd39, " + index + ", 4;\n	add.s64 %rd39, %rd1, %rd39;\n	st.global." + typ + " [%rd39], " + reg + ";\n"
}

// Every thread takes a lock in turn, against threads of the same warp. This never ends without
// independent progress of diverged lanes.
func TestSpinLockWithinWarp(t *testing.T) {
	m := newMachine(t, entry(`
SPIN:
	atom.global.cas.b32 %r3, [%rd1], 0, 1;
	setp.ne.s32 %p1, %r3, 0;
	@%p1 bra SPIN;
	ld.volatile.global.u32 %r4, [%rd2];
	add.u32 %r4, %r4, 1;
	st.volatile.global.u32 [%rd2], %r4;
	membar.gl;
	atom.global.exch.b32 %r5, [%rd1], 0;
`))
	lock, _ := m.words(0)
	count, data := m.words(0)
	if f := m.run("k", d3(3), d3(100), 0, lock, count, 0); f != nil {
		t.Fatal(f)
	}
	if got := wordsOf(data)[0]; got != 300 {
		t.Errorf("counted %d, want 300", got)
	}
}

// The last lane of a warp sets what the others wait for with plain loads.
func TestPlainSpinOnSiblingLane(t *testing.T) {
	m := newMachine(t, entry(`
	setp.eq.u32 %p1, %r2, 31;
	@%p1 bra SET;
WAIT:
	ld.global.u32 %r3, [%rd1];
	setp.eq.u32 %p2, %r3, 0;
	@%p2 bra WAIT;
	bra DONE;
SET:
	st.global.u32 [%rd1], 7;
DONE:
	atom.global.add.u32 %r4, [%rd2], %r3;
`))
	flag, _ := m.words(0)
	sum, data := m.words(0)
	if f := m.run("k", d3(1), d3(32), 0, flag, sum, 0); f != nil {
		t.Fatal(f)
	}
	if got := wordsOf(data)[0]; got != 31*7 {
		t.Errorf("got %d", got)
	}
}

// Block 0 waits for the last block, which is resident at the same time.
func TestBlocksWaitForOneAnother(t *testing.T) {
	m := newMachine(t, entry(`
	mov.u32 %r3, %ctaid.x;
	mov.u32 %r4, %nctaid.x;
	atom.global.add.u32 %r5, [%rd1], 1;
	mov.u32 %r6, %ntid.x;
	mul.lo.u32 %r6, %r6, %r4;
WAIT:
	ld.acquire.gpu.global.u32 %r7, [%rd1];
	setp.lt.u32 %p1, %r7, %r6;
	@%p1 bra WAIT;
	atom.global.add.u32 %r5, [%rd2], %r7;
`))
	arrived, _ := m.words(0)
	sum, data := m.words(0)
	if f := m.run("k", d3(4), d3(64), 0, arrived, sum, 0); f != nil {
		t.Fatal(f)
	}
	if got := wordsOf(data)[0]; got != 256*256 {
		t.Errorf("got %d", got)
	}
}

// One warp produces and another consumes, each waiting for the other's turn.
func TestWarpsTakeTurns(t *testing.T) {
	m := newMachine(t, entry(`
	shr.u32 %r3, %r2, 5;
	mov.u32 %r4, 0;
LOOP:
	and.b32 %r5, %r4, 1;
	setp.ne.u32 %p1, %r5, %r3;
WAIT:
	ld.volatile.global.u32 %r6, [%rd1];
	setp.lt.u32 %p2, %r6, %r4;
	@%p2 bra WAIT;
	bar.warp.sync 0xffffffff;
	@%p1 bra NEXT;
	and.b32 %r7, %r2, 31;
	setp.ne.u32 %p3, %r7, 0;
	@%p3 bra NEXT;
	add.u32 %r8, %r4, 1;
	st.volatile.global.u32 [%rd1], %r8;
NEXT:
	bar.warp.sync 0xffffffff;
	add.u32 %r4, %r4, 1;
	setp.lt.u32 %p4, %r4, %r1;
	@%p4 bra LOOP;
`))
	turn, data := m.words(0)
	if f := m.run("k", d3(1), d3(64), 0, turn, turn, 100); f != nil {
		t.Fatal(f)
	}
	if got := wordsOf(data)[0]; got != 100 {
		t.Errorf("got %d", got)
	}
}

// Barriers don't wait for threads that have exited, by branching to the end, by a predicated ret,
// or in the middle of a block's code.
func TestBarrierAfterEarlyExit(t *testing.T) {
	for name, early := range map[string]string{
		"branch": "@%p1 bra END;",
		"ret":    "@%p1 ret;",
		"store":  "@!%p1 bra GO;\n	st.global.u32 [%rd2], 1;\n	ret;\nGO:",
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, ".shared .align 4 .b32 s[256];\n"+entry(`
	setp.ge.u32 %p1, %r2, %r1;
	`+early+`
	mov.u32 %r3, s;
	shl.b32 %r4, %r2, 2;
	add.u32 %r5, %r3, %r4;
	st.shared.u32 [%r5], %r2;
	bar.sync 0;
	sub.u32 %r6, %r1, %r2;
	sub.u32 %r6, %r6, 1;
	shl.b32 %r6, %r6, 2;
	add.u32 %r6, %r3, %r6;
	ld.shared.u32 %r7, [%r6];
`+storeAt("%r2", "u32", "%r7")+"END:"))
			for _, n := range []int{1, 31, 32, 33, 64, 77, 100, 200} {
				out, data := m.alloc(4 * 256)
				if f := m.run("k", d3(1), d3(200), 0, out, out+1000, n); f != nil {
					t.Fatal(n, f)
				}
				for i, v := range wordsOf(data)[:n] {
					if i != 250 && v != uint32(n-1-i) {
						t.Fatalf("n=%d: thread %d read %d, want %d", n, i, v, n-1-i)
					}
				}
			}
		})
	}
}

// Half of a block skips a barrier that the other half waits at.
func TestIncompleteBarrier(t *testing.T) {
	m := newMachine(t, entry(`
	setp.ge.u32 %p1, %r2, 32;
	@%p1 bra OTHER;
	bar.sync 1, 64;
	bra DONE;
OTHER:
	bar.sync 2, 64;
DONE:
`))
	f := m.run("k", d3(1), d3(64), 0, uint64(0), uint64(0), 0)
	if f == nil || f.Kind != gpu.FaultBarrier || f.Line == 0 {
		t.Fatalf("got %v", f)
	}
}

// Lanes of one warp arrive at a barrier from both sides of a branch.
func TestBarrierInBothArms(t *testing.T) {
	m := newMachine(t, entry(`
	and.b32 %r3, %r2, 1;
	setp.eq.u32 %p1, %r3, 0;
	@%p1 bra EVEN;
	atom.global.add.u32 %r4, [%rd2], 1;
	barrier.sync 0;
	bra DONE;
EVEN:
	barrier.sync 0;
	ld.global.u32 %r5, [%rd2];
`+storeAt("%r2", "u32", "%r5")+`
DONE:
`))
	out, data := m.alloc(4 * 128)
	count, _ := m.words(0)
	if f := m.run("k", d3(1), d3(128), 0, out, count, 0); f != nil {
		t.Fatal(f)
	}
	for i, v := range wordsOf(data) {
		if i%2 == 0 && v != 64 {
			t.Fatalf("thread %d read %d", i, v)
		}
	}
}

// Named barriers: producers arrive without waiting, consumers wait for them.
func TestBarrierArrive(t *testing.T) {
	m := newMachine(t, entry(`
	setp.ge.u32 %p1, %r2, 64;
	@%p1 bra CONSUME;
`+storeAt("%r2", "u32", "%r2")+`
	bar.arrive 3, 128;
	bra DONE;
CONSUME:
	bar.sync 3, 128;
	sub.u32 %r3, %r2, 64;
	mul.wide.u32 %rd4, %r3, 4;
	add.s64 %rd5, %rd1, %rd4;
	ld.global.u32 %r4, [%rd5];
	add.u32 %r4, %r4, 1000;
`+storeAt("%r2", "u32", "%r4")+`
DONE:
`))
	out, data := m.alloc(4 * 128)
	if f := m.run("k", d3(1), d3(128), 0, out, out, 0); f != nil {
		t.Fatal(f)
	}
	for i, v := range wordsOf(data)[64:] {
		if v != uint32(1000+i) {
			t.Fatalf("thread %d read %d", i+64, v)
		}
	}
}

func TestBarrierReductions(t *testing.T) {
	m := newMachine(t, entry(`
	setp.lt.u32 %p1, %r2, %r1;
	bar.red.popc.u32 %r3, 0, %p1;
	bar.red.and.pred %p2, 0, %p1;
	bar.red.or.pred %p3, 0, !%p1;
	selp.u32 %r4, 1000, 0, %p2;
	selp.u32 %r5, 10000, 0, %p3;
	add.u32 %r3, %r3, %r4;
	add.u32 %r3, %r3, %r5;
`+storeAt("%r2", "u32", "%r3")))
	for _, n := range []int{0, 1, 50, 99, 100} {
		out, data := m.alloc(4 * 100)
		if f := m.run("k", d3(1), d3(100), 0, out, out, n); f != nil {
			t.Fatal(f)
		}
		want := uint32(n)
		if n == 100 {
			want += 1000
		} else {
			want += 10000
		}
		for i, v := range wordsOf(data) {
			if v != want {
				t.Fatalf("n=%d: thread %d got %d, want %d", n, i, v, want)
			}
		}
	}
}

// A sleeping block frees its SM and wakes on time.
func TestNanosleep(t *testing.T) {
	m := newMachine(t, entry(`
	mov.u64 %rd3, %globaltimer;
	nanosleep.u32 5000;
	mov.u64 %rd4, %globaltimer;
	sub.s64 %rd5, %rd4, %rd3;
	cvt.u32.u64 %r3, %rd5;
`+storeAt("%r2", "u32", "%r3")))
	out, data := m.alloc(4 * 64)
	if f := m.run("k", d3(1), d3(64), 0, out, out, 0); f != nil {
		t.Fatal(f)
	}
	for i, v := range wordsOf(data) {
		if v < 5000 || v > 7000 {
			t.Fatalf("thread %d slept %d ns", i, v)
		}
	}
}

// Diverged lanes meet for an exchange that names them all.
func TestExchangeAfterParting(t *testing.T) {
	m := newMachine(t, entry(`
	and.b32 %r3, %r2, 3;
	mov.u32 %r4, 0;
LOOP:
	setp.ge.u32 %p1, %r4, %r3;
	@%p1 bra OUT;
	add.u32 %r4, %r4, 1;
	nanosleep.u32 10;
	bra LOOP;
OUT:
	bar.warp.sync 0xffffffff;
	mov.u32 %r5, %laneid;
	xor.b32 %r6, %r5, 1;
	shfl.sync.idx.b32 %r7, %r4, %r6, 31, 0xffffffff;
`+storeAt("%r2", "u32", "%r7")))
	out, data := m.alloc(4 * 32)
	if f := m.run("k", d3(1), d3(32), 0, out, out, 0); f != nil {
		t.Fatal(f)
	}
	for i, v := range wordsOf(data) {
		if v != uint32(i^1)&3 {
			t.Fatalf("lane %d got %d", i, v)
		}
	}
}

// A step ends with its budget, and the work so far is kept.
func TestEndlessKernelCanBeSuspended(t *testing.T) {
	m := newMachine(t, entry("L:\n	add.u32 %r3, %r3, 1;\n	bra L;\n"))
	g, err := NewGrid(Launch{Kernel: m.module.Kernel("k"), Grid: d3(1), Block: d3(64), Memory: m.mem, Params: params(uint64(0), uint64(0), 0)})
	if err != nil {
		t.Fatal(err)
	}
	b := g.StartBlock(0)
	for range 100 {
		if r := b.Step(Now{}, 1000); r.State != Running || r.Cycles < 500 || r.Cycles > 5000 {
			t.Fatalf("%+v", r)
		}
	}
}

// A warp that sleeps wakes while another spins.
func TestSleeperWakesBesideSpinner(t *testing.T) {
	m := newMachine(t, entry(`
	setp.ge.u32 %p1, %r2, 40;
	@%p1 bra SLEEP;
WAIT:
	ld.volatile.global.u32 %r3, [%rd1];
	setp.eq.u32 %p2, %r3, 0;
	@%p2 bra WAIT;
	bra DONE;
SLEEP:
	nanosleep.u32 20000;
	st.volatile.global.u32 [%rd1], 1;
DONE:
`))
	flag, _ := m.words(0)
	if f := m.run("k", d3(1), d3(64), 0, flag, flag, 0); f != nil {
		t.Fatal(f)
	}
}
