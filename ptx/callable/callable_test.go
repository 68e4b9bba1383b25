package callable

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vgpud/ptx"
)

// make1 makes the kernels of a module callable.
func make1(t testing.TB, src string, o Options) (string, []Report) {
	t.Helper()
	m, err := ptx.Parse(src)
	if err != nil {
		t.Fatalf("%v\n%s", err, src)
	}
	out, reports, err := Make(m, o)
	if err != nil {
		t.Fatal(err)
	}
	return check(t, out, reports), reports
}

// check checks that a module's text parses and binds, and has the functions that the reports name.
func check(t testing.TB, out *ptx.Module, reports []Report) string {
	t.Helper()
	text := out.String()
	again, err := ptx.Parse(text)
	if err != nil {
		t.Fatalf("the output does not parse: %v\n%s", err, text)
	}
	prog, err := ptx.Resolve(again)
	if err != nil {
		t.Fatalf("the output does not bind: %v\n%s", err, text)
	}
	for _, r := range reports {
		if (r.Function != "") != (r.Reason == None) || r.Function != "" && prog.Code(r.Function) == nil {
			t.Fatalf("%+v:\n%s", r, text)
		}
	}
	return text
}

// kernelOf returns a module with a kernel of the given body.
func kernelOf(body string) string {
	return ".version 8.3\n.target sm_90\n.address_size 64\n" + `
.extern .func (.param .b32 r) cudaLaunchDevice (.param .b64 a);
.extern .func stranger ();
.func helper (.param .b32 a) { .reg .b32 %r<4>; ld.param.b32 %r1, [a]; mov.u32 %r2, %ctaid.x; ret; }
.func leaver () { exit; }
.global .u64 pointers[1] = {helper};
.visible .entry k (.param .u64 p0, .param .align 8 .b8 p1[24], .param .u32 p2)
{
	.reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .pred %p<9>;
	` + body + "\n}\n"
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		body string
		want Reason
	}{
		{"ret;", None},
		{"mov.u32 %r1, %envreg1; ret;", Cooperative},
		{"griddepcontrol.wait; ret;", Cooperative},
		{"mov.u32 %r1, %cluster_ctarank; ret;", Cluster},
		{"barrier.cluster.arrive; ret;", Cluster},
		{"{ .param .b64 a; .param .b32 r; call (r), cudaLaunchDevice, (a); } ret;", DeviceLaunch},
		{"call stranger; ret;", ExternalCall},
		{"ld.global.u64 %rd1, [pointers]; { .param .b32 a; call %rd1, (a), proto; } ret; proto: .callprototype _ (.param .b32 _);", IndirectCall},
		{"call leaver; ret;", ExitInFunction},
		{"mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 3; @%p1 ret; bar.sync 0; ret;", Barrier},
		{"bar.arrive 1, 64; ret;", Barrier},
		{"bar.sync 0; ret;", None},
		{"mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 3; @%p1 ret; shfl.sync.down.b32 %r4, %r5, 1, 31, -1; ret;", WarpAfterReturn},
		{"shfl.sync.down.b32 %r4, %r5, 1, 31, -1; ret;", None},
		{".shared .b64 m; mbarrier.init.shared.b64 [m], 1; ret;", LastingState},
		{"mov.u64 %rd1, p1; st.param.b32 [%rd1], %r1; ret;", Parameters},
		{"mov.u32 %r1, %dynamic_smem_size; ret;", UnsupportedInstruction},
		{"mov.u32 %r1, %gridid; ret;", UnsupportedInstruction},
		{"mov.v4.u32 {%r1, %r2, %r3, %r4}, %tid; ret;", UnsupportedInstruction},
		{".shared .b8 big[65536]; ret;", TooBig},
		{"frobnicate.b32 %r1, %r2; ret;", UnsupportedInstruction},
	} {
		_, reports := make1(t, kernelOf(c.body), Options{})
		if reports[0].Reason != c.want {
			t.Errorf("%s: %v (%s), want %v", c.body, reports[0].Reason, reports[0].Detail, c.want)
		}
	}
	if _, r := make1(t, kernelOf("add.u64 %rd1, %rd2, %rd3; add.u64 %rd4, %rd5, %rd1; st.global.u64 [%rd4], %rd6; ret;"), Options{MaxRegisters: 7}); r[0].Reason != TooManyRegisters || r[0].Registers != 8 {
		t.Errorf("four values of 64 bits for seven registers: %+v", r[0])
	}
	src := strings.Replace(kernelOf("ret;"), ".entry k", ".entry k__vgpud_call () { ret; }\n.visible .entry k", 1)
	if _, r := make1(t, src, Options{}); r[1].Reason != NameInUse {
		t.Errorf("the function's name is taken: %+v", r[1])
	}
	if _, r := make1(t, ".version 8.3\n.target sm_90\n.address_size 64\n.extern .entry k ();", Options{}); r[0].Reason != NoBody {
		t.Errorf("no body: %+v", r[0])
	}
}

