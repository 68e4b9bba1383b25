package simt

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"vgpud/gpu"
	"vgpud/ptx"
)

// A fault has the kernel, block, thread, line, space, size and address.
func TestFaults(t *testing.T) {
	const line = 14 // of the second line of the body
	for name, test := range map[string]struct {
		body string
		want gpu.Fault
		zero bool // don't compare the address
	}{
		"global beyond the end": {
			"	add.s64 %rd3, %rd1, 400;\n	@%p1 ld.global.u32 %r9, [%rd3];",
			gpu.Fault{Kind: gpu.FaultAddress, Space: "global", Size: 4, Address: 400}, false,
		},
		"global null": {
			"	mov.u64 %rd3, 0;\n	@%p1 st.global.u8 [%rd3+16], %r9;",
			gpu.Fault{Kind: gpu.FaultAddress, Space: "global", Size: 1, Address: 16, Write: true}, true,
		},
		"last byte outside": {
			"	add.s64 %rd3, %rd1, 392;\n	@%p1 ld.global.v4.u32 {%r5,%r6,%r7,%r8}, [%rd3];",
			gpu.Fault{Kind: gpu.FaultAddress, Space: "global", Size: 16, Address: 392}, false,
		},
		"misaligned": {
			"	add.s64 %rd3, %rd1, 2;\n	@%p1 atom.global.add.u32 %r9, [%rd3], 1;",
			gpu.Fault{Kind: gpu.FaultMisaligned, Space: "global", Size: 4, Address: 2, Write: true}, false,
		},
		"shared": {
			"	mov.u32 %r9, 64;\n	@%p1 st.shared.u32 [%r9], %r9;",
			gpu.Fault{Kind: gpu.FaultAddress, Space: "shared", Size: 4, Address: 64, Write: true}, true,
		},
		"shared misaligned": {
			"	mov.u32 %r9, 6;\n	@%p1 st.shared.u32 [%r9], %r9;",
			gpu.Fault{Kind: gpu.FaultMisaligned, Space: "shared", Size: 4, Address: 6, Write: true}, true,
		},
		"local": {
			"	mov.u64 %rd3, 32;\n	@%p1 ld.local.u64 %rd4, [%rd3];",
			gpu.Fault{Kind: gpu.FaultAddress, Space: "local", Size: 8, Address: 32}, true,
		},
		"generic beyond every window": {
			"	mov.u64 %rd3, -8;\n	@%p1 ld.u64 %rd4, [%rd3];",
			gpu.Fault{Kind: gpu.FaultAddress, Space: "generic", Size: 8, Address: ^uint64(7)}, true,
		},
		"generic shared": {
			"	mov.u32 %r9, 64;\n	cvt.u64.u32 %rd3, %r9; cvta.shared.u64 %rd3, %rd3; @%p1 ld.u32 %r9, [%rd3];",
			gpu.Fault{Kind: gpu.FaultAddress, Space: "generic", Size: 4, Address: sharedWindow + 64}, true,
		},
		"trap":        {"\n	@%p1 trap;", gpu.Fault{Kind: gpu.FaultTrap}, true},
		"bad barrier": {"	mov.u32 %r9, 16;\n	@%p1 barrier.sync %r9;", gpu.Fault{Kind: gpu.FaultInstruction}, true},
	} {
		t.Run(name, func(t *testing.T) {
			src := entry("	.local .align 8 .b8 depot[32]; .shared .align 4 .b8 sh[64];\n	setp.eq.u32 %p1, %r2, 37; mov.u32 %r9, 0;\n" + test.body)
			m := newMachine(t, testHeader+strings.TrimPrefix(src, "\n"))
			base, data := m.alloc(400)
			f := m.run("k", d3(1), d3(8, 8), 0, base, base, 0)
			// Only %tid.x reaches 7: thread 37 needs a block of one row.
			if f != nil {
				t.Fatalf("no thread has %%tid.x 37, but: %v", f)
			}
			f = m.run("k", d3(2, 1, 1), d3(64), 0, base, base, 0)
			if f == nil {
				t.Fatal("no fault")
			}
			want := test.want
			want.Kernel, want.Line, want.Thread.X = "k", line, 37
			if !test.zero {
				want.Address += base
			}
			if *f != want {
				t.Errorf("got %+v\nwant %+v", *f, want)
			}
			clear(data)
		})
	}
}

// Constants can be read but not written, through any kind of address.
func TestConstantsAreReadOnly(t *testing.T) {
	m := newMachine(t, ".const .align 4 .u32 c[4] = {1, 2, 3, 4};\n.global .u32 g = 5;\n"+entry(`
	mov.u64 %rd3, c;
	ld.const.u32 %r3, [c+8];
	ld.u32 %r4, [%rd3+4];
	add.u32 %r3, %r3, %r4;
	st.global.u32 [%rd1], %r3;
	setp.ne.u32 %p1, %r1, 0;
	@%p1 st.u32 [%rd3], 1;
`))
	out, data := m.words(0)
	if f := m.run("k", d3(1), d3(1), 0, out, out, 0); f != nil || wordsOf(data)[0] != 5 {
		t.Fatal(f, data)
	}
	f := m.run("k", d3(1), d3(1), 0, out, out, 1)
	if f == nil || f.Kind != gpu.FaultAddress || !f.Write {
		t.Fatal(f)
	}
}

