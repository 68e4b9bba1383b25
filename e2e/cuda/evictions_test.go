package cuda

import (
	"path/filepath"
	"strings"
	"testing"

	"vgpud/e2e/host"
	"vgpud/mediator/api"
)

// evicted runs f until kernels of the tenant were evicted ten times more.
func (g *guest) evicted(t *testing.T, f func()) {
	t.Helper()
	tenant := g.h.VM("tenant").Preemption
	before := tenant.Evictions
	for range 50 {
		f()
		if tenant = g.h.VM("tenant").Preemption; tenant.Evictions >= before+10 {
			return
		}
	}
	t.Errorf("its kernels were evicted %d times: %+v", tenant.Evictions-before, tenant)
}

// TestEvictions runs the programs for the driver API while kernels are evicted at random times. Not
// those whose kernels wait for each other: this policy may let one of them run at a time.
func TestEvictions(t *testing.T) {
	g := guestOf(t, host.Start(t, "hpf"), api.VMSpec{Name: "tenant"})
	g.h.Disturb()
	t.Run("evictable", func(t *testing.T) { g.evicted(t, func() { g.run(t, "evictable.c") }) })
	for _, name := range programs {
		if name != "sidebyside" {
			t.Run(name, func(t *testing.T) { g.run(t, name+".c") })
		}
	}
}

// TestRuntimeEvictions is TestEvictions for the CUDA C++ programs.
func TestRuntimeEvictions(t *testing.T) {
	sources, err := filepath.Glob("testdata/rt_*.cu")
	if err != nil || len(sources) == 0 {
		t.Fatalf("programs: %v, %v", sources, err)
	}
	g := guestOf(t, host.Start(t, "hpf"), api.VMSpec{Name: "tenant"})
	g.h.Disturb()
	run := func(t *testing.T, name string) {
		if out := g.runCUDA(t, name); !strings.HasSuffix(out, "right\n") {
			t.Errorf("it printed %q", out)
		}
	}
	t.Run("evictable", func(t *testing.T) { g.evicted(t, func() { run(t, "rt_evictable.cu") }) })
	t.Run("texref", g.textureReferences)
	for _, p := range sources {
		name := filepath.Base(p)
		t.Run(strings.TrimSuffix(name, ".cu"), func(t *testing.T) { run(t, name) })
	}
}
