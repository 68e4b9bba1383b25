package preempt

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"vgpud/gpu"
	"vgpud/gpu/corpus"
	"vgpud/gpu/soft/texture"
)

// paintedPTX samples a texture in a loop, multiplies matrices with what it sampled, stores the
// result to a surface, and counts each block in another one, once.
const paintedPTX = `.version 8.0
.target sm_80
.address_size 64
.visible .entry paint(.param .u64 t, .param .u64 s, .param .u64 n, .param .u32 rounds)
{
	.reg .b32 %r<20>; .reg .f32 %f<20>; .reg .b64 %rd<5>; .reg .pred %p<3>;
	.shared .align 16 .b8 tile[512];
	ld.param.u64 %rd1, [t]; ld.param.u64 %rd2, [s]; ld.param.u64 %rd3, [n]; ld.param.u32 %r1, [rounds];
	mov.u32 %r2, %ctaid.x; mov.u32 %r3, %tid.x; mov.u32 %r4, 0;
	cvt.rn.f32.u32 %f1, %r2; cvt.rn.f32.u32 %f2, %r3;
	mov.f32 %f3, 0f00000000; mov.f32 %f4, %f3; mov.f32 %f5, %f3; mov.f32 %f6, %f3;
L:	cvt.rn.f32.u32 %f7, %r4;
	add.f32 %f7, %f7, %f2;
	tex.2d.v4.f32.f32 {%f8,%f9,%f10,%f11}, [%rd1, {%f7, %f1}];
	cvt.rn.f16x2.f32 %r5, %f8, %f8;
	mov.u32 %r6, tile;
	mad.lo.u32 %r7, %r3, 16, %r6;
	st.shared.v4.b32 [%r7], {%r5,%r5,%r5,%r5};
	bar.sync 0;
	ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r8,%r9}, [%r7];
	mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f3,%f4,%f5,%f6}, {%r8,%r9}, {%r5}, {%f3,%f4,%f5,%f6};
	bar.sync 0;
	add.u32 %r4, %r4, 1;
	setp.lt.u32 %p1, %r4, %r1;
	@%p1 bra L;
	add.f32 %f3, %f3, %f6;
	mov.b32 %r10, %f3;
	shl.b32 %r11, %r3, 2;
	sust.b.2d.b32.trap [%rd2, {%r11, %r2}], {%r10};
	setp.ne.u32 %p2, %r3, 0;
	@%p2 ret;
	shl.b32 %r12, %r2, 2;
	sured.b.add.1d.u32.trap [%rd3, {%r12}], 1;
	ret;
}
`

// TestTexturesAndMatrices evicts kernels with textures, surfaces and matrices at random times. A
// block that runs twice, or never, shows in the count.
func TestTexturesAndMatrices(t *testing.T) {
	const blocks, width, height = 60, 32, 60
	m, reports := transform(t, paintedPTX)
	if len(reports) != 1 || reports[0].Reason != 0 {
		t.Fatalf("%+v", reports)
	}
	picture := make([]byte, 4*width*height)
	for i := range width * height {
		binary.LittleEndian.PutUint32(picture[4*i:], math.Float32bits(float32(i*7%13)/4))
	}
	var ones []byte
	for range blocks {
		ones = binary.LittleEndian.AppendUint32(ones, 1)
	}
	word := func(v uint64, n int) corpus.Arg {
		return corpus.Arg{Bytes: binary.LittleEndian.AppendUint64(nil, v)[:n]}
	}
	c := &corpus.Case{
		Kernel: "paint",
		Buffers: []corpus.Buffer{
			{Name: "picture", Mode: corpus.In, Elem: corpus.F32, Size: len(picture), Init: picture},
			{Name: "painted", Mode: corpus.Scratch, Elem: corpus.F32, Size: 4 * 32 * blocks},
			{Name: "count", Mode: corpus.InOut, Elem: corpus.U32, Size: 4 * blocks, Init: make([]byte, 4*blocks), Want: ones},
		},
		Steps: []corpus.Launch{{
			Entry: "paint", Grid: [3]uint32{blocks, 1, 1}, Block: [3]uint32{32, 1, 1},
			Args: []corpus.Arg{word(0, 8), word(0, 8), word(0, 8), word(5, 4)},
		}},
	}
	r, err := newRig(t.Context(), m, c)
	if err != nil {
		t.Fatal(err)
	}
	floats, words := gpu.Texel{Format: gpu.FormatFloat, Channels: 1}, gpu.Texel{Format: gpu.FormatUint32, Channels: 1}
	for i, tex := range []texture.Texture{
		texture.OfArray(r.byName["picture"].at, gpu.ArrayShape{Width: width, Height: height, Texel: floats}),
		texture.OfArray(r.byName["painted"].at, gpu.ArrayShape{Width: 32, Height: blocks, Texel: floats}),
		texture.OfArray(r.byName["count"].at, gpu.ArrayShape{Width: blocks, Texel: words}),
	} {
		tex.Surface = i > 0
		tex.Filter = gpu.FilterLinear
		tex.Address = [3]gpu.AddressMode{gpu.AddressClamp, gpu.AddressClamp}
		h, err := r.mem.AddTexture(tex)
		if err != nil {
			t.Fatal(err)
		}
		c.Steps[0].Args[i] = word(h, 8)
	}
	var sum tally
	soundRigs(t, 150, &sum, r)
	for _, f := range allForms {
		if sum.forms[f] == 0 && !one() {
			t.Errorf("no launch in form %v", f)
		}
	}
	if bytes.Equal(r.byName["painted"].data, make([]byte, 4*32*blocks)) {
		t.Error("nothing was painted")
	}
	for i := range blocks {
		if n := binary.LittleEndian.Uint32(r.byName["count"].data[4*i:]); n != 1 && !one() {
			t.Fatalf("block %d ran %d times", i, n)
		}
	}
}
