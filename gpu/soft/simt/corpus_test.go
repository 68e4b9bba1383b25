package simt

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vgpud/gpu/corpus"
)

// TestCorpus runs every kernel of the corpus and compares the results with its reference.
func TestCorpus(t *testing.T) {
	for _, k := range corpus.All() {
		for _, arch := range corpus.Arches() {
			t.Run(k.Name+"/"+string(arch), func(t *testing.T) {
				t.Parallel()
				module, err := Load(t.Context(), parse(t, k.PTX(arch)), Options{})
				if err != nil {
					t.Fatal(err)
				}
				runCase(t, module, k.Case(corpus.Trivial, 1))
				// Run again with warps that yield in every iteration of a loop.
				for _, k := range module.kernels {
					k.prog.yieldAfter = 3
				}
				runCase(t, module, k.Case(corpus.Trivial, 2))
				for _, k := range module.kernels {
					k.prog.yieldAfter = spinLimit
				}
				if !testing.Short() && arch == corpus.SM90 {
					runCase(t, module, k.Case(corpus.Small, 2))
				}
			})
		}
	}
}

// prepare returns a machine with a case's buffers, and the launches.
func prepare(t testing.TB, module *Module, c *corpus.Case) (*machine, []Launch) {
	t.Helper()
	m := machineFor(t, module)
	m.sms = 4
	m.budget = 10_000
	addrs := map[string]uint64{}
	m.buffers = map[string][]byte{}
	for _, b := range c.Buffers {
		if b.Global != "" {
			offset, size, ok := module.Global(b.Global)
			if !ok || size != uint64(b.Size) {
				t.Fatalf("variable %s: %d bytes, want %d", b.Global, size, b.Size)
			}
			addrs[b.Name] = module.vars.base + offset
			if m.buffers[b.Name], ok = m.mem.Bytes(addrs[b.Name], size); !ok {
				t.Fatalf("variable %s is not mapped", b.Global)
			}
		} else {
			addrs[b.Name], m.buffers[b.Name] = m.alloc(b.Size)
		}
		copy(m.buffers[b.Name], b.Init)
	}
	var launches []Launch
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
		launches = append(launches, Launch{Kernel: k, Grid: d3(s.Grid[:]...), Block: d3(s.Block[:]...), SharedBytes: uint64(s.SharedBytes), Params: buf})
	}
	return m, launches
}

func runCase(t *testing.T, module *Module, c *corpus.Case) {
	t.Helper()
	m, launches := prepare(t, module, c)
	for i, l := range launches {
		if f := m.launch(l); f != nil {
			t.Fatalf("%v, launch %d: %v", c, i, f)
		}
	}
	err := c.CheckAll(func(b *corpus.Buffer) ([]byte, error) { return m.buffers[b.Name], nil })
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

// TestRealFilesLoad loads compilers' output with debug information.
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
		if _, err := Load(t.Context(), parse(t, string(src)), Options{}); err != nil {
			t.Errorf("%s: %v", f, err)
		}
	}
}

// BenchmarkCorpus runs every kernel at its small size. It reports thread instructions per second
// and the time of a modelled cycle, which limits the clock at which a soft GPU can run in real
// time.
func BenchmarkCorpus(b *testing.B) {
	for _, k := range corpus.All() {
		b.Run(k.Name, func(b *testing.B) {
			module, err := Load(b.Context(), parse(b, k.PTX(corpus.SM90)), Options{})
			if err != nil {
				b.Fatal(err)
			}
			c := k.Case(corpus.Small, 1)
			var sum Counts
			var spent time.Duration
			for b.Loop() {
				b.StopTimer()
				m, launches := prepare(b, module, c)
				cpu := processorTime()
				b.StartTimer()
				for _, l := range launches {
					if f := m.launch(l); f != nil {
						b.Fatal(f)
					}
					sum.add(m.last.Counts())
				}
				b.StopTimer()
				spent += processorTime() - cpu
				b.StartTimer()
			}
			b.ReportMetric(float64(sum.ThreadInstructions)/spent.Seconds()/1e6, "Mthread-instr/cpu-s")
			b.ReportMetric(float64(spent.Nanoseconds())/float64(sum.Cycles), "cpu-ns/cycle")
		})
	}
}
