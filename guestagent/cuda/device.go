package cuda

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"

	"vgpud/guestagent/driver"
)

// device is what was learned of the device; it does not change.
type device struct {
	mu         sync.Mutex
	name       string
	total      uint64
	attributes map[uint32]int32
}

// ask calls f with a context of the driver for questions; d.device.mu is held.
func (d *Driver) ask(f func(ctx context.Context, g *driver.Context) error) Result {
	g, err := d.anyContext(context.Background())
	if err == nil {
		err = f(context.Background(), g)
	}
	return resultOnly(err)
}

// DeviceGetCount is cuDeviceGetCount.
func (c *Call) DeviceGetCount(count *int32) Result {
	if count == nil {
		return ErrorInvalidValue
	}
	put(count, 1)
	return Success
}

// DeviceGet is cuDeviceGet.
func (c *Call) DeviceGet(dev *int32, ordinal int32) Result {
	switch {
	case dev == nil:
		return ErrorInvalidValue
	case ordinal != 0:
		return ErrorInvalidDevice
	}
	put(dev, 0)
	return Success
}

// DeviceGetName is cuDeviceGetName.
func (c *Call) DeviceGetName(name *byte, size, dev int32) Result {
	switch {
	case name == nil || size <= 0:
		return ErrorInvalidValue
	case dev != 0:
		return ErrorInvalidDevice
	}
	i := &c.d.device
	i.mu.Lock()
	defer i.mu.Unlock()
	if r := c.d.learnAlikeLocked(); r != Success {
		return r
	}
	if i.name == "" {
		r := c.d.ask(func(ctx context.Context, g *driver.Context) (err error) {
			i.name, err = deviceName(ctx, g)
			return err
		})
		if r != Success {
			return r
		}
	}
	putText(name, uint64(size), i.name)
	return Success
}

func deviceName(ctx context.Context, g *driver.Context) (string, error) {
	name, err := g.DeviceName(ctx)
	return strings.TrimRight(name, "\x00"), err
}

// putText stores as much of a text as fits, and the zero that ends it.
func putText(to *byte, size uint64, text string) {
	b := array(to, size)
	n := copy(b[:size-1], text)
	b[n] = 0
}

// DeviceTotalMemV2 is cuDeviceTotalMem_v2.
func (c *Call) DeviceTotalMemV2(bytes *uint64, dev int32) Result {
	switch {
	case bytes == nil:
		return ErrorInvalidValue
	case dev != 0:
		return ErrorInvalidDevice
	}
	i := &c.d.device
	i.mu.Lock()
	defer i.mu.Unlock()
	if r := c.d.learnAlikeLocked(); r != Success {
		return r
	}
	if i.total == 0 {
		r := c.d.ask(func(ctx context.Context, g *driver.Context) (err error) {
			_, i.total, err = g.MemInfo(ctx)
			return err
		})
		if r != Success {
			return r
		}
	}
	put(bytes, i.total)
	return Success
}

// DeviceComputeCapability is cuDeviceComputeCapability.
func (c *Call) DeviceComputeCapability(major, minor *int32, dev int32) Result {
	switch {
	case major == nil || minor == nil:
		return ErrorInvalidValue
	case dev != 0:
		return ErrorInvalidDevice
	}
	a, r := c.d.attribute(DeviceAttributeComputeCapabilityMajor)
	if r != Success {
		return r
	}
	b, r := c.d.attribute(DeviceAttributeComputeCapabilityMinor)
	if r != Success {
		return r
	}
	put(major, a)
	put(minor, b)
	return Success
}

// DeviceGetAttribute is cuDeviceGetAttribute.
func (c *Call) DeviceGetAttribute(out *int32, attribute uint32, dev int32) Result {
	switch {
	case out == nil || attribute == 0 || attribute >= DeviceAttributeMax:
		return ErrorInvalidValue
	case dev != 0:
		return ErrorInvalidDevice
	}
	v, r := c.d.attribute(attribute)
	if r == Success {
		put(out, v)
	}
	return r
}

