package preempt

import (
	"fmt"
	"strings"
	"testing"

	"vgpud/ptx"
	"vgpud/ptx/rewrite"
)

// TestRules tests the rules of rewriting, one kernel each.
func TestRules(t *testing.T) {
	tests := []struct {
		name   string
		src    string
		form   Form
		has    []string // lines of the form
		hasNot []string
	}{
		{
			name: "index and grid become registers",
			src:  kernelOf("mov.u32 %r1, %ctaid.y; add.u32 %r1, %r1, %nctaid.z; mov.b64 %rd1, {%ctaid.x, %r1};"),
			form: Coarse,
			has:  []string{"mov.u32 %r1, %vgpud_y;", "add.u32 %r1, %r1, %vgpud_gz;", "mov.b64 %rd1, {%vgpud_x, %r1};"},
		},
		{
			name:   "only what is read is computed",
			src:    kernelOf("mov.u32 %r1, %ctaid.x;"),
			form:   Coarse,
			has:    []string{"rem.u32 %vgpud_x, %vgpud_t, %vgpud_gx;"},
			hasNot: []string{"%vgpud_y", "%vgpud_gy"},
		},
		{
			name:   "no index at all",
			src:    kernelOf("mov.u32 %r1, %tid.x;"),
			form:   Persistent,
			hasNot: []string{"%vgpud_x", "%vgpud_gx", "rem.u32", "div.u32"},
		},
		{
			name:   "single keeps returns and barriers",
			src:    kernelOf("setp.eq.u32 %p1, %tid.x, 3; @%p1 ret; bar.sync 0; exit;"),
			form:   Single,
			has:    []string{"@%p1 ret;", "bar.sync 0;"},
			hasNot: []string{"barrier.red"},
		},
		{
			name: "returns and exits lead to the task's end",
			src:  kernelOf("setp.eq.u32 %p1, %tid.x, 3; @!%p1 ret.uni; @%p1 exit; ret;"),
			form: Coarse,
			has:  []string{"@!%p1 bra vgpud_end;", "@%p1 bra vgpud_end;"},
		},
		{
			name:   "a task in global memory alone needs no barrier behind it",
			src:    strings.Replace(kernelOf("mov.u32 %r1, %ctaid.x;"), ".shared .b32 tile[64];", "", 1),
			form:   Coarse,
			hasNot: []string{"bar.sync", "bar.warp.sync"},
		},
		{
			name: "shared memory is left before the next task comes",
			src:  kernelOf("st.shared.u32 [tile], %r1;"),
			form: Coarse,
			has:  []string{"bar.sync 0;"},
		},
		{
			name: "a warp's exchanges are over before the next task comes",
			src:  strings.Replace(kernelOf("shfl.sync.idx.b32 %r1, %r2, 0, 31, -1;"), ".shared .b32 tile[64];", "", 1),
			form: Coarse,
			has:  []string{"bar.warp.sync -1;"},
		},
		{
			name: "lanes that ask which run with them are of one task",
			src:  strings.Replace(kernelOf("activemask.b32 %r1;"), ".shared .b32 tile[64];", "", 1),
			form: Coarse,
			has:  []string{"bar.warp.sync -1;"},
		},
		{
			name: "so are lanes that exchange what they do not name, where warps have no barrier",
			src:  strings.NewReplacer(".shared .b32 tile[64];", "", "sm_80", "sm_20").Replace(kernelOf("vote.ballot.b32 %r1, %p1;")),
			form: Coarse,
			has:  []string{"bar.sync 0;"},
		},
		{
			name: "copies into shared memory are over",
			src:  kernelOf("cp.async.ca.shared.global [tile], [%rd1], 4;"),
			form: Persistent,
			has:  []string{"cp.async.wait_all;"},
		},
		{
			name:   "a barrier that some threads pass by",
			src:    kernelOf("setp.eq.u32 %p1, %tid.x, 3; @%p1 ret; bar.sync 0; ret;"),
			form:   Coarse,
			has:    []string{"mov.u32 %vgpud_state, 1;\n\tbra vgpud_hub;\nvgpud_way1:", "vgpud_ways: .branchtargets vgpud_hub, vgpud_way1;"},
			hasNot: []string{"bar.sync"},
		},
		{
			name: "a guarded barrier, and one that all pass beside it",
			src:  kernelOf("setp.eq.u32 %p1, %tid.x, 3; bar.sync 0; @!%p1 barrier.sync 0; ret;"),
			form: Persistent,
			has:  []string{"@!%p1 mov.u32 %vgpud_state, 2;\n\t@!%p1 bra vgpud_hub;\nvgpud_way2:"},
		},
		{
			name: "16 bits of an index",
			src:  kernelOf("mov.u16 %rs1, %ctaid.x; mul.wide.u16 %r1, %rs1, %nctaid.y; cvt.u32.u16 %r2, %ctaid.x;"),
			form: Single,
			has: []string{"cvt.u16.u32 %vgpud_h0, %vgpud_x;", "mov.u16 %rs1, %vgpud_h0;", "cvt.u16.u32 %vgpud_h1, %vgpud_gy;",
				"mul.wide.u16 %r1, %rs1, %vgpud_h1;", "cvt.u32.u16 %r2, %vgpud_x;"},
		},
		{
			name: "a register that hides the special one",
			src:  kernelOf("{ .reg .b32 r; mov.u32 r, %ctaid.x; }"),
			form: Single,
			has:  []string{"mov.u32 r, %vgpud_x;"},
		},
		{
			name: "names like ours",
			src:  kernelOf(".reg .b32 %vgpud_x; .reg .b32 vgpud1_<4>; mov.u32 %vgpud_x, %ctaid.x; xvgpud0002_y: bra xvgpud0002_y;"),
			form: Coarse,
			has:  []string{"mov.u32 %vgpud_x, %vgpud3_x;", "vgpud3_task:"},
		},
		{
			name: "directives and linking stay",
			src: moduleOf(`.weak .entry k(.param .align 4 .b8 p[6])
.maxntid 256, 1, 1
.minnctapersm 2
.pragma "nounroll";
{ .pragma "used_bytes_mask 15"; ret; }`),
			form: Single,
			has: []string{".weak .entry k__vgpud_single(", ".maxntid 256, 1, 1", ".minnctapersm 2", `.pragma "nounroll";`,
				`.pragma "used_bytes_mask 15";`, ".param .align 8 .b8 k_vgpud_launch[96]"},
		},
		{
			name: "line numbers stay with the original, and so do labels that debug sections name",
			src: moduleOf(".file 1 \"a.cu\"\n.entry k() { .reg .b32 %r<3>; .loc 1 2 3\n mov.u32 %r1, 0; here: there: bra there; }\n" +
				".section .debug_info\n{\n.b64 here\n}\n"),
			form:   Single,
			has:    []string{"there:"},
			hasNot: []string{".loc", "\nhere:"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, reports := transform(t, tt.src, Options{Forms: tt.form})
			if r := reports["k"]; len(r.Forms) != 1 || r.Forms[0] != tt.form {
				t.Fatalf("report %+v", r)
			}
			text := entryText(t, out, EntryName("k", tt.form))
			for _, want := range tt.has {
				if !strings.Contains(text, want) {
					t.Errorf("no %q", want)
				}
			}
			for _, no := range tt.hasNot {
				if strings.Contains(text, no) {
					t.Errorf("has %q", no)
				}
			}
			if t.Failed() {
				t.Log(text)
			}
		})
	}
}

