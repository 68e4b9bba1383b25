package simt

import (
	"encoding/binary"
	"testing"

	"vgpud/gpu"
)

// Textures, surfaces and matrices allocate nothing per instruction: a launch of a thousand of each
// allocates as little as any launch.
func TestWarpInstructionsAllocateNothing(t *testing.T) {
	m := newMachine(t, textured(`	mov.u64 %rd4, canvas; mov.u32 %r5, 0; mov.u32 %r6, 0x3c003c00; mov.f32 %f5, 0f00000000; mov.f32 %f6, %f5; mov.f32 %f7, %f5; mov.f32 %f8, %f5; mov.u32 %r7, 0;
L:	tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd2, {%f10, %f1}];
	suld.b.2d.b32.zero {%r8}, [%rd4, {%r7, %r7}];
	sust.b.2d.b32.zero [%rd4, {%r7, %r7}], {%r8};
	mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f5,%f6,%f7,%f8}, {%r6,%r6,%r6,%r6}, {%r6,%r6}, {%f5,%f6,%f7,%f8};
	add.u32 %r5, %r5, 1;
	setp.lt.u32 %p1, %r5, 1000;
	@%p1 bra L;`, "%f"))
	tex, _ := m.array(gpu.ArrayShape{Width: 64, Height: 64, Texel: floats})
	tex.Filter = gpu.FilterLinear
	h := m.texture(tex)
	surface := tex
	surface.Surface = true
	ref, _ := m.module.Reference("canvas")
	word, _ := m.mem.Bytes(m.module.vars.base+ref.Offset, 8)
	binary.LittleEndian.PutUint64(word, m.texture(surface))
	out, _ := m.alloc(16 * 32)
	allocs := testing.AllocsPerRun(3, func() {
		if f := m.run("k", d3(1), d3(32), 0, out, h); f != nil {
			t.Fatal(f)
		}
	})
	if allocs > 100 {
		t.Errorf("%v allocations for a thousand instructions of each kind", allocs)
	}
}
