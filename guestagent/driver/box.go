package driver

import (
	"context"
	"fmt"

	"vgpud/mediator/vgpu/abi"
)

// CopyBoxIn copies a box of host memory, whose Src is an offset there, to GPU memory, after the
// channel's earlier commands. The GPU may read it until the Pending is done.
func (ch *Channel) CopyBoxIn(ctx context.Context, b Box, src *HostMemory) (*Pending, error) {
	return ch.copyBoxHost(ctx, b, src, abi.PlaceMemory, abi.PlaceWindow)
}

// CopyBoxOut copies a box of GPU memory to host memory, where Dst is an offset, after the channel's
// earlier commands. It is complete when the Pending is done.
func (ch *Channel) CopyBoxOut(ctx context.Context, b Box, dst *HostMemory) (*Pending, error) {
	return ch.copyBoxHost(ctx, b, dst, abi.PlaceWindow, abi.PlaceMemory)
}

func (ch *Channel) copyBoxHost(ctx context.Context, b Box, m *HostMemory, dst, src abi.Place) (*Pending, error) {
	host, pitch, rows := &b.Src, b.SrcPitch, b.SrcSliceRows
	if dst == abi.PlaceWindow {
		host, pitch, rows = &b.Dst, b.DstPitch, b.DstSliceRows
	}
	last := (uint64(max(b.DepthSlices, 1))-1)*uint64(rows)*uint64(pitch) + (uint64(max(b.HeightRows, 1))-1)*uint64(pitch) + uint64(b.WidthBytes)
	if uint64(*host) > uint64(m.n) || last > uint64(m.n)-uint64(*host) {
		return nil, fmt.Errorf("copy a box of %d bytes at %d of %d bytes of host memory: %w", last, uint64(*host), m.n, abi.StatusInvalidValue)
	}
	if m.dev != ch.dev {
		return nil, fmt.Errorf("copy a box of another device's host memory: %w", abi.StatusInvalidValue)
	}
	if !m.acquire() {
		return nil, fmt.Errorf("copy a box of host memory that was freed: %w", abi.StatusInvalidValue)
	}
	*host += Ptr(m.w.Offset)
	p := new(Pending)
	p.host.Store(m)
	var e abi.Entry
	abi.Copy3D{
		Dst: uint64(b.Dst), Src: uint64(b.Src), DstPitch: b.DstPitch, SrcPitch: b.SrcPitch,
		DstRows: b.DstSliceRows, SrcRows: b.SrcSliceRows, DstPlace: dst, SrcPlace: src,
		Width: b.WidthBytes, Height: b.HeightRows, Depth: b.DepthSlices,
	}.Encode(&e)
	if err := ch.enqueue(ctx, p, &e, abi.Header{Op: abi.OpCopy3D}, nil); err != nil {
		if !p.busy.Load() { // else it was sent, and the channel releases the memory
			p.releaseHost()
		}
		return nil, fmt.Errorf("copy a box: %w", err)
	}
	return p, nil
}
