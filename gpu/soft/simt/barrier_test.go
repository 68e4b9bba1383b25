package simt

import (
	"testing"

	"vgpud/gpu"
)

// A barrier with a thread count waits for all lanes of a warp that have not exited, wherever they
// are. So a kernel may reach it after lanes have returned, but not while lanes wait elsewhere.
func TestBarrierCountAfterReturn(t *testing.T) {
	kernel := func(others string) string {
		return entry(`
	setp.lt.u32 %p1, %r2, 40;
	@%p1 bra MEET;
	` + others + `
MEET:
	bar.sync 1, 64;
` + storeAt("%r2", "u32", "%r2"))
	}
	m := newMachine(t, kernel("ret;"))
	out, data := m.alloc(4 * 64)
	if f := m.run("k", d3(1), d3(64), 0, out, out, 0); f != nil {
		t.Fatal(f)
	}
	for i, v := range wordsOf(data)[:40] {
		if v != uint32(i) {
			t.Fatalf("thread %d stored %d", i, v)
		}
	}
	m = newMachine(t, kernel("barrier.sync 0; ret;"))
	if f := m.run("k", d3(1), d3(64), 0, uint64(0), uint64(0), 0); f == nil || f.Kind != gpu.FaultBarrier {
		t.Fatalf("with lanes at another barrier: got %v", f)
	}
}

// Partial warps don't add up to a count: no warp has arrived here.
func TestBarrierCountsNoPartsOfWarps(t *testing.T) {
	m := newMachine(t, entry(`
	and.b32 %r3, %r2, 1;
	add.u32 %r3, %r3, 1;
	setp.eq.u32 %p1, %r3, 1;
	@%p1 bra EVEN;
	barrier.sync 2, 32;
	ret;
EVEN:
	barrier.sync 1, 32;
`))
	if f := m.run("k", d3(1), d3(64), 0, uint64(0), uint64(0), 0); f == nil || f.Kind != gpu.FaultBarrier {
		t.Fatalf("got %v", f)
	}
}

// The first warp's even lanes wait at a barrier of two warps when two other warps pass it. They
// must keep waiting for the odd lanes and the second warp, and must not take part in the others'
// reduction.
func TestBarrierKeepsPartOfWarp(t *testing.T) {
	m := newMachine(t, entry(`
	mov.u32 %r9, 0;
	setp.ge.u32 %p1, %r2, 64;
	@%p1 bra FIRST;
	and.b32 %r3, %r2, 33;
	setp.eq.u32 %p2, %r3, 0;
	@%p2 bra SECOND;
WAIT:
	ld.volatile.global.u32 %r4, [%rd2];
	setp.eq.u32 %p3, %r4, 0;
	@%p3 bra WAIT;
SECOND:
	setp.eq.u32 %p4, %r2, %r2;
	barrier.red.popc.u32 %r5, 1, 64, %p4;
	ld.volatile.global.u32 %r6, [%rd2];
	mad.lo.u32 %r5, %r6, 1000, %r5;
	bra DONE;
FIRST:
	setp.eq.u32 %p4, %r2, %r2;
	barrier.red.popc.u32 %r5, 1, 64, %p4;
	bar.sync 2, 64;
	st.volatile.global.u32 [%rd2], 1;
DONE:
`+storeAt("%r2", "u32", "%r5")))
	out, data := m.alloc(4 * 128)
	flag, _ := m.words(0)
	if f := m.run("k", d3(1), d3(128), 0, out, flag, 0); f != nil {
		t.Fatal(f)
	}
	for i, v := range wordsOf(data) {
		want := uint32(1064)
		if i >= 64 {
			want = 64
		}
		if v != want {
			t.Fatalf("thread %d got %d, want %d", i, v, want)
		}
	}
}

// bar.arrive waits for no other warp, but for the lanes of its own: each lane sees what the next
// one stored before.
func TestBarrierArriveWaitsForItsWarp(t *testing.T) {
	for name, odd := range map[string]string{"odd lanes first": "@!%p1 bra OTHER;", "even lanes first": "@%p1 bra OTHER;"} {
		t.Run(name, func(t *testing.T) {
			part := func() string {
				return storeAt("%r2", "u32", "%r2") + `
	barrier.arrive 3, 64;
	ld.volatile.global.u32 %r4, [%rd5];
`
			}
			m := newMachine(t, entry(`
	setp.ge.u32 %p2, %r2, 32;
	@%p2 bra CONSUME;
	and.b32 %r3, %r2, 1;
	setp.eq.u32 %p1, %r3, 0;
	xor.b32 %r5, %r2, 1;
	mul.wide.u32 %rd4, %r5, 4;
	add.s64 %rd5, %rd1, %rd4;
	`+odd+part()+`
	bra DONE;
OTHER:
`+part()+`
	bra DONE;
CONSUME:
	mov.u32 %r4, 7;
	barrier.sync 3, 64;
DONE:
	add.u32 %r2, %r2, 64;
`+storeAt("%r2", "u32", "%r4")))
			out, data := m.alloc(4 * 128)
			if f := m.run("k", d3(1), d3(64), 0, out, out, 0); f != nil {
				t.Fatal(f)
			}
			for i, v := range wordsOf(data)[64:] {
				want := uint32(i ^ 1)
				if i >= 32 {
					want = 7
				}
				if v != want {
					t.Fatalf("thread %d saw %d, want %d", i, v, want)
				}
			}
		})
	}
}
