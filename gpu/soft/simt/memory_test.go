package simt

import (
	"encoding/binary"
	"math"
	"testing"

	"vgpud/gpu"
)

// Loads extend to their registers by sign or with zeros; stores truncate.
func TestWidths(t *testing.T) {
	m := newMachine(t, entry(`
	ld.global.s8 %r3, [%rd2];
	ld.global.u8 %r4, [%rd2];
	ld.global.s16 %rd3, [%rd2];
	ld.global.s8 %rs1, [%rd2];
	ld.global.b8 %rs2, [%rd2];
	cvt.u32.u16 %r5, %rs1;
	cvt.u32.u16 %r6, %rs2;
	st.global.u32 [%rd1], %r3;
	st.global.u32 [%rd1+4], %r4;
	st.global.u64 [%rd1+8], %rd3;
	st.global.u32 [%rd1+16], %r5;
	st.global.u32 [%rd1+20], %r6;
	st.global.u8 [%rd1+24], %rd3;
	st.global.v2.u8 [%rd1+26], {%r3, 9};
	ld.global.v4.s8 {%r7, %r8, _, %r9}, [%rd2];
	st.global.v2.u32 [%rd1+32], {%r7, %r9};
`))
	src, _ := m.words(0x7f_01_80_f0)
	out, data := m.alloc(40)
	if f := m.run("k", d3(1), d3(1), 0, out, src, 0); f != nil {
		t.Fatal(f)
	}
	want := []uint32{0xfffffff0, 0xf0, 0xffff80f0, 0xffffffff, 0xfff0, 0xf0, 0x09f0_00f0, 0, 0xfffffff0, 0x7f}
	for i, v := range wordsOf(data) {
		if v != want[i] {
			t.Errorf("word %d: %#x, want %#x", i, v, want[i])
		}
	}
}

// One generic load reads shared, local, global, constant and parameter memory, with lanes in each.
func TestGenericAddresses(t *testing.T) {
	m := newMachine(t, `
.const .align 4 .u32 c = 4000;
.global .align 4 .u32 g = 1000;
.visible .entry k(.param .u64 out, .param .align 4 .b8 s[8])
{
	.reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %rd<20>;
	.shared .align 4 .b8 sh[64];
	.local .align 8 .b8 depot[16];
	ld.param.u64 %rd1, [out];
	mov.u32 %r2, %tid.x;
	mov.u32 %r3, 2000;
	st.shared.u32 [sh+8], %r3;
	mov.u64 %rd2, depot;
	add.u32 %r4, %r2, 3000;
	st.local.u32 [%rd2+4], %r4;
	cvta.local.u64 %rd3, %rd2;
	add.s64 %rd3, %rd3, 4;
	mov.u64 %rd4, sh;
	cvta.shared.u64 %rd4, %rd4;
	add.s64 %rd4, %rd4, 8;
	mov.u64 %rd5, g;
	mov.u64 %rd6, c;
	mov.b64 %rd7, s;
	cvta.param.u64 %rd7, %rd7;
	add.s64 %rd7, %rd7, 4;
	rem.u32 %r5, %r2, 5;
	setp.eq.u32 %p1, %r5, 1; setp.eq.u32 %p2, %r5, 2; setp.eq.u32 %p3, %r5, 3; setp.eq.u32 %p4, %r5, 4;
	mov.u64 %rd8, %rd5;
	@%p1 mov.u64 %rd8, %rd4;
	@%p2 mov.u64 %rd8, %rd3;
	@%p3 mov.u64 %rd8, %rd6;
	@%p4 mov.u64 %rd8, %rd7;
	ld.u32 %r6, [%rd8];
	isspacep.shared %p5, %rd8; isspacep.local %p6, %rd8; isspacep.const %p7, %rd8; isspacep.global %p8, %rd8;
	@%p5 add.u32 %r6, %r6, 100; @%p6 add.u32 %r6, %r6, 200; @%p7 add.u32 %r6, %r6, 400; @%p8 add.u32 %r6, %r6, 800;
	mul.wide.u32 %rd9, %r2, 4;
	add.s64 %rd9, %rd9, %rd1;
	st.u32 [%rd9], %r6;
	ret;
}`)
	out, data := m.alloc(4 * 64)
	p := binary.LittleEndian.AppendUint32(append(params(out), 0, 0, 0, 0), 5000)
	if f := m.launch(Launch{Kernel: m.module.Kernel("k"), Grid: d3(1), Block: d3(64), Params: p}); f != nil {
		t.Fatal(f)
	}
	for i, v := range wordsOf(data) {
		want := []uint32{1800, 2100, uint32(3200 + i), 4000 + 400 + 800, 5000}[i%5]
		if v != want {
			t.Errorf("thread %d: %d, want %d", i, v, want)
		}
	}
}

