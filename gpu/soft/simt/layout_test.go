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
		for _, place := range strings.Fields(tt.want) {
			name, _, _ := strings.Cut(place, "=")
			m := newMachine(t, tt.module+entry(tt.body+"	mov.u32 %r3, "+name+"; st.shared.u8 [%r3+15], %r3;\n"+storeAt("%r2", "u32", "%r3")))
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
