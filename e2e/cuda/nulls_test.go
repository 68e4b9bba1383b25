package cuda

import (
	"fmt"
	"strings"
	"testing"

	"vgpud/cmd/libcuda/api"
)

// TestNulls calls every function that is built with NULL for every pointer and with wrong handles and
// sizes.
func TestNulls(t *testing.T) {
	a, err := api.Load()
	if err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	functions := 0
	for i := range a.Functions {
		f := &a.Functions[i]
		if f.State != api.Built && f.State != api.Partly || len(f.Params) == 0 {
			continue
		}
		kinds := ""
		for _, p := range f.Params {
			if strings.HasSuffix(p.Type, "*") || strings.HasSuffix(p.Name, ")") || pointers[p.Type] {
				kinds += "p"
			} else {
				kinds += "w"
			}
		}
		fmt.Fprintln(&lines, f.Name, kinds)
		functions++
	}
	cmd := newGuest(t).command(t, "nulls.c")
	cmd.Stdin = strings.NewReader(lines.String())
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if want := fmt.Sprintln(functions, "functions"); err != nil || string(out) != want {
		s := said.String()
		t.Errorf("it ended with %v and printed %q, want %q; it said at last\n%s", err, out, want, s[max(0, len(s)-4000):])
	}
}

// pointers are the types of functions that the program has called.
var pointers = map[string]bool{"CUhostFn": true, "CUstreamCallback": true, "CUoccupancyB2DSize": true}