// A range that is unmapped while a kernel is resident is not accessed through cached mappings.
func TestUnmapDuringKernel(t *testing.T) {
	m := newMachine(t, entry("L:\n	ld.global.u32 %r3, [%rd1];\n	bra L;\n"))
	at, _ := m.words(1)
	g, err := NewGrid(Launch{Kernel: m.module.Kernel("k"), Grid: d3(1), Block: d3(32), Memory: m.mem, Params: params(at, at, 0)})
	if err != nil {
		t.Fatal(err)
	}
	b := g.StartBlock(0)
	if r := b.Step(Now{}, 100); r.State != Running {
		t.Fatalf("%+v", r)
	}
	if err := m.mem.Unmap(at); err != nil {
		t.Fatal(err)
	}
	if r := b.Step(Now{}, 100); r.State != Faulted || r.Fault.Address != at {
		t.Fatalf("%+v", r)
	}
}

func TestMemoryRanges(t *testing.T) {
	var m Memory
	page := make([]byte, 256)
	for _, bad := range []struct {
		addr uint64
		data []byte
	}{{0, page}, {0x1000, nil}, {GlobalLimit, page}, {GlobalLimit - 1, page}, {^uint64(0), page}} {
		if m.Map(bad.addr, bad.data) == nil {
			t.Errorf("mapped %d bytes at %#x", len(bad.data), bad.addr)
		}
	}
	if err := m.Map(0x1000, page); err != nil {
		t.Fatal(err)
	}
	for _, at := range []uint64{0xf01, 0x1000, 0x10ff} {
		if m.Map(at, page) == nil {
			t.Errorf("mapped over at %#x", at)
		}
	}
	if err := errors.Join(m.Map(0xf00, page), m.Map(0x1100, page)); err != nil {
		t.Error(err)
	}
	if _, ok := m.Bytes(0x1000, 257); ok {
		t.Error("bytes of two ranges as one")
	}
	if b, ok := m.Bytes(0x10ff, 1); !ok || &b[0] != &page[255] {
		t.Error("not the mapped byte")
	}
	if m.Unmap(0x1001) == nil {
		t.Error("unmapped the middle of a range")
	}
	if err := m.Unmap(0x1000); err != nil {
		t.Error(err)
	}
	if _, ok := m.Bytes(0x1000, 1); ok {
		t.Error("still there")
	}
}

// An instruction that no GPU can execute fails the load, one that this GPU can't execute fails the
// launch. Both errors have kernel, line and instruction.
func TestRefusals(t *testing.T) {
	for name, test := range map[string]struct {
		body string
		kind error
		text string
	}{
		"matrix":         {"wgmma.fence.sync.aligned;", gpu.ErrUnsupported, "wgmma.fence.sync.aligned: matrix instructions"},
		"texture":        {"tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd1, {%f5,%f6}], {%r1,%r2};", gpu.ErrUnsupported, "tex.2d.v4.f32.f32: offsets"},
		"unknown":        {"frobnicate.u32 %r3, %r4;", gpu.ErrUnsupported, "frobnicate.u32"},
		"modifier":       {"add.u32.often %r3, %r4, %r5;", gpu.ErrUnsupported, ".often"},
		"width":          {"add.u32 %r3, %r4, %rd5;", gpu.ErrInvalidModule, "%rd5"},
		"predicate":      {"add.u32 %r3, %p1, 1;", gpu.ErrInvalidModule, "%p1"},
		"arity":          {"add.u32 %r3, %r4;", gpu.ErrInvalidModule, "operands"},
		"no destination": {"ld.global.u32 5, [%rd1];", gpu.ErrInvalidModule, "result"},
		"store to const": {"st.const.u32 [%rd1], %r1;", gpu.ErrInvalidModule, "const"},
		"cluster":        {"barrier.cluster.arrive;", gpu.ErrUnsupported, "cluster"},
		"extern":         {"{ call.uni missing, (); }", gpu.ErrUnsupported, "missing"},
	} {
		t.Run(name, func(t *testing.T) {
			src := testHeader + ".extern .func missing\n;\n" + strings.TrimPrefix(entry("\n"+test.body), "\n")
			m, err := Load(t.Context(), parse(t, src), Options{})
			if err == nil {
				_, err = NewGrid(Launch{Kernel: m.Kernel("k"), Grid: d3(1), Block: d3(1), Params: params(uint64(0), uint64(0), 0), Memory: new(Memory), SMs: 1})
			} else if test.kind == gpu.ErrUnsupported {
				t.Fatalf("the module is refused: %v", err)
			}
			if !errors.Is(err, test.kind) {
				t.Fatalf("got %v", err)
			}
			for _, want := range []string{"kernel k", "line 14", test.text} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not name %q", err, want)
				}
			}
		})
	}
}