// TestRefusals tests kernels that have no form, or only the early exit.
func TestRefusals(t *testing.T) {
	const apart = "setp.eq.u32 %p1, %tid.x, 3; @%p1 bra L; "
	tests := []struct {
		name   string
		src    string
		reason Reason
		forms  Form
	}{
		{"nothing wrong", kernelOf("ret;"), None, allForms},
		{"no body", moduleOf(".extern .entry k(.param .u64 p);"), NoBody, 0},
		{"name taken by a kernel", kernelOf("ret;") + ".entry k__vgpud_coarse() { ret; }", NameInUse, 0},
		{"name taken by a variable", kernelOf("ret;") + ".global .b32 k__vgpud_single;", NameInUse, 0},
		{"special register's name taken", moduleOf(".global .b32 %smid;\n.entry k() { ret; }"), NameInUse, 0},
		{"too many parameters", moduleOf(".entry k(.param .b8 p[4300]) { ret; }"), Parameters, 0},
		{"32-bit addresses", ".version 8.0\n.target sm_80\n.address_size 32\n.entry k() { ret; }", UnsupportedInstruction, 0},
		{"too old", ".version 1.4\n.target sm_13\n.entry k() { ret; }", UnsupportedInstruction, 0},
		{"the index at once", kernelOf(".reg .v4 .u32 v; mov.v4.u32 v, %ctaid;"), UnsupportedInstruction, 0},
		{"a function's own variable", kernelOf(".global .b32 once; ret;"), UnsupportedInstruction, 0},
		{"named barrier that some pass by", kernelOf(apart + "bar.sync 1; L: ret;"), DivergentNamedBarrier, Single},
		{"reduction that some pass by", kernelOf(apart + "bar.red.popc.u32 %r1, 0, %p2; L: ret;"), DivergentNamedBarrier, Single},
		{"barrier that some pass by, before Volta", strings.Replace(kernelOf(apart+"bar.sync 0; L: ret;"), "sm_80", "sm_60", 1), DivergentNamedBarrier, Single},
		{"barrier with a number computed beside one that some pass by", kernelOf("ld.global.u32 %r1, [%rd1]; bar.sync %r1; " + apart + "bar.sync 0; L: ret;"), DivergentNamedBarrier, Single},
		{"barrier that some pass by, in a nested block", kernelOf(apart + "{ bar.sync 0; } L: ret;"), DivergentNamedBarrier, Single},
		{"more barriers than ways", kernelOf(apart + strings.Repeat("bar.sync 0; ", maxReturns+1) + "L: ret;"), TooBig, Single},
		{"shared memory full", moduleOf(".shared .b32 big[12288];\n.entry k() { .reg .b32 %r<2>; mov.u32 %r1, big; ret; }"), None, Single | Coarse},
		{"shared memory all but full", moduleOf(".entry k() { .reg .b32 %r<2>; .shared .b32 big[12286]; mov.u32 %r1, big; ret; }"), None, allForms},
		{"shared memory full but for 1 KiB", moduleOf(".shared .b32 big[12032];\n.entry k() { .reg .b32 %r<2>; mov.u32 %r1, big; ret; }"), None, allForms},
		{"shared memory full but for less, which would move", moduleOf(".shared .b32 big[12033];\n.entry k() { .reg .b32 %r<2>; mov.u32 %r1, big; ret; }"), None, Single | Coarse},
		{"shared memory at an address that nothing names", moduleOf(".entry k() { .reg .b32 %r<2>; ld.shared.u32 %r1, [1024]; ret; }"), None, Single | Coarse},
		{"shared memory beyond counting", moduleOf(".shared .b32 big[1073741823];\n.shared .b32 more[1073741823];\n.entry k() { .reg .b32 %r<2>; mov.u32 %r1, big; mov.u32 %r1, more; ret; }"), None, Single | Coarse},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, reports := transform(t, tt.src, Options{})
			r := reports["k"]
			forms := Form(0)
			for _, f := range r.Forms {
				forms |= f
			}
			if r.Reason != tt.reason || forms != tt.forms {
				t.Errorf("%v because of %q (%s), want %v because of %q", forms, r.Reason, r.Detail, tt.forms, tt.reason)
			}
		})
	}
}

