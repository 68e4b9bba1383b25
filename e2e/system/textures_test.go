package system

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"vgpud/e2e/host"
	"vgpud/gpu"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
	"vgpud/mediator/vgpu/abi"
)

// blurPTX blurs a texture by its linear filter into a surface, one thread a texel, by handles and by
// the module's variables.
const blurPTX = `.version 7.0
.target sm_80
.address_size 64
.global .texref a_texture_with_a_long_name_LONG;
.global .surfref result;
.visible .entry blur(.param .u64 t, .param .u64 s, .param .u32 width)
{
	.reg .b32 %r<12>; .reg .b64 %rd<4>; .reg .f32 %f<8>; .reg .pred %p<2>;
	ld.param.u64 %rd1, [t];
	ld.param.u64 %rd2, [s];
	ld.param.u32 %r1, [width];
	mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
	mad.lo.u32 %r5, %r2, %r3, %r4;
	mov.u32 %r6, %ctaid.y;
	setp.ge.u32 %p1, %r5, %r1;
	@%p1 ret;
	cvt.rn.f32.u32 %f1, %r5;
	cvt.rn.f32.u32 %f2, %r6;
	add.f32 %f1, %f1, 0f3F800000;
	add.f32 %f2, %f2, 0f3F800000;
	tex.2d.v4.f32.f32 {%f3,%f4,%f5,%f6}, [%rd1, {%f1, %f2}];
	shl.b32 %r7, %r5, 2;
	mov.b32 %r8, %f3;
	sust.b.2d.b32.trap [%rd2, {%r7, %r6}], {%r8};
	ret;
}
.visible .entry bound()
{
	.reg .b32 %r<8>; .reg .f32 %f<8>;
	mov.u32 %r1, %tid.x;
	tex.1d.v4.f32.s32 {%f3,%f4,%f5,%f6}, [a_texture_with_a_long_name_LONG, {%r1}];
	shl.b32 %r2, %r1, 2;
	mov.u32 %r3, 0;
	neg.f32 %f3, %f3;
	mov.b32 %r4, %f3;
	sust.b.2d.b32.trap [result, {%r2, %r3}], {%r4};
	ret;
}
`

