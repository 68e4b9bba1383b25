package simt

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vgpud/e2e/kernels"
)

// TestCorpus runs every kernel of the corpus and compares with its reference.
func TestCorpus(t *testing.T) {
	for _, k := range kernels.All() {
		for _, arch := range kernels.Arches() {
			t.Run(k.Name+"/"+string(arch), func(t *testing.T) {
				if k.Name == "inlineptx" {
					t.Skip("being written")
				}
				t.Parallel()
				module, err := Load(parse(t, k.PTX(arch)), Options{})
				if err != nil {
					t.Fatal(err)
				}
				runCase(t, module, k.Case(kernels.Trivial, 1))
				if !testing.Short() && arch == kernels.SM90 {
					runCase(t, module, k.Case(kernels.Small, 2))
				}
			})
		}
	}
}

func runCase(t *testing.T, module *Module, c *kernels.Case) {
	t.Helper()
	m := machineFor(t, module)
	m.sms = 4
	addrs, contents := map[string]uint64{}, map[string][]byte{}
	for _, b := range c.Buffers {
		if b.Global != "" {
			offset, size, ok := module.Global(b.Global)
			if !ok || size != uint64(b.Size) {
				t.Fatalf("variable %s: %d bytes, want %d", b.Global, size, b.Size)
			}
			addrs[b.Name] = module.vars.base + offset
			contents[b.Name], ok = m.mem.Bytes(addrs[b.Name], size)
			if !ok {
				t.Fatalf("variable %s is not mapped", b.Global)
			}
		} else {
			addrs[b.Name], contents[b.Name] = m.alloc(b.Size)
		}
		copy(contents[b.Name], b.Init)
	}
	for i := range c.Steps {
		s := &c.Steps[i]
		k := module.Kernel(s.Entry)
		if k == nil {
			t.Fatalf("no kernel %s", s.Entry)
		}
		a := k.Attributes()
		buf := make([]byte, a.ParamBytes)
		for j, arg := range s.Args {
			p := buf[a.Params[j].Offset:][:a.Params[j].Size]
			if arg.Buffer != "" {
				put(p, len(p), addrs[arg.Buffer]+arg.Offset)
			} else {
				copy(p, arg.Bytes)
			}
		}
		f := m.launch(Launch{Kernel: k, Grid: d3(s.Grid[:]...), Block: d3(s.Block[:]...), SharedBytes: uint64(s.SharedBytes), Params: buf})
		if f != nil {
			t.Fatalf("%v, launch %d: %v", c, i, f)
		}
	}
	err := c.CheckAll(func(b *kernels.Buffer) ([]byte, error) { return contents[b.Name], nil })
	if err != nil {
		t.Error(err)
	}
	if got := strings.Split(strings.TrimRight(m.out.String(), "\n"), "\n"); len(c.Printed) > 0 {
		slices.Sort(got)
		if !slices.Equal(got, c.Printed) {
			t.Errorf("printed %q, want %q", got, c.Printed)
		}
	}
}

// TestRealFilesLoad loads what compilers emit with debug information.
func TestRealFilesLoad(t *testing.T) {
	files, err := filepath.Glob("../../../ptx/testdata/real/*.ptx")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Load(parse(t, string(src)), Options{}); err != nil {
			t.Errorf("%s: %v", f, err)
		}
	}
}
