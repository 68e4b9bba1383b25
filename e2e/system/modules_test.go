package system

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"vgpud/e2e/host"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
	"vgpud/mediator/vgpu/abi"
)

// TestBadModules loads invalid modules, and modules not for this GPU. Each gets an error that says
// where and what; the context stays usable.
func TestBadModules(t *testing.T) {
	h := host.Start(t, "dfq")
	gpu := newContext(t, h, api.VMSpec{Name: "guest"})
	const head = ".version 8.0\n.target sm_80\n.address_size 64\n"
	for _, m := range []struct {
		name, ptx string
		want      abi.Status
		says      string // a regular expression
	}{
		{"nothing", "", abi.StatusInvalidPTX, `1:1: `},
		{"no PTX", "\x7fELF\x02\x01\x01", abi.StatusInvalidPTX, `1:1: `},
		{
			"a word too many", head + ".visible .entry k()\n{\n\tret ret;\n}\n",
			abi.StatusInvalidPTX, `6:\d+: .*ret`,
		},
		{"cut off", head + ".visible .entry k()\n{\n\tadd.u32", abi.StatusInvalidPTX, `6:\d+: `},
		{
			"an unknown register", head + ".visible .entry k()\n{\n\tmov.u32 %nowhere, 1;\n\tret;\n}\n",
			abi.StatusInvalidPTX, `6:\d+: .*%nowhere`,
		},
		{"deeply nested", head + ".visible .entry k()\n" + strings.Repeat("{", 1<<20), abi.StatusInvalidPTX, `\d+:\d+: `},
		{"a million lines", head + strings.Repeat(".global .b8 x;\n", 1_000_000), abi.StatusInvalidPTX, `\d+:\d+: `},
		{"one long word", head + strings.Repeat("a", 8<<20), abi.StatusInvalidPTX, `4:1: `},
	} {
		t.Run(m.name, func(t *testing.T) {
			_, err := gpu.LoadModule(t.Context(), []byte(m.ptx))
			wantError(t, "LoadModule", err, m.want)
			text := fmt.Sprintf("%+v", err)
			if !regexp.MustCompile(m.says).MatchString(text) {
				t.Errorf("the error does not match %q: %.500s", m.says, text)
			}
			if len(text) > 32<<10 {
				t.Errorf("the error has %d bytes", len(text))
			}
		})
	}
	works(t, gpu)
}

// TestRefusedKernel loads a module of which one kernel uses an instruction that the GPU lacks.
// Launching that kernel is an error that names it and what it uses; the other kernel works.
func TestRefusedKernel(t *testing.T) {
	h := host.Start(t, "dfq")
	gpu := newContext(t, h, api.VMSpec{Name: "guest"})
	m, err := gpu.LoadModule(t.Context(), []byte(".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry sample()\n{\n"+
		"\t.reg .f32 %f<5>; .reg .b64 %rd<2>;\n\twgmma.fence.sync.aligned;\n\tret;\n}\n"+
		".visible .entry beside() { ret; }\n"))
	if err != nil {
		t.Fatal(err)
	}
	run := func(name string) error {
		f, err := m.Function(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		p, err := gpu.Own().Launch(t.Context(), f, driver.Dim{X: 1}, driver.Dim{X: 1}, 0)
		if err != nil {
			return err
		}
		return p.Wait(t.Context())
	}
	err = run("sample")
	wantError(t, "launch", err, abi.StatusNotSupported)
	if !regexp.MustCompile(`launch sample: .*kernel sample, PTX line 7: wgmma\.fence\.sync\.aligned: matrix instructions`).MatchString(fmt.Sprint(err)) {
		t.Errorf("the error does not name the kernel and what it uses: %v", err)
	}
	if err := run("beside"); err != nil {
		t.Error(err)
	}
	works(t, gpu)
}
