package cuda

// MemLocation is CUmemLocation.
type MemLocation struct {
	Type uint32
	ID   int32
}

// valid reports whether it is the device.
func (l *MemLocation) valid() bool {
	const device = 1
	return l != nil && l.Type == device && l.ID == 0
}

// MemPoolProps is CUmemPoolProps.
type MemPoolProps struct {
	Type, HandleTypes uint32
	Location          MemLocation
	_                 Pointer
	MaxBytes          uint64
	Usage             uint16
	_                 [54]byte
}

// MemAccess is CUmemAccessDesc.
type MemAccess struct {
	Location MemLocation
	Flags    uint32
}

// pinned is CU_MEM_ALLOCATION_TYPE_PINNED.
const pinned = 1

// readWrite is CU_MEM_ACCESS_FLAGS_PROT_READWRITE.
const readWrite = 3

// MemPoolCreate is cuMemPoolCreate.
func (c *Call) MemPoolCreate(out *Handle, props *MemPoolProps) Result {
	switch {
	case out == nil, props == nil, props.Type != pinned:
		return ErrorInvalidValue
	case !props.Location.valid(), props.HandleTypes != 0, props.Usage != 0:
		return ErrorNotSupported
	}
	p := &c.d.pools
	p.mu.Lock()
	defer p.mu.Unlock()
	p.device(c.d)
	m := &memPool{most: props.MaxBytes, reuse: [3]uint32{1, 1, 1}}
	if m.handle = c.d.objects.add(m); m.handle == 0 {
		return ErrorOutOfMemory
	}
	p.all[m] = struct{}{}
	put(out, m.handle)
	return Success
}

// MemPoolDestroy is cuMemPoolDestroy. Memory that is in use stays so.
func (c *Call) MemPoolDestroy(h Handle) Result {
	return c.withPool(h, true, func(p *pools, m *memPool) Result {
		if m == p.standard {
			return ErrorInvalidValue
		}
		if p.current == m {
			p.current = p.standard
		}
		m.destroyed = true
		c.d.objects.remove(h)
		m.trim(c.d, 0)
		return Success
	})
}

// withPool calls f with a pool.
func (c *Call) withPool(h Handle, valid bool, f func(*pools, *memPool) Result) Result {
	p := &c.d.pools
	p.mu.Lock()
	defer p.mu.Unlock()
	m := c.pool(h)
	if m == nil || !valid {
		return ErrorInvalidValue
	}
	return f(p, m)
}

// MemPoolTrimTo is cuMemPoolTrimTo.
func (c *Call) MemPoolTrimTo(h Handle, keep uint64) Result {
	return c.withPool(h, true, func(_ *pools, m *memPool) Result {
		m.trim(c.d, keep)
		return Success
	})
}

// MemPoolGetAttribute is cuMemPoolGetAttribute.
func (c *Call) MemPoolGetAttribute(h Handle, attr uint32, out Pointer) Result {
	return c.withPool(h, out != nil, func(_ *pools, m *memPool) Result {
		amounts := map[uint32]uint64{
			MempoolAttrReleaseThreshold: m.threshold, MempoolAttrReservedMemCurrent: m.reserved.now, MempoolAttrReservedMemHigh: m.reserved.high,
			MempoolAttrUsedMemCurrent: m.used.now, MempoolAttrUsedMemHigh: m.used.high,
		}
		if i := attr - MempoolAttrReuseFollowEventDependencies; i < uint32(len(m.reuse)) {
			put(value[uint32](out), m.reuse[i])
			return Success
		}
		n, ok := amounts[attr]
		if !ok {
			return ErrorInvalidValue
		}
		put(value[uint64](out), n)
		return Success
	})
}

// MemPoolSetAttribute is cuMemPoolSetAttribute.
func (c *Call) MemPoolSetAttribute(h Handle, attr uint32, in Pointer) Result {
	return c.withPool(h, in != nil, func(_ *pools, m *memPool) Result {
		if i := attr - MempoolAttrReuseFollowEventDependencies; i < uint32(len(m.reuse)) {
			m.reuse[i] = *value[uint32](in)
			return Success
		}
		n := *value[uint64](in)
		switch {
		case attr == MempoolAttrReleaseThreshold:
			m.threshold = n
		case attr == MempoolAttrReservedMemHigh && n == 0:
			m.reserved.high = m.reserved.now
		case attr == MempoolAttrUsedMemHigh && n == 0:
			m.used.high = m.used.now
		default:
			return ErrorInvalidValue
		}
		return Success
	})
}

// MemPoolGetAccess is cuMemPoolGetAccess.
func (c *Call) MemPoolGetAccess(out *uint32, h Handle, l *MemLocation) Result {
	return c.withPool(h, out != nil && l.valid(), func(*pools, *memPool) Result {
		put(out, readWrite)
		return Success
	})
}

// MemPoolSetAccess is cuMemPoolSetAccess. There is one device, which always has access.
func (c *Call) MemPoolSetAccess(h Handle, list *MemAccess, count uint64) Result {
	return c.withPool(h, count == 0 || list != nil && count < 1<<16, func(*pools, *memPool) Result {
		for i := range count {
			a := &array(list, count)[i]
			if !a.Location.valid() {
				return ErrorInvalidDevice
			}
			if a.Flags != readWrite {
				return ErrorInvalidValue
			}
		}
		return Success
	})
}

// DeviceGetDefaultMemPool is cuDeviceGetDefaultMemPool.
func (c *Call) DeviceGetDefaultMemPool(out *Handle, dev int32) Result {
	return c.devicePool(out, dev, func(p *pools) *memPool { return p.standard })
}

// DeviceGetMemPool is cuDeviceGetMemPool.
func (c *Call) DeviceGetMemPool(out *Handle, dev int32) Result {
	return c.devicePool(out, dev, func(p *pools) *memPool { return p.current })
}

func (c *Call) devicePool(out *Handle, dev int32, which func(*pools) *memPool) Result {
	switch {
	case out == nil:
		return ErrorInvalidValue
	case dev != 0:
		return ErrorInvalidDevice
	}
	p := &c.d.pools
	p.mu.Lock()
	defer p.mu.Unlock()
	p.device(c.d)
	put(out, which(p).handle)
	return Success
}

// DeviceSetMemPool is cuDeviceSetMemPool.
func (c *Call) DeviceSetMemPool(dev int32, h Handle) Result {
	if dev != 0 {
		return ErrorInvalidDevice
	}
	return c.withPool(h, true, func(p *pools, m *memPool) Result {
		p.current = m
		return Success
	})
}

// MemGetDefaultMemPool is cuMemGetDefaultMemPool.
func (c *Call) MemGetDefaultMemPool(out *Handle, l *MemLocation, kind uint32) Result {
	if !l.valid() || kind != pinned {
		return ErrorInvalidValue
	}
	return c.DeviceGetDefaultMemPool(out, 0)
}

// MemGetMemPool is cuMemGetMemPool.
func (c *Call) MemGetMemPool(out *Handle, l *MemLocation, kind uint32) Result {
	if !l.valid() || kind != pinned {
		return ErrorInvalidValue
	}
	return c.DeviceGetMemPool(out, 0)
}

// MemSetMemPool is cuMemSetMemPool.
func (c *Call) MemSetMemPool(l *MemLocation, kind uint32, h Handle) Result {
	if !l.valid() || kind != pinned {
		return ErrorInvalidValue
	}
	return c.DeviceSetMemPool(0, h)
}