// TestParameters checks each way in which compilers read a kernel's parameters.
func TestParameters(t *testing.T) {
	text, reports := make1(t, kernelOf(`
	ld.param.u64 %rd1, [p0];
	ld.param.v2.u32 {%r1, %r2}, [p1+8];
	ld.param.u32 %r3, [p2];
	mov.b64 %rd2, p1;
	ld.param.u32 %r4, [%rd2+4];
	cvta.param.u64 %rd3, %rd2;
	mov.u32 %r5, %tid.y; mad.lo.u32 %r6, %nctaid.z, %r5, %ctaid.x;
	{ .param .b32 a; st.param.b32 [a], %r6; @%p1 call helper, (a); }
	@%p2 exit;
	ret;`), Options{})
	r := reports[0]
	if r.ParamBytes != 36 || r.ParamAlign != 8 || r.Block || r.Waits {
		t.Errorf("%+v", r)
	}
	_, made, _ := strings.Cut(text, ".visible .func k__vgpud_call")
	for _, want := range []string{
		"ld.param.b64 %vgpud_arguments, [vgpud_arguments];", "cvta.to.global.u64 %vgpud_arguments, %vgpud_arguments;",
		"ld.global.u64 %rd1, [%vgpud_arguments];", "ld.global.v2.u32 {%r1, %r2}, [%vgpud_arguments+16];",
		"ld.global.u32 %r3, [%vgpud_arguments+32];", "add.s64 %rd2, %vgpud_arguments, 8;", "ld.global.u32 %r4, [%rd2+4];",
		"cvta.global.u64 %rd3, %rd2;", "ld.param.b32 %vgpud_place1, [vgpud_place+4];", "mov.u32 %r5, %vgpud_place1;",
		"mad.lo.u32 %r6, %vgpud_place11, %r5, %vgpud_place6;", "@%p1 st.param.b32 [vgpud_passed0+44], %vgpud_place11;",
		"@%p1 call helper__vgpud_placed, (vgpud_passed0, a);", "@%p2 ret;",
	} {
		if !strings.Contains(made, want) {
			t.Errorf("missing: %s", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// TestWaits checks that loops which end because of what another block wrote are found.
func TestWaits(t *testing.T) {
	for body, want := range map[string]bool{
		"L: ld.volatile.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; ret;":                                                 true,
		"L: ld.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; ret;":                                                          false,
		"L: atom.global.add.u32 %r1, [%rd1], 1; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 9; @%p1 bra L; st.global.u32 [%rd2], %r1; ret;": false,
	} {
		if _, r := make1(t, kernelOf(body), Options{}); r[0].Waits != want {
			t.Errorf("%s: Waits is %t, want %t", body, r[0].Waits, want)
		}
	}
}

// TestManyKernelsOfManyFunctions: a small module whose kernels all reach all of its functions does not
// take time by the product.
func TestManyKernelsOfManyFunctions(t *testing.T) {
	const n = 2500
	var src strings.Builder
	src.WriteString(".version 8.3\n.target sm_90\n.address_size 64\n.func f0 () { ret; }\n")
	for i := 1; i < n; i++ {
		fmt.Fprintf(&src, ".func f%d () { call f%d; ret; }\n", i, i-1)
	}
	for i := range n {
		fmt.Fprintf(&src, ".visible .entry k%d () { call f%d; ret; }\n", i, n-1)
	}
	_, reports := make1(t, src.String(), Options{})
	if len(reports) != n || reports[0].Reason != None || reports[n-1].Reason != TooBig {
		t.Errorf("%d kernels, the first %v, the last %v", len(reports), reports[0].Reason, reports[n-1].Reason)
	}
}

// samples calls f with real compilers' modules.
func samples(t testing.TB, f func(name, src string)) {
	for _, pattern := range []string{"../testdata/*.ptx", "../testdata/real/*.ptx"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("no samples at %s: %v", pattern, err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			f(filepath.Base(name), string(text))
		}
	}
}

func TestSamples(t *testing.T) {
	all, made := 0, 0
	samples(t, func(name, src string) {
		_, reports := make1(t, src, Options{})
		for _, r := range reports {
			all++
			if r.Reason == None {
				made++
			} else {
				t.Logf("%s: %s: %v (%s)", name, r.Kernel, r.Reason, r.Detail)
			}
		}
	})
	t.Logf("%d of %d kernels are callable", made, all)
	if made*2 < all {
		t.Errorf("only %d of %d kernels are callable", made, all)
	}
}

// FuzzMake checks Make's promises for any module: no panic, and an output that parses, binds and has
// every function that is reported.
func FuzzMake(f *testing.F) {
	samples(f, func(_, src string) {
		if len(src) < 8<<10 {
			f.Add(src)
		}
	})
	f.Add(kernelOf("mov.b64 %rd2, p1; ld.param.u32 %r4, [%rd2+4]; cvta.param.u64 %rd3, p1; { .param .b32 a; call helper, (a); } exit;"))
	f.Add(kernelOf("mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 3; @%p1 ret; bar.red.popc.u32 %r2, 0, %p1; cp.async.wait_all; ret;"))
	f.Fuzz(func(t *testing.T, src string) {
		m, err := ptx.Options{MaxBytes: 1 << 20, MaxStatements: 1 << 16}.Parse(src)
		if err != nil {
			return
		}
		out, reports, err := Make(m, Options{})
		if err != nil {
			return
		}
		check(t, out, reports)
	})
}