// TestReport checks the numbers of a report.
func TestReport(t *testing.T) {
	src := kernelOf("setp.eq.u32 %p1, %tid.x, 3; bar.sync 0; @%p1 ret; barrier.sync 0; mov.u32 %r1, %ctaid.x; ret;")
	out, reports := transform(t, src, Options{})
	r := reports["k"]
	if b := r.Barriers; b.Total != 2 || b.Uniform != 1 || b.Rewritten != 1 {
		t.Errorf("barriers %+v, want 2, 1 uniform, 1 rewritten", b)
	}
	if r.SharedBytesAdded != slotBytes {
		t.Errorf("%d bytes of shared memory added, want %d", r.SharedBytesAdded, slotBytes)
	}
	most := 0
	for _, f := range r.Forms {
		most = max(most, count(entryText(t, out, EntryName("k", f)), ".reg"))
	}
	if want := most - 4; r.VirtualRegistersAdded != want { // without the kernel's own declarations
		t.Errorf("%d registers added, want %d", r.VirtualRegistersAdded, want)
	}
}

// TestSlotMovesNothing checks where the persistent form's shared memory is placed: behind what the
// body declares first, or as a whole KiB if the kernel's own may follow it.
func TestSlotMovesNothing(t *testing.T) {
	const small, apart = ".shared .align 8 .b32 vgpud_slot[2];", ".shared .align 1 .b8 vgpud_slot[1024];"
	for name, tt := range map[string]struct{ src, slot, behind string }{
		"none":                    {moduleOf(".entry k() { ret; }"), small, ""},
		"declared first":          {moduleOf(".entry k() { .reg .b32 %r<2>; .shared .b8 own[3]; mov.u32 %r1, own; ret; }"), small, "own[3];"},
		"declared later":          {moduleOf(".entry k() { .reg .b32 %r<2>; mov.u32 %r1, 0; .shared .b8 own[3]; mov.u32 %r1, own; ret; }"), apart, ""},
		"declared within":         {moduleOf(".entry k() { .reg .b32 %r<2>; { .shared .b8 own[3]; mov.u32 %r1, own; } ret; }"), apart, ""},
		"the module's":            {moduleOf(".shared .b8 all[3];\n.entry k() { .reg .b32 %r<2>; mov.u32 %r1, all; ret; }"), apart, ""},
		"the module's, not used":  {moduleOf(".shared .b8 all[3];\n.entry k() { ret; }"), small, ""},
		"dynamic":                 {moduleOf(".extern .shared .align 1 .b8 dyn[];\n.entry k() { .reg .b32 %r<2>; mov.u32 %r1, dyn; ret; }"), apart, ""},
		"dynamic, declared first": {moduleOf(".entry k() { .reg .b32 %r<2>; .extern .shared .align 1 .b8 dyn[]; mov.u32 %r1, dyn; ret; }"), apart, ""},
		"a function's":            {moduleOf(".func f() { .reg .b32 %r<2>; .shared .b8 own[3]; mov.u32 %r1, own; ret; }\n.entry k() { call f; ret; }"), apart, ""},
	} {
		t.Run(name, func(t *testing.T) {
			out, reports := transform(t, tt.src, Options{Forms: Persistent})
			text := entryText(t, out, EntryName("k", Persistent))
			at := strings.Index(text, tt.slot)
			if at < 0 || strings.Index(text, tt.behind) > at {
				t.Errorf("no %q behind %q in\n%s", tt.slot, tt.behind, text)
			}
			want := slotBytes
			if tt.slot == apart {
				want = slotPaddedBytes
			}
			if r := reports["k"]; r.SharedBytesAdded != want {
				t.Errorf("%d bytes of shared memory added, want %d", r.SharedBytesAdded, want)
			}
		})
	}
}

