package simt

import (
	"errors"
	"fmt"
	"testing"

	"vgpud/gpu"
)

// A kernel has as many bytes of parameters as its PTX version and architecture allow, padding
// included; NVIDIA's assembler refuses the module of one that has more.
func TestParameterBytes(t *testing.T) {
	for _, c := range []struct {
		version, target string
		params          string
		loads           bool
	}{
		{"8.0", "sm_80", ".param .b8 a[4344], .param .u64 b", true},
		{"8.0", "sm_80", ".param .b8 a[4345], .param .u64 b", false}, // b is at 4352
		{"8.1", "sm_80", ".param .b8 a[4345], .param .u64 b", true},
		{"8.1", "sm_60", ".param .b8 a[4353]", false},
		{"8.1", "sm_80", ".param .b8 a[32764]", true},
		{"8.1", "sm_80", ".param .b8 a[32765]", false},
		{"8.1", "sm_80", ".param .b8 a[32756], .param .u64 b", false}, // b would be at 32760
	} {
		src := fmt.Sprintf(".version %s\n.target %s\n.address_size 64\n.visible .entry k(%s) { ret; }\n", c.version, c.target, c.params)
		_, err := Load(t.Context(), parse(t, src), Options{})
		if loads := err == nil; loads != c.loads || !loads && !errors.Is(err, gpu.ErrInvalidModule) {
			t.Errorf("PTX %s for %s, %s: %v, want it to load: %t", c.version, c.target, c.params, err, c.loads)
		}
	}
}