// attribute returns an attribute of the device.
func (d *Driver) attribute(attribute uint32) (int32, Result) {
	i := &d.device
	i.mu.Lock()
	defer i.mu.Unlock()
	if v, ok := i.attributes[attribute]; ok {
		return v, Success
	}
	if r := d.learnAlikeLocked(); r != Success {
		return 0, r
	}
	if i.attributes == nil {
		r := d.ask(func(ctx context.Context, g *driver.Context) (err error) {
			i.attributes, err = d.attributesOf(ctx, g)
			return err
		})
		if r != Success {
			return 0, r
		}
	}
	return i.attributes[attribute], Success
}

// attributesOf asks the host for the attributes and adds what it can't know.
func (d *Driver) attributesOf(ctx context.Context, g *driver.Context) (map[uint32]int32, error) {
	all, err := g.DeviceAttributes(ctx)
	if err != nil {
		return nil, err
	}
	known := map[uint32]int32{}
	for i, v := range all {
		if v != 0 {
			known[uint32(i)] = v
		}
	}
	info := d.gpu.Info()
	a := derive(known, info.Features)
	at := pciAddress(info.Address)
	a[DeviceAttributePciDomainId], a[DeviceAttributePciBusId], a[DeviceAttributePciDeviceId] = at.domain, at.bus, at.device
	return a, nil
}

// busAddress is a function's address on a PCI bus.
type busAddress struct{ domain, bus, device, function int32 }

// pciAddress parses an address such as 0000:00:05.0, of which CUDA lets the domain and the function
// be left out. A device that is on no bus has the address 0.
func pciAddress(s string) (a busAddress) {
	if n, err := fmt.Sscanf(s, "%x:%x:%x.%x", &a.domain, &a.bus, &a.device, &a.function); err == nil && n == 4 {
		return a
	}
	a = busAddress{}
	if n, _ := fmt.Sscanf(s, "%x:%x:%x", &a.domain, &a.bus, &a.device); n == 3 {
		return a
	}
	a = busAddress{}
	_, _ = fmt.Sscanf(s, "%x:%x.%x", &a.bus, &a.device, &a.function)
	return a
}

func (a busAddress) String() string {
	return fmt.Sprintf("%04x:%02x:%02x.%x", a.domain, a.bus, a.device, a.function)
}

// DeviceGetPCIBusId is cuDeviceGetPCIBusId.
func (c *Call) DeviceGetPCIBusId(id *byte, size, dev int32) Result { //nolint:revive // CUDA's name
	switch {
	case id == nil || size <= 0:
		return ErrorInvalidValue
	case dev != 0:
		return ErrorInvalidDevice
	}
	putText(id, uint64(size), pciAddress(c.d.gpu.Info().Address).String())
	return Success
}

// DeviceGetByPCIBusId is cuDeviceGetByPCIBusId.
func (c *Call) DeviceGetByPCIBusId(dev *int32, id *byte) Result { //nolint:revive // CUDA's name
	s, ok := text(id)
	if !ok || dev == nil {
		return ErrorInvalidValue
	}
	if strings.Count(s, ":") == 0 || pciAddress(strings.ToLower(s)) != pciAddress(c.d.gpu.Info().Address) {
		return ErrorInvalidDevice
	}
	put(dev, 0)
	return Success
}

// UUID is CUuuid.
type UUID [16]byte

// DeviceGetUuid is cuDeviceGetUuid.
func (c *Call) DeviceGetUuid(id *UUID, dev int32) Result { //nolint:revive // CUDA's name
	switch {
	case id == nil:
		return ErrorInvalidValue
	case dev != 0:
		return ErrorInvalidDevice
	}
	u := UUID(c.d.gpu.Info().UUID)
	if u == (UUID{}) { // of a host that does not tell
		sum := sha256.Sum256([]byte("virtual GPU at " + c.d.gpu.Info().Address))
		copy(u[:], sum[:])
	}
	put(id, u)
	return Success
}

// DeviceGetUuidV2 is cuDeviceGetUuid_v2.
func (c *Call) DeviceGetUuidV2(id *UUID, dev int32) Result { return c.DeviceGetUuid(id, dev) }

// DeviceProperties is CUdevprop.
type DeviceProperties struct {
	MaxThreadsPerBlock, MaxThreadsDimX, MaxThreadsDimY, MaxThreadsDimZ int32
	MaxGridX, MaxGridY, MaxGridZ, SharedMemPerBlock                    int32
	TotalConstantMemory, SIMDWidth, MemPitch, RegsPerBlock             int32
	ClockRate, TextureAlign                                            int32
}

