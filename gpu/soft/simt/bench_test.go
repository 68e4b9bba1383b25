package simt

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// loopKernel returns a kernel that repeats a body n times; its threads with %tid.x above last skip
// the loop.
func loopKernel(body string, last int) string {
	return fmt.Sprintf(`
.visible .entry k(.param .u64 k_param_0, .param .u32 k_param_1)
{
	.reg .pred %%p<4>; .reg .b32 %%r<40>; .reg .f32 %%f<40>; .reg .b64 %%rd<10>;
	ld.param.u64 %%rd1, [k_param_0];
	ld.param.u32 %%r1, [k_param_1];
	mov.u32 %%r2, %%tid.x;
	setp.gt.u32 %%p1, %%r2, %d;
	@%%p1 bra DONE;
	mov.u32 %%r3, 0;
	mov.u32 %%r10, %%r2; add.u32 %%r11, %%r2, 77; mov.u32 %%r12, 12345; mov.u32 %%r13, 99;
	cvt.rn.f32.u32 %%f1, %%r2; mov.f32 %%f2, 0f3F800001; mov.f32 %%f3, 0f3F7FFFFF; mov.f32 %%f4, 0f00000000;
LOOP:
%s
	add.u32 %%r3, %%r3, 1;
	setp.lt.u32 %%p2, %%r3, %%r1;
	@%%p2 bra LOOP;
	xor.b32 %%r10, %%r10, %%r11;
	mul.wide.u32 %%rd2, %%r2, 4;
	add.s64 %%rd3, %%rd1, %%rd2;
	st.global.u32 [%%rd3], %%r10;
DONE:
	ret;
}`, last, body)
}

const arith32 = `
	add.u32 %r10, %r10, %r11;
	xor.b32 %r11, %r11, %r10;
	mul.lo.u32 %r12, %r10, %r11;
	sub.u32 %r13, %r12, %r10;
	and.b32 %r14, %r13, %r12;
	or.b32 %r15, %r14, %r10;
	shl.b32 %r16, %r15, 3;
	add.s32 %r10, %r16, %r13;
`

// report reports thread instructions per second, of wall time and of CPU time. The latter is
// meaningful on a busy machine, too.
func report(b *testing.B, n uint64, cpu time.Duration) {
	b.ReportMetric(float64(n)/b.Elapsed().Seconds()/1e6, "Mthread-instr/s")
	b.ReportMetric(float64(n)/(processorTime()-cpu).Seconds()/1e6, "Mthread-instr/cpu-s")
}

func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// measure runs a kernel for the benchmark and reports thread instructions per second.
func measure(b *testing.B, m *machine, l Launch) {
	l.Memory, l.SMs = m.mem, 1
	g, err := NewGrid(l)
	if err != nil {
		b.Fatal(err)
	}
	blk := g.StartBlock(0)
	var now Now
	b.ReportAllocs()
	b.ResetTimer()
	before, cpu := g.Counts(), processorTime()
	for b.Loop() {
		r := blk.Step(now, 10_000)
		now.Cycle += r.Cycles
		now.Nanos += r.Cycles
		switch r.State {
		case Finished:
			if blk = g.StartBlock(0); blk == nil {
				b.Fatal("the grid is too small")
			}
		case Faulted:
			b.Fatal(r.Fault)
		}
	}
	n := g.Counts().ThreadInstructions - before.ThreadInstructions
	report(b, n, cpu)
}

const endless = 1<<31 - 1

// BenchmarkArith32 executes straight-line 32-bit arithmetic with full warps.
func BenchmarkArith32(b *testing.B) {
	m := newMachine(b, loopKernel(strings.Repeat(arith32, 8), 1023))
	out, _ := m.alloc(4096)
	measure(b, m, Launch{Kernel: m.module.Kernel("k"), Grid: d3(endless), Block: d3(256), Params: params(out, endless)})
}