// Dynamic shared memory begins after the static part, with the size of the launch.
func TestDynamicShared(t *testing.T) {
	m := newMachine(t, ".extern .shared .align 16 .b8 dyn[];\n"+entry(`
	.shared .align 4 .b8 st[20];
	st.shared.u32 [st+16], 7;
	mov.u32 %r3, dyn;
	shl.b32 %r4, %r2, 2;
	add.u32 %r4, %r3, %r4;
	st.shared.u32 [%r4], %r2;
	ld.shared.u32 %r5, [st+16];
	mov.u32 %r6, %dynamic_smem_size;
	mov.u32 %r7, %total_smem_size;
	add.u32 %r5, %r5, %r6;
	add.u32 %r5, %r5, %r7;
`+storeAt("%r2", "u32", "%r5")))
	out, data := m.alloc(4 * 64)
	if f := m.run("k", d3(1), d3(64), 256, out, out, 0); f != nil {
		t.Fatal(f)
	}
	if v := wordsOf(data)[63]; v != 7+256+32+256 {
		t.Error(v)
	}
	if f := m.run("k", d3(1), d3(64), 252, out, out, 0); f == nil || f.Thread.X != 63 || f.Space != "shared" {
		t.Error(f)
	}
}

// Initialisers of every kind are in their places.
func TestImage(t *testing.T) {
	m := newMachine(t, `
.global .align 4 .b8 zeros[100];
.global .align 4 .f32 f[3] = {1.5, 0f40000000};
.const .align 8 .f64 d = 0.25;
.global .align 8 .u64 p[2] = {f, generic(f)+4};
.global .align 1 .b8 bytes[8] = {1, 0xff(f), 0xff00(f), 0xff0000(f), 255};
.visible .global .align 4 .s16 s[2][2] = {{1, -1}, {2}};
.visible .entry k() { ret; }`)
	mod := m.module
	at := func(name string, n int) []byte {
		off, size, ok := mod.Global(name)
		b, mapped := m.mem.Bytes(mod.vars.base+off, size)
		if !ok || !mapped || len(b) < n {
			t.Fatalf("%s: %d bytes, %v", name, size, ok)
		}
		return b
	}
	fOff, _, _ := mod.Global("f")
	f := mod.vars.base + fOff
	if b := at("f", 12); math.Float32frombits(wordsOf(b)[0]) != 1.5 || math.Float32frombits(wordsOf(b)[1]) != 2 || wordsOf(b)[2] != 0 {
		t.Error(b)
	}
	if v := fetch(at("d", 8), 8, false); math.Float64frombits(v) != 0.25 {
		t.Error(v)
	}
	if b := at("p", 16); fetch(b, 8, false) != f || fetch(b[8:], 8, false) != f+4 {
		t.Errorf("%x, want %x", b, f)
	}
	if b := at("bytes", 8); b[0] != 1 || b[1] != byte(f) || b[2] != byte(f>>8) || b[3] != byte(f>>16) || b[4] != 255 {
		t.Errorf("%x, want those of %x", b, f)
	}
	if b := at("s", 8); fetch(b, 8, false) != 0x0000_0002_ffff_0001 {
		t.Errorf("%x", b)
	}
	if b := at("zeros", 100); b[99] != 0 {
		t.Error(b)
	}
}

// Atomics return the old value and store the new one, lane after lane.
func TestAtomics(t *testing.T) {
	for _, test := range []struct {
		code    string
		before  uint64
		after   uint64
		ofLane3 uint64 // what lane 3 of 8 gets
	}{
		{"atom.global.add.u32 %r3, [%rd1], %r2; cvt.u64.u32 %rd3, %r3;", 100, 128, 103},
		{"atom.add.u64 %rd3, [%rd1], 0x100000000;", 5, 5 + 8<<32, 5 + 3<<32},
		{"atom.global.inc.u32 %r3, [%rd1], 4; cvt.u64.u32 %rd3, %r3;", 3, 1, 1},
		{"atom.global.dec.u32 %r3, [%rd1], 4; cvt.u64.u32 %rd3, %r3;", 1, 3, 3},
		{"atom.global.exch.b32 %r3, [%rd1], %r2; cvt.u64.u32 %rd3, %r3;", 77, 7, 2},
		{"add.u32 %r4, %r2, 1; atom.global.cas.b32 %r3, [%rd1], %r2, %r4; cvt.u64.u32 %rd3, %r3;", 0, 8, 3},
		{"atom.global.max.s32 %r3, [%rd1], %r2; cvt.u64.u32 %rd3, %r3;", 0xfffffff0, 7, 2},
		{"atom.global.min.u32 %r3, [%rd1], %r2; cvt.u64.u32 %rd3, %r3;", 0xfffffff0, 0, 0},
		{"atom.global.xor.b32 %r3, [%rd1], %r2; cvt.u64.u32 %rd3, %r3;", 0, 0, 3},
		{"cvt.rn.f32.u32 %f1, %r2; atom.global.add.f32 %f2, [%rd1], %f1; cvt.rzi.u64.f32 %rd3, %f2;", 0x3f800000, 0x41e80000, 4},
		{"cvt.rn.f64.u32 %fd1, %r2; atom.global.add.f64 %fd2, [%rd1], %fd1; cvt.rzi.u64.f64 %rd3, %fd2;", 0x3ff0000000000000, 0x403d000000000000, 4},
		{"red.global.add.u32 [%rd1], 2; mov.u64 %rd3, 1;", 1, 17, 1},
		{"mov.b32 %r4, 0x3c003c00; atom.global.add.noftz.f16x2 %r3, [%rd1], %r4; cvt.u64.u32 %rd3, %r3;", 0, 0x48004800, 0x42004200},
	} {
		m := newMachine(t, entry(test.code+`
	mul.wide.u32 %rd5, %r2, 8; add.s64 %rd5, %rd5, %rd2; st.global.u64 [%rd5], %rd3;
`))
		at, data := m.alloc(8)
		put(data, 8, test.before)
		out, got := m.alloc(64)
		if f := m.run("k", d3(1), d3(8), 0, at, out, 0); f != nil {
			t.Fatal(f)
		}
		if v := fetch(data, 8, false); v != test.after {
			t.Errorf("%s leaves %#x, want %#x", test.code, v, test.after)
		}
		if v := fetch(got[24:], 8, false); v != test.ofLane3 {
			t.Errorf("%s gives lane 3 %#x, want %#x", test.code, v, test.ofLane3)
		}
	}
}

