package simt

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"vgpud/gpu"
)

// outlined is a module as GCC makes them: each kernel passes the address of a function of its own to
// a common one, which calls it. The functions have some length. Kernel keep leaves the address of
// function f0 in memory, kernel use calls what it finds there; kernel table calls what a variable's
// initial value has.
func outlined(n int) string {
	var b strings.Builder
	b.WriteString(testHeader)
	for i := range n {
		fmt.Fprintf(&b, ".func f%d(.reg .u64 %%p) { .reg .b32 %%r<2>; mov.u32 %%r1, %d;\n%s st.global.u32 [%%p], %%r1; ret; }\n",
			i, i, strings.Repeat("add.u32 %r1, %r1, 1;\n", 100))
	}
	b.WriteString(`.func initial(.reg .u64 %p) { .reg .b32 %r<2>; mov.u32 %r1, 77; st.global.u32 [%p], %r1; ret; }
.global .u64 list[1] = {initial};
.func main(.reg .u64 %f, .reg .u64 %p) { 
	proto: .callprototype _ (.reg .u64 %x);
	call %f, (%p), proto; ret;
}
`)
	kernel := func(name, code string) {
		fmt.Fprintf(&b, ".visible .entry %s(.param .u64 p) { .reg .b64 %%rd<4>; ld.param.u64 %%rd1, [p];\n%s ret; }\n", name, code)
	}
	for i := range n {
		kernel(fmt.Sprint("k", i), fmt.Sprintf("mov.u64 %%rd2, f%d; call main, (%%rd2, %%rd1);\n", i))
	}
	kernel("keep", "mov.u64 %rd2, f0; st.global.u64 [%rd1], %rd2;\n")
	kernel("use", "ld.global.u64 %rd2, [%rd1]; call main, (%rd2, %rd1);\n")
	kernel("table", "mov.u64 %rd3, list; ld.global.u64 %rd2, [%rd3]; call main, (%rd2, %rd1);\n")
	return b.String()
}

// TestCallsThroughPointers runs modules in which each kernel calls a function of its own through a
// pointer. One that is too large with all functions in every kernel is loaded with those that the
// kernels name. A call of another is a fault there, and a call where the module is not too large.
func TestCallsThroughPointers(t *testing.T) {
	const n = 40
	all := (n + 3) * n * 100 // more than this many instructions, if every kernel has every function
	for _, small := range []bool{false, true} {
		o := Options{}
		if small {
			o.MaxInstructions = all / 4
		}
		mod, err := Load(t.Context(), parse(t, outlined(n)), o)
		if err != nil {
			t.Fatal(err)
		}
		m := machineFor(t, mod)
		call := func(kernel string, first uint32) (uint32, *gpu.Fault) {
			at, data := m.words(first, 0)
			f := m.run(kernel, d3(1), d3(1), 0, at)
			return wordsOf(data)[0], f
		}
		for i := range n {
			if got, f := call(fmt.Sprint("k", i), 0); f != nil || got != uint32(i+100) {
				t.Fatalf("limit %d: kernel %d: %v, %d", o.MaxInstructions, i, f, got)
			}
		}
		if got, f := call("table", 0); f != nil || got != 77 {
			t.Errorf("limit %d: through a variable's initial value: %v, %d", o.MaxInstructions, f, got)
		}
		at, data := m.words(0, 0)
		if f := m.run("keep", d3(1), d3(1), 0, at); f != nil {
			t.Fatal(f)
		}
		f := m.run("use", d3(1), d3(1), 0, at)
		switch got := wordsOf(data)[0]; {
		case !small && (f != nil || got != 100):
			t.Errorf("through memory: %v, %d", f, got)
		case small && (f == nil || f.Kind != gpu.FaultInstruction):
			t.Errorf("a function that the kernel doesn't name was called: %v, %d", f, got)
		}
		if small {
			continue
		}
		if n := mod.CodeBytes(); n < uint64(all)*instBytes {
			t.Errorf("%d bytes of code: kernels lack functions", n)
		}
	}
	// The limit holds all the same.
	if _, err := Load(t.Context(), parse(t, outlined(n)), Options{MaxInstructions: n * 50}); !errors.Is(err, gpu.ErrUnsupported) {
		t.Errorf("beyond the limit on instructions: %v", err)
	}
}
