package driver

import (
	"context"
	"fmt"
	"time"

	"vgpud/mediator/vgpu/abi"
)

// query reads or sets one number.
func (c *Context) query(ctx context.Context, op abi.Opcode, key uint32, value uint64) (uint64, error) {
	v, err := c.Own().call(ctx, op, abi.Query{Key: key, Value: value})
	if err != nil {
		return 0, fmt.Errorf("number %#x: %w", key, err)
	}
	return v[0], nil
}

// DeviceAttribute returns an attribute of the GPU. Package abi has the numbers, which are CUDA's.
func (c *Context) DeviceAttribute(ctx context.Context, attribute uint32) (uint64, error) {
	return c.query(ctx, abi.OpDeviceAttribute, attribute, 0)
}

// DeviceName returns the GPU's name.
func (c *Context) DeviceName(ctx context.Context) (string, error) {
	return c.Own().text(ctx, abi.OpDeviceName, 256)
}

// Printed returns what kernels have printed since the last call, at most 64 KiB of it.
func (c *Context) Printed(ctx context.Context) (string, error) {
	return c.Own().text(ctx, abi.OpPrintfDrain, 64<<10)
}

// Timestamp returns the time on the GPU's clock.
func (c *Context) Timestamp(ctx context.Context) (time.Duration, error) {
	v, err := c.Own().call(ctx, abi.OpTimestamp, abi.Empty{})
	return time.Duration(v[0]), err
}

// Range returns the allocation that contains an address.
func (c *Context) Range(ctx context.Context, p Ptr) (base Ptr, bytes uint64, err error) {
	v, err := c.Own().call(ctx, abi.OpMemRange, abi.Handle{Handle: uint64(p)})
	return Ptr(v[0]), v[1], err
}

// MemoryPeak returns the most GPU memory, in bytes, that the context has taken at a time, with what
// it has for code, stacks and the like. It is 0 if the host does not tell.
func (c *Context) MemoryPeak(ctx context.Context) (uint64, error) {
	v, err := c.Own().call(ctx, abi.OpMemInfo, abi.Empty{})
	if err != nil {
		return 0, fmt.Errorf("ask for the most memory so far: %w", err)
	}
	return v[2], nil
}

// MemInfo returns how much GPU memory this guest can still allocate, and its limit.
func (c *Context) MemInfo(ctx context.Context) (free, total uint64, err error) {
	v, err := c.Own().call(ctx, abi.OpMemInfo, abi.Empty{})
	if err != nil {
		return 0, 0, fmt.Errorf("ask for free memory: %w", err)
	}
	return v[0], v[1], nil
}
