package cuda

import "context"

// pointee is what CUDA knows of an address.
type pointee struct {
	x      *Context
	kind   uint32 // CU_MEMORYTYPE_HOST or _DEVICE
	device uint64 // the address for kernels, or 0
	host   uint64 // the address for the program, or 0
	base   uint64
	bytes  uint64
	id     uint64
	flags  uint32

	managed bool
}

// pointee returns what is known of an address.
func (d *Driver) pointee(p uint64) (pointee, bool) {
	if h := d.host.find(p); h != nil {
		q := pointee{x: h.x, kind: placeHost, host: p, base: h.base, bytes: h.bytes, id: h.base, flags: h.flags}
		if h.m != nil {
			if a, err := h.x.gpu.HostAddress(context.Background(), h.m); err == nil {
				q.device = uint64(a) + p - h.base
			}
		}
		if h.managed != nil {
			q.kind, q.managed, q.bytes = placeDevice, true, h.asked
		}
		return q, true
	}
	x := d.owner(p)
	if x == nil {
		return pointee{}, false
	}
	q := pointee{x: x, kind: placeDevice, device: p, base: p}
	if m, ok := x.memory.find(p); ok {
		q.base, q.bytes, q.id = m.base, m.bytes, m.id
	}
	return q, true
}

// PointerGetAttribute is cuPointerGetAttribute.
func (c *Call) PointerGetAttribute(out Pointer, attribute uint32, p uint64) Result {
	if _, r := c.context(); r != Success {
		return r
	}
	if out == nil {
		return ErrorInvalidValue
	}
	q, known := c.d.pointee(p)
	switch attribute {
	case PointerAttributeMemoryType, PointerAttributeContext, PointerAttributeDevicePointer, PointerAttributeHostPointer,
		PointerAttributeBufferId, PointerAttributeDeviceOrdinal, PointerAttributeRangeStartAddr, PointerAttributeRangeSize:
		if !known {
			return ErrorInvalidValue
		}
	}
	return q.attribute(out, attribute)
}

func (q *pointee) attribute(out Pointer, attribute uint32) Result {
	switch attribute {
	case PointerAttributeContext:
		put(value[Handle](out), q.x.handle)
	case PointerAttributeMemoryType:
		put(value[uint32](out), q.kind)
	case PointerAttributeDevicePointer:
		if q.device == 0 {
			return ErrorInvalidValue
		}
		put(value[uint64](out), q.device)
	case PointerAttributeHostPointer:
		if q.host == 0 {
			return ErrorInvalidValue
		}
		put(value[uint64](out), q.host)
	case PointerAttributeBufferId:
		put(value[uint64](out), q.id)
	case PointerAttributeDeviceOrdinal:
		put(value[int32](out), 0)
	case PointerAttributeRangeStartAddr:
		put(value[uint64](out), q.base)
	case PointerAttributeRangeSize:
		put(value[uint64](out), q.bytes)
	case PointerAttributeIsManaged:
		is := uint32(0)
		if q.managed {
			is = 1
		}
		put(value[uint32](out), is)
	case PointerAttributeSyncMemops, PointerAttributeIsLegacyCudaIpcCapable, PointerAttributeIsGpuDirectRdmaCapable:
		put(value[uint32](out), 0)
	case PointerAttributeMapped:
		mapped := uint32(0)
		if q.device != 0 {
			mapped = 1
		}
		put(value[uint32](out), mapped)
	case PointerAttributeAllowedHandleTypes:
		put(value[uint64](out), 0)
	case PointerAttributeAccessFlags:
		flags := uint32(0)
		if q.device != 0 {
			flags = 3 // read and write
		}
		put(value[uint32](out), flags)
	case PointerAttributeMempoolHandle:
		put(value[uint64](out), 0)
	case PointerAttributeP2pTokens:
		return ErrorNotSupported
	default:
		return ErrorInvalidValue
	}
	return Success
}

// PointerGetAttributes is cuPointerGetAttributes: what is not known of an address is 0.
func (c *Call) PointerGetAttributes(n uint32, attributes *uint32, out *Pointer, p uint64) Result {
	if _, r := c.context(); r != Success {
		return r
	}
	if n == 0 || attributes == nil || out == nil || n > 256 {
		return ErrorInvalidValue
	}
	q, known := c.d.pointee(p)
	to := array(out, uint64(n))
	for i, attribute := range array(attributes, uint64(n)) {
		if to[i] == nil {
			return ErrorInvalidValue
		}
		if known && q.attribute(to[i], attribute) == Success {
			continue
		}
		switch attribute {
		case PointerAttributeDeviceOrdinal:
			put(value[int32](to[i]), -2) // CU_DEVICE_INVALID
		case PointerAttributeMemoryType, PointerAttributeIsManaged, PointerAttributeSyncMemops, PointerAttributeMapped,
			PointerAttributeIsLegacyCudaIpcCapable, PointerAttributeIsGpuDirectRdmaCapable, PointerAttributeAccessFlags:
			put(value[uint32](to[i]), 0)
		case PointerAttributeP2pTokens:
			return ErrorInvalidValue
		default:
			if attribute > PointerAttributeIsHwDecompressCapable || attribute == 0 {
				return ErrorInvalidValue
			}
			put(value[uint64](to[i]), 0)
		}
	}
	return Success
}

// PointerSetAttribute is cuPointerSetAttribute: copies are in order already.
func (c *Call) PointerSetAttribute(v Pointer, attribute uint32, p uint64) Result {
	if _, r := c.context(); r != Success {
		return r
	}
	if q, ok := c.d.pointee(p); v == nil || attribute != PointerAttributeSyncMemops || !ok || q.kind != placeDevice {
		return ErrorInvalidValue
	}
	return Success
}

// MemHostGetDevicePointerV2 is cuMemHostGetDevicePointer_v2. Only memory that the library allocated
// in what it shares with the host can be mapped.
func (c *Call) MemHostGetDevicePointerV2(out *uint64, p Pointer, flags uint32) Result {
	x, r := c.context()
	if r != Success {
		return r
	}
	h := c.d.host.find(addressOf(p))
	if out == nil || flags != 0 || h == nil {
		return ErrorInvalidValue
	}
	if h.m == nil {
		return ErrorNotSupported
	}
	a, err := x.gpu.HostAddress(context.Background(), h.m)
	if err != nil {
		return x.fail(err)
	}
	x.reaches.Store(true)
	put(out, uint64(a)+addressOf(p)-h.base)
	return Success
}