// A module with excessive numbers is refused without allocating the memory it asks for. A kernel
// with too many registers, or too much local memory, is refused alone.
func TestHostileModules(t *testing.T) {
	var many strings.Builder
	many.WriteString(".visible .entry k()\n{\n	.reg .b32 %r<80000>;\n")
	for i := range 70_000 {
		fmt.Fprintf(&many, "	mov.u32 %%r%d, 1;\n", i)
	}
	for i := range 70_000 {
		fmt.Fprintf(&many, "	st.shared.u32 [0], %%r%d;\n", i)
	}
	many.WriteString("}\n")
	for name, src := range map[string]string{
		"shared":       ".visible .entry k() { .shared .b8 s[1099511627776]; ret; }",
		"local":        ".visible .entry k() { .local .b8 s[1099511627776]; ret; }",
		"global":       ".global .b8 g[18446744073709551615];\n.visible .entry k() { ret; }",
		"parameters":   ".visible .entry k(.param .b8 p[1000000]) { ret; }",
		"alive":        many.String(),
		"deep dims":    ".global .b8 g[4294967296][4294967296][2];\n.visible .entry k() { .reg .b32 %r1; ld.global.u8 %r1, [g]; ret; }",
		"chain":        chain(40),
		"shared twice": ".shared .b8 a[200000];\n.visible .entry k() { .shared .b8 s[200000]; .reg .b32 %r1; mov.u32 %r1, a; ret; }",
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(src, ".version") {
				src = testHeader + src
			}
			m, err := ptx.Parse(src)
			if err != nil {
				return // refused even earlier
			}
			mod, err := Load(t.Context(), m, Options{})
			if name == "deep dims" && err == nil && mod.ImageBytes() < 1<<32 {
				return // the product overflows; every access is checked anyway
			}
			if name == "alive" || name == "chain" { // that kernel's own size
				if err != nil || len(mod.Kernels()) != 1 || mod.Kernels()[0].Refused() == "" || mod.CodeBytes() > 16<<20 {
					t.Errorf("the kernel is not refused: %v", err)
				}
				return
			}
			if err == nil {
				t.Error("loaded")
			} else if !errors.Is(err, gpu.ErrUnsupported) && !errors.Is(err, gpu.ErrInvalidModule) {
				t.Error(err)
			}
		})
	}
	// Declared registers cost nothing if they are not used.
	m := newMachine(t, ".visible .entry k() { .reg .b64 %rd<999999999>; mov.u64 %rd999999998, 1; ret; }")
	if n := m.module.Kernel("k").prog.n64; n > 4 {
		t.Errorf("%d registers", n)
	}
}

// chain returns functions with 64 KiB of local memory each that call one another.
func chain(n int) string {
	var b strings.Builder
	for i := n; i > 0; i-- {
		fmt.Fprintf(&b, ".func f%d()\n{\n	.local .b8 d[65536];\n", i)
		if i < n {
			fmt.Fprintf(&b, "	call.uni f%d, ();\n", i+1)
		}
		b.WriteString("	ret;\n}\n")
	}
	return b.String() + ".visible .entry k() { call.uni f1, (); ret; }"
}

func TestLaunchChecks(t *testing.T) {
	m := newMachine(t, ".visible .entry k(.param .u64 p) .reqntid 64 { ret; }\n.visible .entry j() .maxntid 128 { ret; }")
	k, j := m.module.Kernel("k"), m.module.Kernel("j")
	for name, l := range map[string]Launch{
		"no blocks":      {Kernel: j, Grid: d3(0), Block: d3(1)},
		"wide grid":      {Kernel: j, Grid: d3(1, 65536), Block: d3(1)},
		"no threads":     {Kernel: j, Grid: d3(1), Block: d3(0)},
		"over maxntid":   {Kernel: j, Grid: d3(1), Block: d3(129)},
		"not reqntid":    {Kernel: k, Grid: d3(1), Block: d3(32), Params: make([]byte, 8)},
		"no parameters":  {Kernel: k, Grid: d3(1), Block: d3(64)},
		"shared memory":  {Kernel: j, Grid: d3(1), Block: d3(1), SharedBytes: 1 << 20},
		"overflowing":    {Kernel: j, Grid: d3(1), Block: d3(1<<31, 1<<31, 4)},
		"overflowing sm": {Kernel: j, Grid: d3(1), Block: d3(1), SharedBytes: ^uint64(0)},
	} {
		l.Memory = m.mem
		if _, err := NewGrid(l); !errors.Is(err, gpu.ErrInvalidLaunch) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
