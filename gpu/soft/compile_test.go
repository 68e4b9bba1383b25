package soft

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"vgpud/gpu"
)

const ptxHead = ".version 7.0\n.target sm_80\n.address_size 64\n"

// shared returns a module of kernels that each call one function with the given number of
// instructions.
func shared(kernels, instructions int) []byte {
	var b strings.Builder
	b.WriteString(ptxHead + ".func work()\n{\n.reg .b32 %r<2>;\nmov.u32 %r1, 0;\n")
	b.WriteString(strings.Repeat("add.s32 %r1, %r1, 1;\n", instructions))
	b.WriteString("ret;\n}\n")
	for i := range kernels {
		fmt.Fprintf(&b, ".visible .entry k%d()\n{\ncall work;\nret;\n}\n", i)
	}
	return []byte(b.String())
}

// A small source that expands to much code, or takes long to compile, is refused.
func TestGreedyModulesAreRefused(t *testing.T) {
	e := startEngine(t, Options{})
	c, _, err := e.NewContext(t.Context(), gpu.ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var ways strings.Builder
	ways.WriteString(ptxHead + ".visible .entry k()\n{\n.reg .b32 %r<2>;\nmov.u32 %r1, 0;\nl: ret;\n")
	ways.WriteString("ts: .branchtargets " + strings.Repeat("l, ", 999) + "l;\n")
	ways.WriteString(strings.Repeat("brx.idx %r1, ts;\n", 4000) + "}\n")
	var params strings.Builder
	params.WriteString(ptxHead)
	for i := range 100 {
		fmt.Fprintf(&params, ".visible .entry k%d(.param .u8 a0", i)
		for j := range 1400 {
			fmt.Fprintf(&params, ", .param .u8 a%d", j+1)
		}
		params.WriteString(")\n{\nret;\n}\n")
	}
	variables := ""
	for i := range 1000 {
		variables += fmt.Sprintf(".shared .b8 s%d;\n", i)
	}
	args := strings.Repeat("1, ", 999) + "1"
	var calls strings.Builder
	calls.WriteString(ptxHead + ".func callee(.reg .b32 a0")
	for i := range 999 {
		fmt.Fprintf(&calls, ", .reg .b32 a%d", i+1)
	}
	calls.WriteString(")\n{\nret;\n}\n.func caller()\n{\n" + strings.Repeat("call callee, ("+args+");\n", 20) + "ret;\n}\n")
	for i := range 1000 {
		fmt.Fprintf(&calls, ".visible .entry k%d()\n{\ncall caller;\nret;\n}\n", i)
	}
	for name, test := range map[string]struct {
		source []byte
		want   error
		why    string
	}{
		"code of each kernel":      {shared(4000, 1000), gpu.ErrUnsupported, "instructions"},
		"ways of branches":         {[]byte(ways.String()), gpu.ErrUnsupported, "instructions"},
		"arguments":                {[]byte(calls.String()), gpu.ErrUnsupported, "instructions"},
		"variables of each kernel": {[]byte(strings.Replace(string(shared(1000, 1)), ".func", variables+".func", 1)), gpu.ErrUnsupported, "instructions"},
		"parameters":               {[]byte(params.String()), gpu.ErrUnsupported, "parameters of kernels"},
		"kernels":                  {shared(maxKernels+1, 1), gpu.ErrUnsupported, "4096 kernels"},
		"source":                   {[]byte(ptxHead + strings.Repeat("\n", maxSource)), gpu.ErrInvalidModule, "source of"},
		"statements":               {shared(1, maxStatements), gpu.ErrInvalidModule, "more statements"},
		"a large initial value":    {[]byte(ptxHead + ".global .u8 x[100000000] = {1};\n"), gpu.ErrUnsupported, "initial values"},
	} {
		_, err := c.LoadModule(t.Context(), test.source, 0)
		if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.why) {
			t.Errorf("%s: %.200v, want %v for %s", name, err, test.want, test.why)
		}
	}
	if n := e.code.taken(); n != 0 {
		t.Errorf("%d bytes of code are left of modules that were refused", n)
	}
}

// Compiled code counts, per owner and in total, until its module or context is gone.
func TestCodeIsBounded(t *testing.T) {
	source := shared(8, 100)
	e := startEngine(t, Options{CodeBytes: 1 << 21})
	m, err := e.compile(t.Context(), source, 0)
	if err != nil {
		t.Fatal(err)
	}
	if m.code < 8*100*200 || m.code > 1<<19 {
		t.Fatalf("eight kernels of a hundred instructions count as %d bytes", m.code)
	}
	each := int(e.o.CodeBytes / codeShares / m.code)
	var contexts []ContextDriver
	fill := func() (loaded []uint32) {
		c, _, err := e.NewContext(t.Context(), gpu.ContextOptions{MemoryLimit: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		contexts = append(contexts, c)
		for {
			info, err := c.LoadModule(t.Context(), source, 0)
			if errors.Is(err, gpu.ErrOutOfMemory) {
				return loaded
			}
			if err != nil {
				t.Fatal(err)
			}
			loaded = append(loaded, info.ID)
		}
	}
	loaded := fill()
	if len(loaded) != each {
		t.Errorf("a context holds %d modules, want %d", len(loaded), each)
	}
	if err := contexts[0].UnloadModule(loaded[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := contexts[0].LoadModule(t.Context(), source, 0); err != nil {
		t.Errorf("in place of one that was unloaded: %v", err)
	}
	for len(fill()) == each {
	}
	if n := e.code.taken(); n > e.o.CodeBytes {
		t.Errorf("%d bytes of code are taken of %d", n, e.o.CodeBytes)
	}
	for _, c := range contexts {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := e.code.taken(); n != 0 {
		t.Errorf("%d bytes of code are left of contexts that are closed", n)
	}
}

// All contexts of one label together have the limit of one owner.
func TestCodeIsBoundedByLabel(t *testing.T) {
	source := shared(8, 100)
	e := startEngine(t, Options{CodeBytes: 1 << 21})
	m, err := e.compile(t.Context(), source, 0)
	if err != nil {
		t.Fatal(err)
	}
	open := func(label string) ContextDriver {
		t.Helper()
		c, info, err := e.NewContext(t.Context(), gpu.ContextOptions{Label: label, MemoryLimit: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if err := info.Memory.Close(); err != nil {
			t.Fatal(err)
		}
		return c
	}
	greedy := []ContextDriver{open("greedy"), open("greedy"), open("greedy")}
	loaded := 0
	for i := 0; ; i++ {
		_, err := greedy[i%len(greedy)].LoadModule(t.Context(), source, 0)
		if errors.Is(err, gpu.ErrOutOfMemory) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		loaded++
	}
	if want := int(e.o.CodeBytes / codeShares / m.code); loaded != want {
		t.Errorf("three contexts of one label hold %d modules, want %d", loaded, want)
	}
	modest := open("modest")
	if _, err := modest.LoadModule(t.Context(), source, 0); err != nil {
		t.Errorf("another label's: %v", err)
	}
	for _, c := range append(greedy, modest) {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := e.code.taken(); n != 0 || len(e.owners) != 0 {
		t.Errorf("%d bytes of code and %d owners are left", n, len(e.owners))
	}
}

// A panic of the compiler only fails the module.
func TestCompilerPanics(t *testing.T) {
	e := startEngine(t, Options{})
	m, err := e.recovering(func() (*engineModule, error) { panic("no such register") })
	if m != nil || !errors.Is(err, gpu.ErrInvalidModule) || !strings.Contains(err.Error(), "no such register") {
		t.Errorf("module %v, %v", m, err)
	}
}
