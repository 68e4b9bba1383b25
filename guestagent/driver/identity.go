package driver

import (
	"context"
	"encoding/binary"
	"fmt"

	"vgpud/mediator/vgpu/abi"
)

// offers returns an error that wraps [abi.StatusNotSupported] if the host does not offer a feature.
func (d *Device) offers(f abi.Features) error {
	if d.info.Features&f == 0 {
		return fmt.Errorf("the host does not offer %v: %w", f, abi.StatusNotSupported)
	}
	return nil
}

// DeviceAttributes returns all device attributes, by CUDA's number (CUdevice_attribute). Those that
// the host does not know, and the function's place on the guest's PCI bus, are 0. Hosts older than
// version 1.2 are asked for the attributes that those answer, one by one.
func (c *Context) DeviceAttributes(ctx context.Context) (all [abi.DeviceAttributes]int32, err error) {
	if c.dev.offers(abi.FeatureIdentity) != nil {
		for _, a := range abi.DeviceAttributes1_1 {
			v, err := c.DeviceAttribute(ctx, a)
			if err != nil {
				return all, err
			}
			all[a] = int32(v)
		}
		return all, nil
	}
	text, err := c.Own().text(ctx, abi.OpDeviceAttributes, 4*abi.DeviceAttributes)
	if err != nil {
		return all, fmt.Errorf("device attributes: %w", err)
	}
	for i := range min(len(text)/4, len(all)) {
		all[i] = int32(binary.LittleEndian.Uint32([]byte(text[4*i:])))
	}
	return all, nil
}

// Limit returns a limit of the context. Package abi has the numbers, which are CUDA's.
func (c *Context) Limit(ctx context.Context, limit uint32) (uint64, error) {
	if err := c.dev.offers(abi.FeatureLimits); err != nil {
		return 0, err
	}
	return c.query(ctx, abi.OpLimit, limit, 0)
}

// SetLimit sets a limit of the context. It may be rounded or, if it is a hint, reduced: Limit tells.
func (c *Context) SetLimit(ctx context.Context, limit uint32, value uint64) error {
	if err := c.dev.offers(abi.FeatureLimits); err != nil {
		return err
	}
	_, err := c.query(ctx, abi.OpSetLimit, limit, value)
	return err
}
