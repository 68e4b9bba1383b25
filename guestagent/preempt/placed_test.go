package preempt

import (
	"strings"
	"testing"

	"vgpud/ptx"
)

// pointed is a module whose kernel calls, through a table, a function that reads the block's index;
// body is more of the kernel's.
func pointed(body string) string {
	return `.version 8.0
.target sm_90
.address_size 64
.func inner (.param .b32 a) { .reg .b32 %r<2>; mov.u32 %r1, %nctaid.y; ret; }
.func index (.param .b32 a) { .reg .b32 %r<2>; mov.u32 %r1, %ctaid.x; { .param .b32 x; call inner, (x); } ret; }
.global .b64 table[1] = {index};
.extern .shared .b8 named[];
.visible .entry k (.param .b64 out)
{
	.reg .b32 %r<9>;
	.reg .b64 %rd<3>;
	ld.global.u64 %rd1, [table];
	` + body + `
	{ .param .b32 x; prototype : .callprototype _ (.param .b32 _); call %rd1, (x), prototype; }
	ret;
}
.visible .entry other (.param .b64 out) { ret; }
`
}

// TestIndexIsPlaced checks which functions and kernels read and write the index in shared memory.
func TestIndexIsPlaced(t *testing.T) {
	m, err := ptx.Parse(pointed(""))
	if err != nil {
		t.Fatal(err)
	}
	out, reports, err := Transform(m, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reports {
		if want := map[string]int{"k": placedBytes + slotBytes, "other": slotBytes}[r.Kernel]; len(r.Forms) != 3 || r.SharedBytesAdded != want {
			t.Errorf("%s has forms %v and %d bytes more of shared memory, want all and %d", r.Kernel, r.Forms, r.SharedBytesAdded, want)
		}
	}
	const write, read = "st.volatile.shared.u32 [%vgpud_keep+20], %vgpud_gz;", "ld.volatile.shared.u32 %vgpud_x, [%vgpud_keep];"
	for _, it := range out.Items {
		f, ok := it.(*ptx.Func)
		if !ok || f.Body == nil {
			continue
		}
		var b strings.Builder
		for _, s := range f.Body.Stmts {
			if in, ok := s.(*ptx.Instr); ok {
				b.WriteString(in.String() + ";\n")
			}
		}
		text := strings.ReplaceAll(b.String(), ";;", ";")
		kernel := f.Name == "k" || strings.HasPrefix(f.Name, "k__")
		if got := strings.Contains(text, write); got != kernel {
			t.Errorf("%s writes the index: %t\n%s", f.Name, got, text)
		}
		if got := strings.Contains(text, read); got != (f.Name == "index") {
			t.Errorf("%s reads the index: %t\n%s", f.Name, got, text)
		}
	}
}

// TestIndexHasNoPlace checks the kernels that can't have more shared memory.
func TestIndexHasNoPlace(t *testing.T) {
	for name, body := range map[string]string{
		"it sees the size": "mov.u32 %r1, named; mov.u32 %r1, %total_smem_size;",
		"without a name":   "st.shared.u32 [%r1], %r2;",
		"no room":          ".shared .b8 large[48500]; mov.u32 %r1, large;",
	} {
		t.Run(name, func(t *testing.T) {
			m, err := ptx.Parse(pointed(body))
			if err != nil {
				t.Fatal(err)
			}
			out, reports, err := Transform(m, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if r := reports[0]; r.Preemptible || r.Reason != IndirectCall {
				t.Errorf("forms %v, reason %q (%s)", r.Forms, r.Reason, r.Detail)
			}
			if strings.Contains(out.String(), "vgpud_index") {
				t.Error("the index has a place nevertheless")
			}
		})
	}
}

// TestOffloadedKernelsAreIndependent checks that the names of GCC's kernels count, and no others.
func TestOffloadedKernelsAreIndependent(t *testing.T) {
	for name, want := range map[string]bool{
		"main$_omp_fn$0": true, "f$_omp_fn$123": true, "main$_omp_fn$": false, "main$_omp_fn$x": false, "main$_omp_fn$0x": false, "main": false, "omp_fn$0": false,
		"f$_omp_fn$0$lto_priv$12": true, "f$_omp_fn$0$lto_priv$": false, "f$_omp_fn$0$lto_priv$x": false, "f$_omp_fn$$lto_priv$0": false, "f$lto_priv$0": false,
	} {
		if got := offloaded(name); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