// BenchmarkFma32 executes single-precision multiply-adds with full warps.
func BenchmarkFma32(b *testing.B) {
	m := newMachine(b, loopKernel(strings.Repeat("	fma.rn.f32 %f4, %f1, %f2, %f4;\n	fma.rn.f32 %f1, %f1, %f3, %f2;\n", 16), 1023))
	out, _ := m.alloc(4096)
	measure(b, m, Launch{Kernel: m.module.Kernel("k"), Grid: d3(endless), Block: d3(256), Params: params(out, endless)})
}

// BenchmarkOneLane executes 32-bit arithmetic with one active lane per warp.
func BenchmarkOneLane(b *testing.B) {
	m := newMachine(b, loopKernel(strings.Repeat(arith32, 8), 0))
	out, _ := m.alloc(4096)
	measure(b, m, Launch{Kernel: m.module.Kernel("k"), Grid: d3(endless), Block: d3(32), Params: params(out, endless)})
}

const vecAdd = `
.visible .entry vecadd(.param .u64 vecadd_param_0, .param .u64 vecadd_param_1, .param .u64 vecadd_param_2, .param .u32 vecadd_param_3)
{
	.reg .pred %p<2>; .reg .b32 %r<6>; .reg .f32 %f<4>; .reg .b64 %rd<11>;
	ld.param.u32 %r1, [vecadd_param_3];
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %ntid.x;
	mov.u32 %r4, %tid.x;
	mad.lo.s32 %r5, %r2, %r3, %r4;
	setp.ge.s32 %p1, %r5, %r1;
	@%p1 bra $L__BB0_2;
	ld.param.u64 %rd4, [vecadd_param_0];
	ld.param.u64 %rd5, [vecadd_param_2];
	cvta.to.global.u64 %rd6, %rd5;
	ld.param.u64 %rd7, [vecadd_param_1];
	cvta.to.global.u64 %rd8, %rd7;
	cvta.to.global.u64 %rd9, %rd4;
	mul.wide.s32 %rd10, %r5, 4;
	add.s64 %rd1, %rd6, %rd10;
	add.s64 %rd2, %rd8, %rd10;
	add.s64 %rd3, %rd9, %rd10;
	ld.global.f32 %f1, [%rd3];
	ld.global.f32 %f2, [%rd2];
	add.rn.f32 %f3, %f1, %f2;
	st.global.f32 [%rd1], %f3;
$L__BB0_2:
	ret;
}`

// BenchmarkVecAdd executes a vector addition as clang compiles it, with its loads, stores, bounds
// checks and starts of blocks.
func BenchmarkVecAdd(b *testing.B) {
	m := newMachine(b, vecAdd)
	const n = 1 << 18
	x, _ := m.alloc(4 * n)
	y, _ := m.alloc(4 * n)
	z, _ := m.alloc(4 * n)
	var now Now
	b.ReportAllocs()
	grid := Launch{Kernel: m.module.Kernel("vecadd"), Grid: d3(n / 256), Block: d3(256), Params: params(x, y, z, n), Memory: m.mem, SMs: 1}
	g, err := NewGrid(grid)
	if err != nil {
		b.Fatal(err)
	}
	cpu := processorTime()
	for b.Loop() {
		g.next, g.done = 0, 0
		for {
			blk := g.StartBlock(0)
			if blk == nil {
				break
			}
			if r := blk.Step(now, 1<<20); r.State != Finished {
				b.Fatal(r.Fault)
			}
		}
	}
	report(b, g.Counts().ThreadInstructions, cpu)
}

// BenchmarkGather loads through a permutation of indices.
func BenchmarkGather(b *testing.B) {
	body := `
	and.b32 %r20, %r10, 1023;
	mul.wide.u32 %rd4, %r20, 4;
	add.s64 %rd5, %rd1, %rd4;
	ld.global.u32 %r21, [%rd5];
	add.u32 %r10, %r10, %r21;
	add.u32 %r10, %r10, 77;
`
	m := newMachine(b, loopKernel(strings.Repeat(body, 8), 1023))
	out, _ := m.alloc(4096)
	measure(b, m, Launch{Kernel: m.module.Kernel("k"), Grid: d3(endless), Block: d3(256), Params: params(out, endless)})
}