// TestCallsGetTheTask checks that calls and called functions agree.
func TestCallsGetTheTask(t *testing.T) {
	const callees = `
.func (.param .b32 out) f(.param .b32 a, .param .align 8 .b8 rest[])
{
	.reg .b32 %r<3>;
	mov.u32 %r1, %ctaid.y;
	st.param.b32 [out], %r1;
	ret;
}
.func bare { .reg .b32 %r<3>; mov.u32 %r1, %nctaid.x; ret; }
.func even(.param .b32 n);
.func odd(.param .b32 n) { .reg .pred %p<2>; bar.sync 0; ret; }
.alias other, bare;
`
	const calls = `
	call bare;
	call.uni (), other, ();
	@%p1 call odd, (1);
	@%p1 call bare;
	.param .b32 o;
	.param .align 8 .b8 r[8];
	call (o), f, (7, r);
`
	out, reports := transform(t, moduleOf(callees)+strings.TrimPrefix(kernelOf(calls), moduleOf("")), Options{})
	if r := reports["k"]; !r.Preemptible {
		t.Fatalf("%+v", r)
	}
	text := entryText(t, out, EntryName("k", Single))
	for _, want := range []string{
		"call bare__vgpud_task, (vgpud_task0);",
		"call.uni (), bare__vgpud_task, (vgpud_task1);",
		"@%p1 call odd, (1);",
		"@%p1 call bare__vgpud_task, (vgpud_task2);",
		"call (o), f__vgpud_task, (vgpud_task3, 7, r);",
		".param .align 4 .b8 vgpud_task2[24];",
		"st.param.b32 [vgpud_task2+20], %vgpud_gz;",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if guarded := "@%p1 st.param"; strings.Contains(text, guarded) {
		t.Errorf("%q, which PTX does not allow, in\n%s", guarded, text)
	}
	f := entryText(t, out, "f__vgpud_task")
	for _, want := range []string{".param .align 4 .b8 vgpud_task[24],", "mov.u32 %r1, %vgpud_y;"} {
		if !strings.Contains(f, want) {
			t.Errorf("no %q in\n%s", want, f)
		}
	}
}

// TestManyCallsManyKernels checks that the output does not grow faster than the input: each
// function is copied once or twice, however many kernels call it.
func TestManyCallsManyKernels(t *testing.T) {
	var b strings.Builder
	b.WriteString(moduleOf(""))
	const n = 50
	for i := range n {
		fmt.Fprintf(&b, ".func f%d() { .reg .b32 %%r<2>; mov.u32 %%r1, %%ctaid.x; ", i)
		if i > 0 {
			fmt.Fprintf(&b, "call f%d; call f%d; ", i-1, i-1)
		}
		b.WriteString("ret; }\n")
	}
	for i := range n {
		fmt.Fprintf(&b, ".entry k%d() { call f%d; ret; }\n", i, n-1)
	}
	out, _ := transform(t, b.String(), Options{})
	copies := 0
	for _, it := range out.Items {
		if f, ok := it.(*ptx.Func); ok && !f.Entry && f.Body != nil {
			copies++
		}
	}
	if copies != 2*n {
		t.Errorf("%d device functions of %d", copies, n)
	}
}

// TestManyKernels checks that the output for a module of tiny kernels is bounded: further kernels
// get no form.
func TestManyKernels(t *testing.T) {
	var b strings.Builder
	b.WriteString(moduleOf(""))
	for i := range 5 {
		fmt.Fprintf(&b, ".entry k%d{}\n", i)
	}
	m := parse(t, b.String())
	prog, err := ptx.Resolve(m)
	if err != nil {
		t.Fatal(err)
	}
	mod := &module{
		m: m, copier: &rewrite.Copier{}, names: newNames(m), info: analyze(m, prog), scans: map[*funcInfo]*scan{},
		added: maxAdded - 9*formInstrs,
	}
	for i, e := range mod.info.entries {
		r := mod.entry(e, allForms)
		if want := i < 3; r.Preemptible != want || !want && r.Reason != TooBig {
			t.Errorf("kernel %d: %+v", i, r)
		}
	}
}
