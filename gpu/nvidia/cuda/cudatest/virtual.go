package cudatest

import "vgpud/gpu/nvidia/cuda"

// granularity of mapped memory.
const granularity = 2 << 20

// mapped is a mapping of memory at an address.
type mapped struct{ handle cuda.MemHandle }

// MemGetAllocationGranularity is [cuda.Library.MemGetAllocationGranularity].
func (g *GPU) MemGetAllocationGranularity(cuda.Device) (uint64, error) {
	defer g.mu.Unlock()
	return granularity, g.inContext("MemGetAllocationGranularity")
}

// MemAddressReserve reserves the range at hint.
func (g *GPU) MemAddressReserve(n, _ uint64, hint cuda.DevicePtr) (cuda.DevicePtr, error) {
	defer g.mu.Unlock()
	if err := g.inContext("MemAddressReserve"); err != nil {
		return 0, err
	}
	if n == 0 || n%granularity != 0 || g.reserved[hint] != 0 {
		return 0, cuda.ErrInvalidValue
	}
	g.reserved[hint] = n
	return hint, nil
}

// MemAddressFree refuses ranges where something is mapped.
func (g *GPU) MemAddressFree(p cuda.DevicePtr, n uint64) error {
	defer g.mu.Unlock()
	if err := g.inContext("MemAddressFree"); err != nil {
		return err
	}
	if g.reserved[p] != n || len(g.mapped) > 0 {
		return cuda.ErrInvalidValue
	}
	delete(g.reserved, p)
	return nil
}

// MemCreate takes memory with arbitrary contents.
func (g *GPU) MemCreate(n uint64, _ cuda.Device) (cuda.MemHandle, error) {
	defer g.mu.Unlock()
	if err := g.inContext("MemCreate"); err != nil {
		return 0, err
	}
	if n == 0 || n%granularity != 0 {
		return 0, cuda.ErrInvalidValue
	}
	if n > g.Memory-g.used-g.pooled {
		return 0, cuda.ErrOutOfMemory
	}
	mem := make([]byte, n)
	for i := range mem {
		mem[i] = 0xdb
	}
	h := cuda.MemHandle(g.handle())
	g.physical[h] = mem
	g.used += n
	return h, nil
}

// MemRelease refuses memory that is mapped, which the driver keeps until then.
func (g *GPU) MemRelease(h cuda.MemHandle) error {
	defer g.mu.Unlock()
	if err := g.inContext("MemRelease"); err != nil {
		return err
	}
	mem, ok := g.physical[h]
	for _, m := range g.mapped {
		ok = ok && m.handle != h
	}
	if !ok {
		return cuda.ErrInvalidValue
	}
	g.used -= uint64(len(mem))
	delete(g.physical, h)
	return nil
}

// MemMap maps memory within a reserved range. It can't be used before MemSetAccess.
func (g *GPU) MemMap(p cuda.DevicePtr, n uint64, h cuda.MemHandle) error {
	defer g.mu.Unlock()
	if err := g.inContext("MemMap"); err != nil {
		return err
	}
	within := false
	for base, size := range g.reserved {
		within = within || p >= base && uint64(p-base) <= size && n <= size-uint64(p-base)
	}
	for base, m := range g.mapped {
		if p < base+cuda.DevicePtr(len(g.physical[m.handle])) && base < p+cuda.DevicePtr(n) {
			return cuda.ErrInvalidValue
		}
	}
	if !within || uint64(p)%granularity != 0 || uint64(len(g.physical[h])) != n {
		return cuda.ErrInvalidValue
	}
	g.mapped[p] = mapped{handle: h}
	return nil
}

// MemUnmap is [cuda.Library.MemUnmap].
func (g *GPU) MemUnmap(p cuda.DevicePtr, n uint64) error {
	defer g.mu.Unlock()
	if err := g.inContext("MemUnmap"); err != nil {
		return err
	}
	m, ok := g.mapped[p]
	if !ok || uint64(len(g.physical[m.handle])) != n {
		return cuda.ErrInvalidValue
	}
	delete(g.mapped, p)
	delete(g.device, uint64(p))
	return nil
}

// MemSetAccess is [cuda.Library.MemSetAccess].
func (g *GPU) MemSetAccess(p cuda.DevicePtr, n uint64, _ cuda.Device) error {
	defer g.mu.Unlock()
	if err := g.inContext("MemSetAccess"); err != nil {
		return err
	}
	m, ok := g.mapped[p]
	if !ok || uint64(len(g.physical[m.handle])) != n {
		return cuda.ErrInvalidValue
	}
	g.device[uint64(p)] = g.physical[m.handle]
	return nil
}

// Reserved returns how many address ranges are reserved, and how much memory is in use.
func (g *GPU) Reserved() (ranges int, used uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.reserved), g.used
}
