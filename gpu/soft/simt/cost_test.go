package simt

import (
	"testing"
)

// Costs follow the model's numbers, and memory is charged by the sectors that the lanes touch.
func TestCosts(t *testing.T) {
	costs := CostModel{Simple: 1, Wide: 3, Convert: 5, Special: 7, Slow: 11, Control: 13, Shuffle: 17, Memory: 100, Sector: 1000, Atomic: 10_000, Block: 0, Warp: 0}
	for _, test := range []struct {
		code    string
		threads uint32
		want    uint64
		bytes   uint64
	}{
		{"add.u32 %r3, %r2, %r2;", 32, 1, 0},
		{"add.u32 %r3, %r2, %r2;", 64, 2, 0},
		{"add.u32 %r3, %r2, %r2;", 1, 1, 0},
		{"fma.rn.f64 %fd1, %fd2, %fd3, %fd1;", 32, 3, 0},
		{"cvt.rn.f32.u32 %f1, %r2;", 32, 5, 0},
		{"rsqrt.approx.f32 %f1, %f2;", 32, 7, 0},
		{"shfl.sync.idx.b32 %r3, %r2, 0, 31, -1;", 32, 17, 0},
		{"bar.sync 0;", 32, 13, 0},
		{"ld.global.u32 %r3, [%rd8];", 32, 4100, 128},
		{"ld.global.u32 %r3, [%rd8+16];", 32, 5100, 160},
		{"ld.global.u32 %r3, [%rd8];", 8, 1100, 32},
		{"ld.global.u32 %r3, [%rd1];", 32, 1100, 32},
		{"ld.global.v4.u32 {%r3,%r4,%r5,%r6}, [%rd9];", 32, 16100, 512},
		{"ld.global.u32 %r3, [%rd9];", 32, 16100, 512},
		{"st.global.u64 [%rd10], %rd1;", 32, 8100, 256},
		{"ld.shared.u32 %r3, [%r5];", 32, 100, 0},
		{"atom.global.add.u32 %r3, [%rd1], 1;", 32, 321_100, 32},
	} {
		m, err := Load(t.Context(), parse(t, entry(`
	mul.wide.u32 %rd8, %r2, 4; mul.wide.u32 %rd9, %r2, 16; mul.wide.u32 %rd10, %r2, 8;
	add.s64 %rd8, %rd8, %rd1; add.s64 %rd9, %rd9, %rd1; add.s64 %rd10, %rd10, %rd1; mov.u32 %r5, 0;
	`+test.code)), Options{Costs: &costs})
		if err != nil {
			t.Fatal(err)
		}
		ma := machineFor(t, m)
		at, _ := ma.alloc(1024)
		if f := ma.run("k", d3(1), d3(test.threads), 64, at, at, 0); f != nil {
			t.Fatal(f)
		}
		warps := uint64(test.threads+31) / 32
		got := ma.last.Counts()
		if rest := got.Cycles - warps*(11+13); rest != test.want {
			t.Errorf("%s with %d threads: %d cycles, want %d", test.code, test.threads, rest, test.want)
		}
		if got.GlobalBytes != test.bytes {
			t.Errorf("%s with %d threads: %d bytes, want %d", test.code, test.threads, got.GlobalBytes, test.bytes)
		}
	}
}

// A grid gives the same result however it is divided into steps.
func TestStepsDoNotMatter(t *testing.T) {
	var first Counts
	for i, budget := range []int{1_000_000, 10_000, 100, 7, 1} {
		m := newMachine(t, entry(`
	mov.u32 %r3, 0;
	mov.u32 %r6, 0;
L:
	atom.global.add.u32 %r4, [%rd2], 3;
	bar.sync 0;
	add.u32 %r3, %r3, 1;
	and.b32 %r5, %r2, 7;
	setp.le.u32 %p1, %r3, %r5;
	@%p1 mad.lo.u32 %r6, %r3, %r5, %r6;
	setp.lt.u32 %p1, %r3, 20;
	@%p1 bra L;
`+storeAt("%r2", "u32", "%r6")))
		m.budget, m.sms = budget, 1
		out, data := m.alloc(4 * 128)
		count, sum := m.words(0)
		if f := m.run("k", d3(3), d3(128), 0, out, count, 0); f != nil {
			t.Fatal(f)
		}
		if i == 0 {
			first = m.last.Counts()
		}
		if got := m.last.Counts(); got != first {
			t.Errorf("budget %d: %+v, want %+v", budget, got, first)
		}
		if wordsOf(sum)[0] != 3*128*20*3 || wordsOf(data)[7] != 7*(1+2+3+4+5+6+7) {
			t.Errorf("budget %d: %d, %d", budget, wordsOf(sum)[0], wordsOf(data)[7])
		}
	}
}

// A kernel's attributes follow from its declaration and code.
func TestAttributes(t *testing.T) {
	m := newMachine(t, `
.const .f32 c[100];
.visible .entry k(.param .u8 a, .param .u64 b, .param .align 16 .b8 s[20], .param .f32 f) .maxntid 64, 2 .minnctapersm 4
{
	.reg .b32 %r<9>;
	.shared .align 16 .b8 sh[40];
	.local .align 8 .b8 depot[100];
	mov.u32 %r1, %tid.x;
	ret;
}`)
	a := m.module.Kernel("k").Attributes()
	if a.MaxThreadsPerBlock != 128 || a.SharedBytes != 40 || a.LocalBytes != 112 || a.ConstBytes != 512 || a.PTXVersion != 80 || a.BinaryVersion != 80 ||
		a.ParamBytes != 40 || len(a.Params) != 4 || a.Params[1].Offset != 8 || a.Params[2].Offset != 16 || a.Params[3].Offset != 36 || a.Registers != 16 {
		t.Errorf("%+v", a)
	}
	if n := m.module.Kernel("k").LocalPerWarp(); n != 32*112 {
		t.Error(n)
	}
}

// Registers that are not used at the same time share one.
func TestRegistersShare(t *testing.T) {
	m := newMachine(t, entry(`
	add.u32 %r3, %r2, 1; add.u32 %r4, %r3, 1; add.u32 %r5, %r4, 1; add.u32 %r6, %r5, 1; add.u32 %r7, %r6, 1;
	add.u32 %r8, %r7, 1; add.u32 %r9, %r8, 1; add.u32 %r10, %r9, 1; add.u32 %r11, %r10, 1; add.u32 %r12, %r11, 1;
`+storeAt("%r2", "u32", "%r12")))
	if n := m.module.Kernel("k").prog.n32; n > 8 {
		t.Errorf("%d registers of 32 bits", n)
	}
}