// BenchmarkBarrier executes a loop of block barriers with little between them.
func BenchmarkBarrier(b *testing.B) {
	m := newMachine(b, loopKernel("	bar.sync 0;\n	add.u32 %r10, %r10, %r11;\n", 1023))
	out, _ := m.alloc(4096)
	measure(b, m, Launch{Kernel: m.module.Kernel("k"), Grid: d3(endless), Block: d3(256), Params: params(out, endless)})
}

// BenchmarkDiverge takes both sides of a branch in every iteration.
func BenchmarkDiverge(b *testing.B) {
	body := `
	and.b32 %r20, %r2, 1;
	setp.eq.u32 %p3, %r20, 0;
	@%p3 bra EVEN;
	add.u32 %r10, %r10, 3;
	mul.lo.u32 %r11, %r10, 5;
	bra MEET;
EVEN:
	xor.b32 %r10, %r10, 3;
	sub.u32 %r11, %r10, 5;
MEET:
`
	m := newMachine(b, loopKernel(body, 1023))
	out, _ := m.alloc(4096)
	measure(b, m, Launch{Kernel: m.module.Kernel("k"), Grid: d3(endless), Block: d3(256), Params: params(out, endless)})
}

// BenchmarkExchange executes a loop of exchanges between lanes. The masks come from data if there
// are several groups.
func BenchmarkExchange(b *testing.B) {
	const shfl = "	shfl.sync.bfly.b32 %r20, %r10, 1, 31, MASK;\n	add.u32 %r10, %r10, %r20;\n"
	const redux = "	redux.sync.add.u32 %r20, %r10, MASK;\n	xor.b32 %r10, %r10, %r20;\n"
	for name, body := range map[string]string{
		"shfl":             strings.ReplaceAll(shfl, "MASK", "-1"),
		"shfl/register":    "	mov.u32 %r21, -1;\n" + strings.ReplaceAll(shfl, "MASK", "%r21"),
		"redux":            strings.ReplaceAll(redux, "MASK", "-1"),
		"redux/register":   "	mov.u32 %r21, -1;\n" + strings.ReplaceAll(redux, "MASK", "%r21"),
		"redux/2 groups":   "	and.b32 %r21, %r2, 1;\n	shl.b32 %r21, 0x55555555, %r21;\n" + strings.ReplaceAll(redux, "MASK", "%r21"),
		"redux/32 groups":  "	mov.u32 %r21, %lanemask_eq;\n" + strings.ReplaceAll(redux, "MASK", "%r21"),
		"redux/two places": "	and.b32 %r21, %r2, 1;\n	setp.eq.u32 %p3, %r21, 0;\n" + strings.ReplaceAll("	@%p3 bra A;\n"+redux+"	bra B;\nA:\n"+redux+"B:\n", "MASK", "-1"),
	} {
		b.Run(name, func(b *testing.B) {
			m := newMachine(b, loopKernel(body, 1023))
			out, _ := m.alloc(4096)
			measure(b, m, Launch{Kernel: m.module.Kernel("k"), Grid: d3(endless), Block: d3(256), Params: params(out, endless)})
		})
	}
}

// BenchmarkBytes extends and chooses bytes and halves, as code about images and text does.
func BenchmarkBytes(b *testing.B) {
	body := `
	cvt.u16.u32 %h1, %r10; cvt.u32.u8 %r20, %r10; cvt.s16.s8 %h2, %h1; cvt.s32.s16 %r21, %h2; cvt.u64.u16 %rd4, %h1;
	setp.lt.u32 %p3, %r20, 77; selp.b32 %r10, %r20, %r21, %p3; add.u32 %r10, %r10, %r11;
`
	src := strings.Replace(loopKernel(strings.Repeat(body, 8), 1023), "	.reg .pred", "	.reg .b16 %h<4>;\n	.reg .pred", 1)
	m := newMachine(b, src)
	out, _ := m.alloc(4096)
	measure(b, m, Launch{Kernel: m.module.Kernel("k"), Grid: d3(endless), Block: d3(256), Params: params(out, endless)})
}
