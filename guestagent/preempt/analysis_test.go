package preempt

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vgpud/ptx"
)

// analyzed analyzes a module.
func analyzed(t testing.TB, src string) *moduleInfo {
	t.Helper()
	m := parse(t, src)
	p, err := ptx.Resolve(m)
	if err != nil {
		t.Fatalf("%v\n%s", err, src)
	}
	return analyze(m, p)
}

func TestStudyReasons(t *testing.T) {
	const apart = "mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 3; @%p1 bra L; "
	const functions = `
.extern .func (.param .b32 v) vprintf(.param .b64 a, .param .b64 b);
.extern .func (.param .b32 v) cudaLaunchDeviceV2(.param .b64 a, .param .b64 b);
.extern .func __cxa_pure_virtual;
.extern .func elsewhere(.param .b32 a);
.func index(.param .b32 a) { .reg .b32 %r<2>; mov.u32 %r1, %nctaid.y; ret; }
.func plain(.param .b32 a) { ret; }
.func leaves(.param .b32 a) { exit; }
.func meets(.param .b32 a) { bar.sync 0; ret; }
.func meets_apart(.param .b32 a) { .reg .pred %p<2>; setp.eq.u32 %p1, %tid.x, 0; @%p1 bra L; bar.sync 0; L: ret; }
.func counts(.param .b32 a) { bar.sync 1, 64; ret; }
.func exchanges(.param .b32 a) { .reg .b32 %r<3>; shfl.sync.down.b32 %r1, %r2, 1, 31, -1; ret; }
.func again(.param .b32 a) { .reg .b32 %r<2>; mov.u32 %r1, %ctaid.x; { .param .b32 x; call again, (x); } ret; }
`
	const indirect = "{ .param .b32 x; prototype_0 : .callprototype _ (.param .b32 _); call %rd1, (x), prototype_0; }"
	tests := []struct {
		name, body     string
		refused, loops Reason
	}{
		{"nothing wrong", "mov.u32 %r1, %ctaid.x;", None, None},
		{"cooperative groups", "mov.u32 %r1, %envreg2;", GridSync, None},
		{"cluster registers", "mov.u32 %r1, %cluster_ctarank;", Cluster, None},
		{"cluster barrier", "barrier.cluster.arrive;", Cluster, None},
		{"cluster addresses", "mapa.u32 %r1, %r2, 1;", Cluster, None},
		{"stores into other blocks", "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r1], %r2, [%r3];", Cluster, None},
		{"copies to several blocks", "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1], [%rd1], 16, [%r2], %rs1;", Cluster, None},
		{"the launch's number", "mov.u64 %rd1, %gridid;", UnsupportedInstruction, None},
		{"an unknown instruction", "frobnicate.b32 %r1, %r2;", UnsupportedInstruction, None},
		{"device-side launch", "{ .param .b64 x; .param .b32 v; call (v), cudaLaunchDeviceV2, (x, x); }", DeviceLaunch, None},
		{"a graph on the device", "mov.u64 %rd1, %current_graph_exec;", DeviceLaunch, None},
		{"printing", "{ .param .b64 x; .param .b32 v; call (v), vprintf, (x, x); }", None, None},
		{"an unknown function", "{ .param .b32 x; call elsewhere, (x); }", ExternalCall, None},
		{"a call of an unknown function", indirect, IndirectCall, None},
		{"a call that may need the index", "mov.u64 %rd1, plain; mov.u64 %rd1, index; " + indirect, None, None},
		{"a call by a table of an abstract class", "mov.u64 %rd1, plain; mov.u64 %rd1, __cxa_pure_virtual; " + indirect, None, None},
		{"a call of one that is defined elsewhere", "mov.u64 %rd1, plain; mov.u64 %rd1, elsewhere; " + indirect, IndirectCall, None},
		{"a call that can't", "mov.u64 %rd1, plain; mov.u64 %rd1, meets; " + indirect, None, DivergentFunctionBarrier},
		{"a call of one in a list", "mov.u64 %rd1, index; list: .calltargets plain; { .param .b32 x; call %rd1, (x), list; }", None, None},
		{"one in a list needs the index", "list: .calltargets plain, index; { .param .b32 x; call %rd1, (x), list; }", None, None},
		{"recursion", "{ .param .b32 x; call again, (x); }", None, None},
		{"a function that ends its thread", "{ .param .b32 x; call leaves, (x); }", None, ExitInFunction},
		{"a barrier in a function", "{ .param .b32 x; call meets, (x); }", None, None},
		{"a barrier in a function that some threads call", apart + "{ .param .b32 x; call meets, (x); } L:", None, DivergentFunctionBarrier},
		{"a barrier that some threads of a function come to", "{ .param .b32 x; call meets_apart, (x); }", None, DivergentFunctionBarrier},
		{"a barrier with a thread count", "bar.sync 1, 64;", None, None},
		{"after some threads have returned", apart + "bar.sync 1, 64; L:", None, WarpAfterReturn},
		{"the same with a computed count", apart + "bar.sync 1, %r1; L:", None, WarpAfterReturn},
		{"the same, not aligned", apart + "barrier.cta.sync 1, 64; L:", None, WarpAfterReturn},
		{"the same, a reduction", apart + "bar.red.popc.u32 %r1, 1, 64, %p1; L:", None, WarpAfterReturn},
		{"the same, a reduction that is not aligned", apart + "barrier.red.or.pred %p2, 1, 64, %p1; L:", None, WarpAfterReturn},
		{"the same, behind returns", "mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 3; @%p1 ret; bar.sync 1, 64;", None, WarpAfterReturn},
		{"the same, by a guard", "mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 3; @%p1 barrier.sync 1, 64;", None, WarpAfterReturn},
		{"the same, in a function", apart + "{ .param .b32 x; call counts, (x); } L:", None, WarpAfterReturn},
		{"a barrier with a thread count in a function", "{ .param .b32 x; call counts, (x); }", None, None},
		{"one after whole blocks have returned", "mov.u32 %r5, %ctaid.x; setp.eq.u32 %p1, %r5, 3; @%p1 bra L; bar.sync 1, 64; L:", None, None},
		{"one behind which all meet", apart + "bar.sync 1, 64; L: bar.sync 0;", None, None},
		{"one before which all meet", apart + "mov.u32 %r2, 1; L: bar.sync 0; bar.sync 1, 64;", None, None},
		{"barrier 0 over part of the block", "bar.sync 0, 64;", None, DivergentNamedBarrier},
		{"a barrier over part of the block by a number computed", "bar.sync %r1, 64;", None, DivergentNamedBarrier},
		{"a barrier by a constant number", apart + "mov.u32 %r5, 0; barrier.sync %r5; L:", None, None},
		{"a barrier by one of two numbers", apart + "mov.u32 %r5, 0; mov.u32 %r5, 1; barrier.sync %r5; L:", None, DivergentNamedBarrier},
		{"arrivals", "bar.arrive 1, 64;", None, LastingState},
		{"memory barriers", "mbarrier.init.shared.b64 [%r1], 32;", None, LastingState},
		{"bulk copies", "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 16, [%r2];", None, LastingState},
		{"copies of each thread", "cp.async.ca.shared.global [%r1], [%rd1], 4;", None, None},
		{"registers given away", "setmaxnreg.dec.sync.aligned.u32 40;", None, LastingState},

		{"all lanes exchange", "shfl.sync.down.b32 %r1, %r2, 1, 31, -1;", None, None},
		{"lanes that have not returned exchange", apart + "shfl.sync.down.b32 %r1, %r2, 1, 31, -1; L:", None, WarpAfterReturn},
		{"the same in a function", apart + "{ .param .b32 x; call exchanges, (x); } L:", None, WarpAfterReturn},
		{"the same, of a whole block", "mov.u32 %r5, %ctaid.x; setp.eq.u32 %p1, %r5, 3; @%p1 bra L; shfl.sync.down.b32 %r1, %r2, 1, 31, -1; L:", None, None},
		{"all meet behind the exchange", apart + "shfl.sync.down.b32 %r1, %r2, 1, 31, -1; L: bar.sync 0;", None, None},
		{"all meet before the exchange", apart + "mov.u32 %r2, 1; L: bar.sync 0; shfl.sync.down.b32 %r1, %r2, 1, 31, -1;", None, None},
		{"some meet behind it", apart + "shfl.sync.down.b32 %r1, %r2, 1, 31, -1; bar.sync 0; L:", None, WarpAfterReturn},
		{"warps meet after a return", "mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 3; @%p1 ret; bar.warp.sync -1;", None, WarpAfterReturn},

		{"what must stay in the loop and can't", "L2: ld.volatile.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 3; @%p1 bra L2; bar.arrive 1, 64;", GridSync, LastingState},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			src := moduleOf(functions) + strings.TrimPrefix(kernelOf(tt.body+" ret;"), moduleOf(""))
			e := analyzed(t, src).entries[0]
			if e.refused != tt.refused || e.refused == None && e.loops != tt.loops {
				t.Errorf("refused: %q, in loops: %q (%s), want %q and %q", e.refused, e.loops, e.detail, tt.refused, tt.loops)
			}
			if (e.refused != None || e.loops != None) && e.detail == "" {
				t.Error("no detail")
			}
		})
	}
}