// An asynchronous copy copies the given bytes and fills the rest with zeros.
func TestAsyncCopy(t *testing.T) {
	m := newMachine(t, ".shared .align 16 .b8 tile[512];\n"+entry(`
	mov.u32 %r3, tile;
	shl.b32 %r4, %r2, 4;
	add.u32 %r3, %r3, %r4;
	mul.wide.u32 %rd3, %r2, 16;
	add.s64 %rd3, %rd2, %rd3;
	mov.u32 %r5, 8;
	setp.eq.u32 %p1, %r2, 3;
	@%p1 bra PART;
	cp.async.cg.shared.global.L2::128B [%r3], [%rd3], 16;
	bra WAIT;
PART:
	cp.async.cg.shared.global [%r3], [%rd3], 16, %r5;
WAIT:
	cp.async.commit_group;
	cp.async.wait_group 0;
	bar.sync 0;
	ld.shared.v4.u32 {%r6, %r7, %r8, %r9}, [%r3];
	mul.wide.u32 %rd3, %r2, 16;
	add.s64 %rd3, %rd1, %rd3;
	st.global.v4.u32 [%rd3], {%r6, %r7, %r8, %r9};
`))
	var words []uint32
	for i := range uint32(128) {
		words = append(words, i+1)
	}
	src, _ := m.words(words...)
	out, data := m.alloc(512)
	if f := m.run("k", d3(1), d3(32), 0, out, src, 0); f != nil {
		t.Fatal(f)
	}
	for i, v := range wordsOf(data) {
		want := words[i]
		if i == 14 || i == 15 {
			want = 0
		}
		if v != want {
			t.Errorf("word %d: %d, want %d", i, v, want)
		}
	}
	if f := m.run("k", d3(1), d3(32), 0, out, src+8, 0); f == nil || f.Kind != gpu.FaultMisaligned {
		t.Error(f)
	}
}

// A bulk copy completes the phase of an mbarrier that expects its bytes.
func TestBulkCopy(t *testing.T) {
	m := newMachine(t, ".shared .align 16 .b8 tile[512];\n.shared .align 8 .b64 mb;\n"+entry(`
	mov.u32 %r9, mb;
	mov.u32 %r8, tile;
	setp.ne.u32 %p1, %r2, 0;
	@%p1 bra READY;
	mbarrier.init.shared::cta.b64 [%r9], 1;
	fence.mbarrier_init.release.cluster;
	mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%r9], %r1;
	cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r8], [%rd2], %r1, [%r9];
READY:
	bar.sync 0;
WAIT:
	mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p2, [%r9], 0;
	@!%p2 bra WAIT;
	shl.b32 %r3, %r2, 2;
	add.u32 %r3, %r3, %r8;
	ld.shared.u32 %r4, [%r3];
	add.u32 %r4, %r4, 1;
	st.shared.u32 [%r3], %r4;
	bar.sync 0;
	@%p1 bra DONE;
	fence.proxy.async.shared::cta;
	cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r8], %r1;
	cp.async.bulk.commit_group;
	cp.async.bulk.wait_group.read 0;
DONE:
`))
	var words []uint32
	for i := range uint32(128) {
		words = append(words, i)
	}
	src, _ := m.words(words...)
	out, data := m.alloc(512)
	if f := m.run("k", d3(1), d3(128), 0, out, src, 512); f != nil {
		t.Fatal(f)
	}
	for i, v := range wordsOf(data) {
		if v != uint32(i+1) {
			t.Fatalf("word %d: %d", i, v)
		}
	}
	if f := m.run("k", d3(1), d3(128), 0, out, src+256, 512); f == nil || f.Kind != gpu.FaultAddress || f.Size != 512 {
		t.Error(f)
	}
}
