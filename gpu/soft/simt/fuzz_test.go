package simt

import (
	"strings"
	"testing"

	"vgpud/gpu"
	"vgpud/gpu/corpus"
	"vgpud/ptx"
)

// FuzzLoad loads any PTX that parses and runs it for a moment. Whatever a guest writes may only
// fail.
func FuzzLoad(f *testing.F) {
	for _, k := range corpus.All() {
		f.Add(k.PTX(corpus.SM90))
	}
	f.Add(testHeader + vecAdd)
	f.Add(testHeader + loopKernel(arith32, 3))
	for _, op := range strings.Split(everyForm, "\n") {
		f.Add(testHeader + entry(op))
	}
	limits := ptx.Options{MaxBytes: 1 << 16, MaxStatements: 2000}
	f.Fuzz(func(t *testing.T, src string) {
		m, err := limits.Parse(src)
		if err != nil {
			return
		}
		mod, err := Load(t.Context(), m, Options{MaxInstructions: 10_000, MaxRegisters: 4096, MaxLocal: 4096})
		if err != nil {
			return
		}
		mem := new(Memory)
		data := make([]byte, 4096)
		if err := mem.Map(0x10000, data); err != nil {
			t.Fatal(err)
		}
		if n := mod.ImageBytes(); n > 1<<20 {
			return
		} else if n > 0 {
			image := make([]byte, n)
			copy(image, mod.Place(0x100000))
			if err := mod.MapImage(mem, image); err != nil {
				t.Fatal(err)
			}
		}
		for _, k := range mod.Kernels() {
			a := k.Attributes()
			p := make([]byte, a.ParamBytes)
			for _, x := range a.Params {
				if x.Size == 8 {
					put(p[x.Offset:], 8, 0x10100)
				} else {
					p[x.Offset] = 3
				}
			}
			g, err := NewGrid(Launch{Kernel: k, Grid: d3(2), Block: d3(40), SharedBytes: 256, Params: p, Memory: mem, SMs: 1})
			if err != nil {
				continue
			}
			for b := g.StartBlock(0); b != nil; b = g.StartBlock(0) {
				for range 3 {
					r := b.Step(Now{Nanos: 1}, 2000)
					if r.State == Faulted && r.Fault.Kind == gpu.FaultKind(0) {
						t.Fatal("a fault of no kind")
					}
					if r.State != Running {
						break
					}
				}
				if g.Finished() < g.Started() {
					break
				}
			}
		}
	})
}
