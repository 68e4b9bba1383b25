package simt

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSharedLayout compares the layout of shared memory with that of an H100's driver (CUDA 13.0),
// counted from the block's first byte.
func TestSharedLayout(t *testing.T) {
	const dyn = ".extern .shared .align 16 .b8 dyn[];"
	const mixed = ".shared .align 1 .b8 a[1]; .shared .align 8 .b8 b[8]; .shared .align 4 .b8 c[4]; .shared .align 16 .b8 d[16]; .shared .align 4 .b8 e[1000];"
	for _, tt := range []struct{ module, body, want string }{
		{dyn, "", "dyn=0"},
		{dyn, ".shared .align 4 .b8 u[200];", "u=0 dyn=208"},
		{dyn, ".shared .align 4 .b8 u[200]; .shared .align 8 .b8 v[8];", "u=0 v=200 dyn=208"},
		{dyn + ".shared .align 4 .b8 u[200];", ".shared .align 8 .b8 v[8];", "u=8 v=0 dyn=208"},
		{dyn + ".shared .align 1 .b8 u[3];", ".shared .align 1 .b8 v[1024];", "u=1024 v=0 dyn=1040"},
		{dyn, mixed, "a=0 b=8 c=16 d=32 e=48 dyn=1056"},
		{".extern .shared .align 1 .b8 dyn[];", ".shared .align 1 .b8 u[3];", "u=0 dyn=16"},
		{".extern .shared .align 128 .b8 dyn[];", ".shared .align 1 .b8 u[3];", "u=0 dyn=128"},
		{".extern .shared .align 1024 .b8 dyn[];", ".shared .align 1 .b8 u[3];", "u=0 dyn=1024"},
		{".extern .shared .align 4 .b8 p[]; .extern .shared .align 64 .b8 q[];", ".shared .align 1 .b8 u[3];", "u=0 p=16 q=64"},
	} {
		var got []string
		var all strings.Builder // the kernel names all of them
		for _, place := range strings.Fields(tt.want) {
			name, _, _ := strings.Cut(place, "=")
			fmt.Fprintf(&all, "\tmov.u32 %%r3, %s;\n", name)
		}
		for _, place := range strings.Fields(tt.want) {
			name, _, _ := strings.Cut(place, "=")
			m := newMachine(t, tt.module+entry(tt.body+all.String()+"	mov.u32 %r3, "+name+"; st.shared.u8 [%r3+15], %r3;\n"+storeAt("%r2", "u32", "%r3")))
			out, data := m.alloc(4)
			if f := m.run("k", d3(1), d3(1), 4096, out, out, 0); f != nil {
				t.Fatalf("%s %s: %v", tt.module, tt.body, f)
			}
			got = append(got, fmt.Sprintf("%s=%d", name, wordsOf(data)[0]))
		}
		if d := cmp.Diff(tt.want, strings.Join(got, " ")); d != "" {
			t.Errorf("%s %s: -want +got:\n%s", tt.module, tt.body, d)
		}
	}
}

// TestSharedOfKernels checks that a kernel has those of the module's shared variables that it or a
// function that it can reach names, in an operand or an address: the module of this test has
// more than a block can have.
func TestSharedOfKernels(t *testing.T) {
	m := newMachine(t, `
.weak .shared .align 16 .b8 first[150000];
.weak .shared .align 16 .b8 second[160000];
.weak .shared .align 16 .b8 third[170000];
.weak .shared .align 16 .b8 fourth[180000];
.func deep()
{
	st.shared.u32 [second+4], 1;
	ret;
}
.func pointed()
{
	.reg .b64 %rd<2>;
	mov.u64 %rd1, third;
	ret;
}
.visible .entry none() { ret; }
.visible .entry own() { .reg .b32 %r<2>; ld.shared.u32 %r1, [first]; ret; }
.visible .entry calls() { call deep, (); ret; }
.visible .entry pointer()
{
	.reg .b64 %rd<2>;
	mov.u64 %rd1, pointed;
	call %rd1, (), proto;
proto:
	.callprototype _ ();
	ret;
}
.visible .entry operand()
{
	.reg .b32 %r<3>;
	mov.b32 %r1, fourth;
	ret;
}`)
	var got []string
	for _, name := range []string{"none", "own", "calls", "pointer", "operand"} {
		k := m.module.Kernel(name)
		got = append(got, fmt.Sprintf("%s=%d%s", name, k.Attributes().SharedBytes, k.Refused()))
	}
	want := []string{"none=0", "own=150000", "calls=160000", "pointer=170000", "operand=180000"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
