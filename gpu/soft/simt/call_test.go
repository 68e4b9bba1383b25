package simt

import (
	"testing"

	"vgpud/gpu"
)

// Lanes recurse to different depths.
func TestRecursion(t *testing.T) {
	m := newMachine(t, `
.func (.param .b32 out) fib(.param .b32 n)
{
	.reg .pred %p<3>; .reg .b32 %r<8>; .reg .b64 %rd<4>;
	.local .align 8 .b8 depot[16];
	ld.param.u32 %r1, [n];
	mov.u64 %rd1, depot;
	st.local.u32 [%rd1+4], %r1;
	setp.lt.u32 %p1, %r1, 2;
	@%p1 bra BASE;
	sub.u32 %r2, %r1, 1;
	{ .param .b32 a; .param .b32 r; st.param.b32 [a], %r2; call.uni (r), fib, (a); ld.param.b32 %r3, [r]; }
	ld.local.u32 %r1, [%rd1+4];
	sub.u32 %r4, %r1, 2;
	{ .param .b32 a; .param .b32 r; st.param.b32 [a], %r4; call.uni (r), fib, (a); ld.param.b32 %r5, [r]; }
	add.u32 %r1, %r3, %r5;
BASE:
	st.param.b32 [out], %r1;
	ret;
}
`+entry(`
	rem.u32 %r3, %r2, 12;
	{ .param .b32 a; .param .b32 r; st.param.b32 [a], %r3; call (r), fib, (a); ld.param.b32 %r4, [r]; }
`+storeAt("%r2", "u32", "%r4")))
	fib := func(n int) uint32 {
		a, b := uint32(0), uint32(1)
		for range n {
			a, b = b, a+b
		}
		return a
	}
	out, data := m.alloc(4 * 50)
	if f := m.run("k", d3(1), d3(50), 0, out, out, 0); f != nil {
		t.Fatal(f)
	}
	for i, v := range wordsOf(data) {
		if v != fib(i%12) {
			t.Errorf("thread %d: %d, want %d", i, v, fib(i%12))
		}
	}
}

// Infinite recursion is a fault of its own kind, not an error of the host.
func TestStackExhausted(t *testing.T) {
	m := newMachine(t, `
.func down(.param .b32 n)
{
	.reg .b32 %r<3>;
	ld.param.u32 %r1, [n];
	add.u32 %r1, %r1, 1;
	{ .param .b32 a; st.param.b32 [a], %r1; call.uni down, (a); }
	ret;
}
`+entry("	{ .param .b32 a; st.param.b32 [a], %r2; call.uni down, (a); }\n"))
	f := m.run("k", d3(1), d3(32), 0, uint64(0), uint64(0), 0)
	if f == nil || f.Kind != gpu.FaultStack {
		t.Fatal(f)
	}
}

// Each lane calls the function that a table in memory contains for it.
func TestIndirectCall(t *testing.T) {
	m := newMachine(t, `
.func (.param .b32 out) twice(.param .b32 x);
.func (.param .b32 out) square(.param .b32 x)
{
	.reg .b32 %r<3>;
	ld.param.u32 %r1, [x]; mul.lo.u32 %r1, %r1, %r1; st.param.b32 [out], %r1;
	ret;
}
.global .align 8 .u64 table[3] = {twice, square, again};
.func (.param .b32 out) twice(.param .b32 x)
{
	.reg .b32 %r<3>;
	ld.param.u32 %r1, [x]; shl.b32 %r1, %r1, 1; st.param.b32 [out], %r1;
	ret;
}
.func (.param .b32 out) again(.param .b32 x)
{
	.reg .b32 %r<3>; .reg .b64 %rd<3>;
	ld.param.u32 %r1, [x];
	mov.u64 %rd1, square;
	{ .param .b32 a; .param .b32 r; st.param.b32 [a], %r1;
	proto : .callprototype (.param .b32 _) _ (.param .b32 _);
	call (r), %rd1, (a), proto;
	ld.param.b32 %r2, [r]; }
	add.u32 %r2, %r2, %r1;
	st.param.b32 [out], %r2;
	ret;
}
`+entry(`
	rem.u32 %r3, %r2, 3;
	mov.u64 %rd3, table;
	mul.wide.u32 %rd4, %r3, 8;
	add.s64 %rd3, %rd3, %rd4;
	ld.global.u64 %rd5, [%rd3];
	{ .param .b32 a; .param .b32 r; st.param.b32 [a], %r2;
	proto : .callprototype (.param .b32 _) _ (.param .b32 _);
	call (r), %rd5, (a), proto;
	ld.param.b32 %r4, [r]; }
	mov.u32 %r5, %laneid;
	activemask.b32 %r6;
	setp.ne.u32 %p1, %r6, 0xffffffff;
	@%p1 mov.u32 %r4, 0;
`+storeAt("%r2", "u32", "%r4")+`
	setp.ne.u32 %p1, %r1, 0;
	@!%p1 bra END;
	{ proto2 : .callprototype _ ();
	call %rd1, (), proto2; }
END:
`))
	out, data := m.alloc(4 * 96)
	if f := m.run("k", d3(1), d3(96), 0, out, out, 0); f != nil {
		t.Fatal(f)
	}
	for i, v := range wordsOf(data) {
		x := uint32(i)
		want := []uint32{2 * x, x * x, x*x + x}[i%3]
		if v != want {
			t.Errorf("thread %d: %d, want %d", i, v, want)
		}
	}
	f := m.run("k", d3(1), d3(32), 0, out, out, 1)
	if f == nil || f.Kind != gpu.FaultInstruction {
		t.Error(f)
	}
}