// TestTextures carries a picture through an array, a texture, a preemptible kernel, a surface and
// back, and checks it against a reference.
func TestTextures(t *testing.T) {
	ctx := t.Context()
	h := host.Start(t, "dfq")
	guest := preemptible(t, h, api.VMSpec{Name: "guest", MemoryLimitBytes: 64 << 20}, driver.PreemptOptions{Forms: preemptForms[0] | preemptForms[1] | preemptForms[2]})
	const width, height = 700, 900 // more than one window
	picture := make([]byte, 4*width*height)
	at := func(x, y int) float64 {
		x, y = min(x, width-1), min(y, height-1)
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(picture[4*(y*width+x):])))
	}
	for i := range width * height {
		binary.LittleEndian.PutUint32(picture[4*i:], math.Float32bits(float32((i*7919)%1000)))
	}
	_, total, err := guest.MemInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	shape := driver.ArrayShape{Width: width, Height: height, Format: uint16(gpu.FormatFloat), Channels: 1}
	in, err := guest.NewArray(ctx, shape)
	if err != nil {
		t.Fatal(err)
	}
	shape.Flags = abi.ArraySurface
	out, err := guest.NewArray(ctx, shape)
	if err != nil {
		t.Fatal(err)
	}
	if free, _, err := guest.MemInfo(ctx); err != nil || free > total-2*in.Bytes() {
		t.Errorf("%d of %d bytes free beside two arrays of %d: %v", free, total, in.Bytes(), err)
	}
	if _, err := guest.NewArray(ctx, driver.ArrayShape{Width: 8192, Height: 8192, Format: uint16(gpu.FormatFloat), Channels: 1}); !errors.Is(err, abi.StatusMemoryLimit) && !errors.Is(err, abi.StatusOutOfMemory) {
		t.Errorf("an array of 256 MiB of 64: %v", err)
	}
	whole := func(a *driver.Array) driver.ArrayBox {
		return driver.ArrayBox{Array: a, WidthBytes: 4 * width, HeightRows: height, DepthSlices: 1}
	}
	ch := guest.Own()
	if _, err := ch.CopyInArray(ctx, whole(in), picture, 4*width, height); err != nil {
		t.Fatal(err)
	}
	texture, err := guest.NewTexture(ctx, driver.TextureMemory{Array: in}, driver.Sampling{
		Address: [3]uint16{uint16(gpu.AddressClamp), uint16(gpu.AddressClamp)}, Filter: uint16(gpu.FilterLinear),
	})
	if err != nil {
		t.Fatal(err)
	}
	surface, err := guest.NewSurface(ctx, out)
	if err != nil {
		t.Fatal(err)
	}
	// A name that does not fit the ring goes through a window.
	long := strings.Repeat("x", 5000)
	m, err := guest.LoadModule(ctx, []byte(strings.ReplaceAll(blurPTX, "LONG", long[:3000])))
	if err != nil {
		t.Fatal(err)
	}
	blur, err := m.Function(ctx, "blur")
	if err != nil {
		t.Fatal(err)
	}
	if p := blur.Preemption(); p.Forms != preemptForms[0]|preemptForms[1]|preemptForms[2] {
		t.Errorf("a kernel with textures is not preemptible: %+v", p)
	}
	params, err := blur.AppendParams(nil, texture.Handle(), surface.Handle(), uint32(width))
	if err != nil {
		t.Fatal(err)
	}
	blurred := make([]byte, len(picture))
	for _, form := range append([]abi.PreemptForm{0}, preemptForms...) {
		l := driver.Launch{
			Function: blur, Grid: driver.Dim{X: (width + 127) / 128, Y: height}, Block: driver.Dim{X: 128}, Preempt: &driver.Preempt{Form: form},
			Params: params,
		}
		var p driver.Pending
		if err := ch.Enqueue(ctx, &p, &l); err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		clear(blurred)
		if err := ch.CopyOutArray(ctx, blurred, 4*width, height, whole(out)); err != nil {
			t.Fatal(err)
		}
		for i := range width * height {
			x, y := i%width, i/width
			want := float32((at(x, y) + at(x+1, y) + at(x, y+1) + at(x+1, y+1)) / 4)
			if got := math.Float32frombits(binary.LittleEndian.Uint32(blurred[4*i:])); got != want {
				t.Fatalf("form %v: at %d, %d: %v, want %v", form, x, y, got, want)
			}
		}
	}
	// Between arrays, and to linear memory, which is a texture by its variable.
	if err := ch.CopyArray(ctx, whole(in), whole(out)); err != nil {
		t.Fatal(err)
	}
	mem, err := guest.Alloc(ctx, 4*width)
	if err != nil {
		t.Fatal(err)
	}
	row := whole(in)
	row.Y, row.HeightRows = 5, 1
	if _, err := ch.CopyFromArray(ctx, mem, 4*width, 1, row); err != nil {
		t.Fatal(err)
	}
	linear, err := guest.NewTexture(ctx, driver.TextureMemory{Ptr: mem, Width: width, Format: uint16(gpu.FormatFloat), Channels: 1}, driver.Sampling{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(ch.Bind(ctx, m, "a_texture_with_a_long_name_"+long[:3000], linear), ch.Bind(ctx, m, "result", surface)); err != nil {
		t.Fatal(err)
	}
	if surface, err := m.Reference(ctx, "result"); !surface || err != nil {
		t.Errorf("result is a surface: %v, %v", surface, err)
	}
	if _, err := m.Reference(ctx, "results"); !errors.Is(err, abi.StatusNotFound) {
		t.Errorf("look for what is not there: %v", err)
	}
	if err := ch.Bind(ctx, m, "results", surface); !errors.Is(err, abi.StatusNotFound) {
		t.Errorf("bind what is not there: %v", err)
	}
	bound, err := m.Function(ctx, "bound")
	if err != nil {
		t.Fatal(err)
	}
	p, err := ch.Launch(ctx, bound, driver.Dim{X: 1}, driver.Dim{X: 512}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4*512)
	row = driver.ArrayBox{Array: out, WidthBytes: 4 * 512, HeightRows: 1, DepthSlices: 1}
	if err := ch.CopyOutArray(ctx, got, 0, 1, row); err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if i%4 == 3 {
			got[i] ^= 0x80 // the sign
		}
	}
	if !bytes.Equal(got, blurred[4*5*width:][:len(got)]) {
		t.Error("the row through the variables differs")
	}
	// A box beyond its array, and host memory that is too short, are refused.
	row.Y = height
	if err := ch.CopyOutArray(ctx, got, 0, 1, row); !errors.Is(err, abi.StatusInvalidValue) {
		t.Errorf("a row past the array: %v", err)
	}
	row.Y, row.HeightRows = 0, 2
	if err := ch.CopyOutArray(ctx, got, 4*512, 2, row); !errors.Is(err, abi.StatusInvalidValue) {
		t.Errorf("two rows into the memory of one: %v", err)
	}
	if err := errors.Join(linear.Close(ctx), texture.Close(ctx), surface.Close(ctx), in.Close(ctx), out.Close(ctx)); err != nil {
		t.Fatal(err)
	}
	works(t, guest)
}
