package simt

import (
	"strings"
	"testing"

	"vgpud/gpu"
	"vgpud/gpu/corpus"
	"vgpud/gpu/soft/texture"
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
	// The first handles of the context below: a texture and a surface.
	for _, body := range []string{
		"mov.u64 %rd2, 0x100000000; tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd2, {%f10,%f10}]; tld4.r.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd2, {%f10,%f10}];",
		"mov.u64 %rd2, 0x100000000; tex.3d.v4.f32.s32 {%f1,%f2,%f3,%f4}, [%rd2, smooth, {%r10,%r10,%r10,%r10}]; tex.acube.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd2, {%r10,%f10,%f10,%f10}];",
		"mov.u64 %rd2, 0x100000001; sust.p.2d.v2.b32.clamp [%rd2, {%r10,%r10}], {%r10,%r10}; suld.b.3d.b64.zero %rd5, [%rd2, {%r10,%r10,%r10,%r10}]; sured.b.add.1d.u64.trap [%rd2, {%r10}], %rd5;",
		"tex.1d.v4.f32.s32 {%f1,%f2,%f3,%f4}, [image, {%r10}]; txq.width.b32 %r1, [image]; istypep.surfref %p1, %rd2;",
	} {
		f.Add(textured(body, "%f"))
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
		for _, surface := range []bool{false, true} {
			tex := texture.OfArray(0x10000, gpu.ArrayShape{Width: 8, Height: 8, Depth: 6, Cube: true, Texel: floats})
			tex.Surface, tex.Filter = surface, gpu.FilterLinear
			if _, err := mem.AddTexture(tex); err != nil {
				t.Fatal(err)
			}
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