// TestStudyCounts checks the analysis of a kernel that has a bit of everything.
func TestStudyCounts(t *testing.T) {
	src := moduleOf(`
.func f(.param .b32 a) { .reg .b32 %r<2>; bar.sync 0; mov.u32 %r1, %ctaid.x; ret; }
.func g(.param .b32 a) { { .param .b32 x; call f, (x); } ret; }
.func unused(.param .b32 a) { bar.sync 0; ret; }
.entry declared(.param .b32 a);
.entry k(.param .u64 p)
{
	.reg .pred %p<3>; .reg .b32 %r<4>;
	.shared .b32 s;
	mov.u32 %r1, %tid.x;
	setp.eq.u32 %p1, %r1, 3;
	{ .param .b32 x; call g, (x); }
	{ .param .b32 x; call g, (x); }
	bar.sync 0;
	@%p1 bar.sync 0;
	bar.sync 2, 64;
	@%p1 ret;
	barrier.sync 0;
	cp.async.ca.shared.global [s], [%r2], 4;
	ret;
}
.entry bare() { ret; }
`)
	type facts struct {
		name                      string
		reach                     []string
		total, uniform, others    int
		rewrite                   []string
		index, shared, asyncs, ok bool
	}
	var got []facts
	for _, e := range analyzed(t, src).entries {
		x := facts{e.fn.Name, nil, e.barriers.total, e.barriers.uniform, e.barriers.others, nil, e.needsIndex, e.sharedMemory, e.asyncs, e.refused == None && e.loops == None}
		for _, f := range e.reach {
			x.reach = append(x.reach, f.code.Func.Name)
		}
		for _, b := range e.rewrite {
			x.rewrite = append(x.rewrite, fmt.Sprint(b.in))
		}
		got = append(got, x)
	}
	want := []facts{
		{"declared", nil, 0, 0, 0, nil, false, false, false, false},
		{"k", []string{"k", "g", "f"}, 5, 3, 2, []string{"@%p1 bar.sync 0;", "barrier.sync 0;"}, true, true, true, true},
		{"bare", []string{"bare"}, 0, 0, 0, nil, false, false, false, true},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(facts{})); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestStudyEndsInTime analyzes shapes for which simple algorithms take n² steps or more.
func TestStudyEndsInTime(t *testing.T) {
	const n = 10_000
	build := func(f func(b *strings.Builder)) string {
		var b strings.Builder
		b.WriteString(moduleOf(""))
		f(&b)
		return b.String()
	}
	for name, src := range map[string]string{
		"a chain of calls": build(func(b *strings.Builder) {
			b.WriteString(".func f0() { bar.sync 0; ret; }\n")
			for i := range n {
				fmt.Fprintf(b, ".func f%d() { call f%d; ret; }\n", i+1, i)
			}
			for i := range n {
				fmt.Fprintf(b, ".entry k%d() { call f%d; ret; }\n", i, i)
			}
		}),
		"all may call all": build(func(b *strings.Builder) {
			b.WriteString(".global .u64 table[2] = {f0, f1};\n")
			for i := range n {
				fmt.Fprintf(b, ".func f%d() { .reg .b64 %%rd<2>; mov.u64 %%rd1, f%d; p: .callprototype _ (); call %%rd1, p; ret; }\n", i, i)
			}
			b.WriteString(".entry k() { call f0; ret; }\n")
		}),
		"many branches in a loop that waits": build(func(b *strings.Builder) {
			b.WriteString(".entry k() { .reg .b64 %rd<2>; .reg .b32 %r<2>; .reg .pred %p<2>;\nL: ld.volatile.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0;\n")
			for i := range n {
				fmt.Fprintf(b, "@%%p1 bra M%d; add.u32 %%r1, %%r1, 1; M%d:\n", n-1-i, i)
			}
			b.WriteString("setp.eq.u32 %p1, %r1, 0; @%p1 bra L; ret; }\n")
		}),
		"many barriers by registers": build(func(b *strings.Builder) {
			fmt.Fprintf(b, ".entry k() { .reg .b32 %%r<%d>;\n", n)
			for i := range n {
				fmt.Fprintf(b, "mov.u32 %%r%d, 0; barrier.sync %%r%d;\n", i, i)
			}
			b.WriteString("ret; }\n")
		}),
	} {
		t.Run(name, func(t *testing.T) {
			if got := analyzed(t, src).entries; len(got) == 0 {
				t.Error("no kernels")
			}
		})
	}
}
