package system

import (
	"bytes"
	"testing"

	"vgpud/e2e/host"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
	"vgpud/mediator/vgpu/abi"
)

// TestBox copies parts of a pitched array and compares them.
func TestBox(t *testing.T) {
	ctx := t.Context()
	h := host.Start(t, "dfq")
	gpu := newContext(t, h, api.VMSpec{Name: "guest"})
	const pitch, rows, slices = 64, 8, 4
	whole := make([]byte, pitch*rows*slices)
	for i := range whole {
		whole[i] = byte(i ^ i>>8)
	}
	src, err := gpu.Alloc(ctx, uint64(len(whole)))
	if err != nil {
		t.Fatal(err)
	}
	if err := gpu.CopyIn(ctx, src, whole); err != nil {
		t.Fatal(err)
	}
	const w, ht, d, x, y, z = 17, 3, 2, 5, 2, 1
	var want []byte
	for k := range d {
		for j := range ht {
			at := ((z+k)*rows+y+j)*pitch + x
			want = append(want, whole[at:at+w]...)
		}
	}
	dst, err := gpu.Alloc(ctx, w*ht*d)
	if err != nil {
		t.Fatal(err)
	}
	box := driver.Box{
		Src: src + (z*rows+y)*pitch + x, SrcPitch: pitch, SrcSliceRows: rows,
		Dst: dst, DstPitch: w, DstSliceRows: ht, WidthBytes: w, HeightRows: ht, DepthSlices: d,
	}
	p, err := gpu.Own().CopyBox(ctx, box)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, w*ht*d)
	if err := gpu.CopyOut(ctx, got, dst); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
	box.DepthSlices++
	if p, err = gpu.Own().CopyBox(ctx, box); err == nil {
		err = p.Wait(ctx)
	}
	wantError(t, "a box beyond its allocation", err, abi.StatusInvalidAddress)
}