func TestBranchTable(t *testing.T) {
	m := newMachine(t, entry(`
	and.b32 %r3, %r2, 3;
	setp.lt.u32 %p1, %r2, 40;
	mov.u32 %r4, 77;
	targets: .branchtargets A, B, C, B;
	@%p1 brx.idx %r3, targets;
	add.u32 %r4, %r4, 1000;
	bra D;
A:
	add.u32 %r4, %r4, 1;
B:
	add.u32 %r4, %r4, 10;
	bra D;
C:
	add.u32 %r4, %r4, 100;
D:
	activemask.b32 %r5;
	add.u32 %r4, %r4, %r5;
`+storeAt("%r2", "u32", "%r4")))
	out, data := m.alloc(4 * 64)
	if f := m.run("k", d3(1), d3(64), 0, out, out, 0); f != nil {
		t.Fatal(f)
	}
	for i, v := range wordsOf(data) {
		want := []uint32{88, 87, 177, 87}[i&3]
		if i >= 40 {
			want = 1077
		}
		if v != want-1 { // and all lanes have reconverged
			t.Errorf("thread %d: %d, want %d", i, v, want-1)
		}
	}
}

// Arguments and results have several widths; structures are passed by value; the old way passes
// registers.
func TestPassing(t *testing.T) {
	m := newMachine(t, `
.func (.param .align 8 .b8 out[16]) swap(.param .align 8 .b8 x[16], .param .b8 c, .param .f64 d)
{
	.reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .f64 %fd<4>; .reg .b16 %rs<3>;
	ld.param.u64 %rd1, [x];
	ld.param.u32 %r1, [x+8];
	ld.param.s8 %r2, [c];
	ld.param.f64 %fd1, [d];
	cvt.rzi.s32.f64 %r3, %fd1;
	add.u32 %r1, %r1, %r2;
	st.param.u32 [out], %r1;
	st.param.u32 [out+4], %r3;
	st.param.u64 [out+8], %rd1;
	ret;
}
.func (.reg .u32 %out) plus(.reg .u32 %a, .reg .u32 %b)
{
	add.u32 %out, %a, %b;
	ret;
}
`+entry(`
	cvt.u64.u32 %rd3, %r2;
	mov.u32 %r3, 500;
	mov.f64 %fd1, 0dC010000000000000;
	{ .param .align 8 .b8 a[16]; .param .b8 b; .param .f64 d; .param .align 8 .b8 r[16];
	st.param.u64 [a], %rd3; st.param.u32 [a+8], %r3; st.param.b8 [b], -3; st.param.f64 [d], %fd1;
	call (r), swap, (a, b, d);
	ld.param.v2.u32 {%r4, %r5}, [r]; ld.param.u64 %rd4, [r+8]; }
	cvt.u32.u64 %r6, %rd4;
	call (%r7), plus, (%r4, %r5);
	call (%r7), plus, (%r7, 1000);
	add.u32 %r7, %r7, %r6;
`+storeAt("%r2", "u32", "%r7")))
	out, data := m.alloc(4 * 40)
	if f := m.run("k", d3(1), d3(40), 0, out, out, 0); f != nil {
		t.Fatal(f)
	}
	for i, v := range wordsOf(data) {
		if want := uint32(500 - 3 - 4 + 1000 + i); v != want {
			t.Errorf("thread %d: %d, want %d", i, v, want)
		}
	}
}
