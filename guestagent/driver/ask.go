package driver

import (
	"context"
	"fmt"
	"time"

	"vgpud/mediator/vgpu/abi"
)

// query asks for one number, or sets it.
func (c *Context) query(ctx context.Context, op abi.Opcode, key uint32, value uint64) (uint64, error) {
	var e abi.Entry
	abi.Query{Key: key, Value: value}.Encode(&e)
	v, err := c.Own().call(ctx, &e, op, 0, nil)
	if err != nil {
		return 0, fmt.Errorf("number %#x: %w", key, err)
	}
	return v[0], nil
}

// DeviceAttribute reads a number about the GPU, by the numbers of package abi,
// which are CUDA's.
func (c *Context) DeviceAttribute(ctx context.Context, attribute uint32) (uint64, error) {
	return c.query(ctx, abi.OpDeviceAttribute, attribute, 0)
}

// DeviceName returns the GPU's name.
func (c *Context) DeviceName(ctx context.Context) (string, error) {
	return c.Own().text(ctx, abi.OpDeviceName, 256)
}

// Limit reads a limit of the context, by the numbers of package abi, which are
// CUDA's; SetLimit sets it.
func (c *Context) Limit(ctx context.Context, limit uint32) (uint64, error) {
	return c.query(ctx, abi.OpLimit, limit, 0)
}

// SetLimit sets a limit of the context.
func (c *Context) SetLimit(ctx context.Context, limit uint32, value uint64) error {
	_, err := c.query(ctx, abi.OpSetLimit, limit, value)
	return err
}

// Printed returns what kernels have printed since the last call, as much as fits a
// window at once.
func (c *Context) Printed(ctx context.Context) (string, error) {
	return c.Own().text(ctx, abi.OpPrintfDrain, 64<<10)
}

// Timestamp returns the GPU's clock.
func (c *Context) Timestamp(ctx context.Context) (time.Duration, error) {
	var e abi.Entry
	abi.Empty{}.Encode(&e)
	v, err := c.Own().call(ctx, &e, abi.OpTimestamp, 0, nil)
	return time.Duration(v[0]), err
}

// Range returns the allocation that an address lies in.
func (c *Context) Range(ctx context.Context, p Ptr) (base Ptr, bytes uint64, err error) {
	var e abi.Entry
	abi.Handle{Handle: uint64(p)}.Encode(&e)
	v, err := c.Own().call(ctx, &e, abi.OpMemRange, 0, nil)
	return Ptr(v[0]), v[1], err
}

// Box is a pitched copy of up to three dimensions within GPU memory: Depth slices of
// Height rows of Width bytes.
type Box struct {
	Dst, Src                            Ptr
	DstPitch, SrcPitch                  uint32 // bytes from row to row
	DstSliceRows, SrcSliceRows          uint32 // rows from slice to slice
	WidthBytes, HeightRows, DepthSlices uint32
}

// CopyBox copies a box within the context's GPU memory.
func (ch *Channel) CopyBox(ctx context.Context, b Box) (*Pending, error) {
	var e abi.Entry
	abi.Copy3D{
		Dst: uint64(b.Dst), Src: uint64(b.Src), DstPitch: b.DstPitch, SrcPitch: b.SrcPitch,
		DstRows: b.DstSliceRows, SrcRows: b.SrcSliceRows,
		Width: b.WidthBytes, Height: b.HeightRows, Depth: b.DepthSlices,
	}.Encode(&e)
	p := new(Pending)
	if err := ch.enqueue(ctx, p, &e, abi.Header{Op: abi.OpCopy3D}, nil); err != nil {
		return nil, fmt.Errorf("copy a box to %#x: %w", uint64(b.Dst), err)
	}
	return p, nil
}
