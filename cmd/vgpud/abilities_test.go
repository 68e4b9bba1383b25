package main

import (
	"strings"
	"testing"

	"vgpud/cmd/internal/ability"
	"vgpud/gpu"
	"vgpud/gpu/nvidia"
)

func TestDriverAbilities(t *testing.T) {
	for _, c := range []struct {
		name  string
		got   ability.Ability
		state ability.State
		what  string
	}{
		{"libraries", libcuda(&probeResult{Driver: "580.159.04", CUDA: 13010, GPUs: []nvidia.Info{{Properties: gpu.Properties{Name: "H100"}}, {Properties: gpu.Properties{Name: "L4"}}}}), ability.Present, "CUDA 13.1: H100, L4"},
		{"no libraries", libcuda(&probeResult{Error: "open libcuda.so.1: it is not there"}), ability.Absent, "open libcuda.so.1: it is not there"},
		{"no GPUs", libcuda(&probeResult{Driver: "580.159.04", CUDA: 13000}), ability.Absent, "it lists no GPU"},
		{"a known driver", kernelDriver("580.159.04"), ability.Present, "580.159.04, of a known branch"},
		{"an unknown driver", kernelDriver("999.1"), ability.Absent, "999.1 is not known (the nearest known is 580.159.04): features that use the driver's own calls are left out"},
	} {
		if c.got.State != c.state || c.got.What != c.what || (c.got.Do == "") != (c.state == ability.Present) {
			t.Errorf("%s: %+v; want %s, %q, and something to do where it is missing", c.name, c.got, c.state, c.what)
		}
	}
	if do := kernelDriver("999.1").Do; !strings.Contains(do, "allow_unknown_driver") {
		t.Errorf("an unknown driver: no way on in %q", do)
	}
}