// DeviceGetProperties is cuDeviceGetProperties.
func (c *Call) DeviceGetProperties(out *DeviceProperties, dev int32) Result {
	switch {
	case out == nil:
		return ErrorInvalidValue
	case dev != 0:
		return ErrorInvalidDevice
	}
	var p DeviceProperties
	for attribute, to := range map[uint32]*int32{
		DeviceAttributeMaxThreadsPerBlock: &p.MaxThreadsPerBlock, DeviceAttributeMaxBlockDimX: &p.MaxThreadsDimX,
		DeviceAttributeMaxBlockDimY: &p.MaxThreadsDimY, DeviceAttributeMaxBlockDimZ: &p.MaxThreadsDimZ,
		DeviceAttributeMaxGridDimX: &p.MaxGridX, DeviceAttributeMaxGridDimY: &p.MaxGridY, DeviceAttributeMaxGridDimZ: &p.MaxGridZ,
		DeviceAttributeMaxSharedMemoryPerBlock: &p.SharedMemPerBlock, DeviceAttributeTotalConstantMemory: &p.TotalConstantMemory,
		DeviceAttributeWarpSize: &p.SIMDWidth, DeviceAttributeMaxPitch: &p.MemPitch, DeviceAttributeMaxRegistersPerBlock: &p.RegsPerBlock,
		DeviceAttributeClockRate: &p.ClockRate, DeviceAttributeTextureAlignment: &p.TextureAlign,
	} {
		var r Result
		if *to, r = c.d.attribute(attribute); r != Success {
			return r
		}
	}
	put(out, p)
	return Success
}

// DeviceGetExecAffinitySupport is cuDeviceGetExecAffinitySupport: a context always has all SMs.
func (c *Call) DeviceGetExecAffinitySupport(out *int32, kind uint32, dev int32) Result {
	switch {
	case out == nil || kind != 0:
		return ErrorInvalidValue
	case dev != 0:
		return ErrorInvalidDevice
	}
	put(out, 0)
	return Success
}

// elementBytes returns the bytes of a channel of a CUarray_format, or 0.
func elementBytes(format uint32) uint64 {
	switch format {
	case 0x01, 0x08: // 8 bits
		return 1
	case 0x02, 0x09, 0x10: // 16 bits
		return 2
	case 0x03, 0x0a, 0x20: // 32 bits
		return 4
	}
	return 0
}

// DeviceGetTexture1DLinearMaxWidth is cuDeviceGetTexture1DLinearMaxWidth.
func (c *Call) DeviceGetTexture1DLinearMaxWidth(out *uint64, format, channels uint32, dev int32) Result {
	switch {
	case out == nil || elementBytes(format) == 0 || channels != 1 && channels != 2 && channels != 4:
		return ErrorInvalidValue
	case dev != 0:
		return ErrorInvalidDevice
	}
	most, r := c.d.attribute(DeviceAttributeMaximumTexture1dLinearWidth)
	if r == Success {
		put(out, uint64(most))
	}
	return r
}

// DeviceCanAccessPeer is cuDeviceCanAccessPeer: there is one device.
func (c *Call) DeviceCanAccessPeer(out *int32, dev, peer int32) Result {
	switch {
	case out == nil:
		return ErrorInvalidValue
	case dev != 0 || peer != 0:
		return ErrorInvalidDevice
	}
	put(out, 0)
	return Success
}

// DeviceGetP2PAttribute is cuDeviceGetP2PAttribute, which wants two devices.
func (c *Call) DeviceGetP2PAttribute(out *int32, _ uint32, dev, peer int32) Result {
	if out == nil {
		return ErrorInvalidValue
	}
	_, _ = dev, peer
	return ErrorInvalidDevice
}

// FlushGPUDirectRDMAWrites is cuFlushGPUDirectRDMAWrites: no other device writes to the GPU's memory.
func (c *Call) FlushGPUDirectRDMAWrites(_, _ uint32) Result {
	if _, r := c.context(); r != Success {
		return r
	}
	return ErrorNotSupported
}
