package cudatest

import (
	"strings"

	"vgpud/gpu/nvidia/cuda"
)

// find returns n bytes at an address, or nil if they are not all in one allocation. The caller
// holds mu.
func (g *GPU) find(p cuda.DevicePtr, n uint64) []byte {
	for _, memory := range []map[uint64][]byte{g.device, g.host} {
		for base, mem := range memory {
			if at := uint64(p) - base; at < uint64(len(mem)) && n <= uint64(len(mem))-at {
				return mem[at : at+n : at+n]
			}
		}
	}
	return nil
}

// Bytes returns GPU memory, or page-locked memory, as a kernel sees it.
func (g *GPU) Bytes(p cuda.DevicePtr, n uint64) ([]byte, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if b := g.find(p, n); b != nil {
		return b, nil
	}
	return nil, cuda.ErrIllegalAddress
}

// Each calls visit with each allocation of GPU memory, and each range of page-locked memory.
func (g *GPU) Each(visit func(at cuda.DevicePtr, mem []byte)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, memory := range []map[uint64][]byte{g.device, g.host} {
		for at, mem := range memory {
			visit(cuda.DevicePtr(at), mem)
		}
	}
}

// MemGetInfo is [cuda.Library.MemGetInfo].
func (g *GPU) MemGetInfo() (free, total uint64, err error) {
	defer g.mu.Unlock()
	err = g.inContext("MemGetInfo")
	return g.Memory - g.used - g.pooled, g.Memory, err
}

// allocate makes memory with arbitrary contents.
func (g *GPU) allocate(n uint64) (cuda.DevicePtr, error) {
	if n == 0 {
		return 0, cuda.ErrInvalidValue
	}
	if n > g.Memory-g.used-g.pooled {
		return 0, cuda.ErrOutOfMemory
	}
	p := g.handle()
	g.next += n
	mem := make([]byte, n)
	for i := range mem {
		mem[i] = 0xdb
	}
	g.device[p] = mem
	g.used += n
	return cuda.DevicePtr(p), nil
}

// MemAlloc passes the memory to OnAlloc, if that is set.
func (g *GPU) MemAlloc(n uint64) (cuda.DevicePtr, error) {
	defer g.mu.Unlock()
	if err := g.inContext("MemAlloc"); err != nil {
		return 0, err
	}
	p, err := g.allocate(n)
	if err == nil && g.OnAlloc != nil {
		g.OnAlloc(g.device[uint64(p)])
	}
	return p, err
}

// MemFree frees at once: nothing may use the memory any more.
func (g *GPU) MemFree(p cuda.DevicePtr) error {
	defer g.mu.Unlock()
	if err := g.inContext("MemFree"); err != nil {
		return err
	}
	mem, ok := g.device[uint64(p)]
	if !ok {
		return cuda.ErrInvalidValue
	}
	g.used -= uint64(len(mem))
	delete(g.device, uint64(p))
	return nil
}

// MemAllocAsync is [cuda.Library.MemAllocAsync]. It uses the pool's memory first.
func (g *GPU) MemAllocAsync(n uint64, s cuda.Stream) (cuda.DevicePtr, error) {
	defer g.mu.Unlock()
	if err := g.inContext("MemAllocAsync"); err != nil {
		return 0, err
	}
	had := g.pooled
	g.pooled -= min(had, n)
	p, err := g.allocate(n)
	if err != nil {
		g.pooled = had
	}
	return p, err
}

// The pool's handle, an arbitrary value.
const pool cuda.MemPool = 0x9001

// DeviceGetDefaultMemPool is [cuda.Library.DeviceGetDefaultMemPool].
func (g *GPU) DeviceGetDefaultMemPool(cuda.Device) (cuda.MemPool, error) {
	defer g.mu.Unlock()
	return pool, g.call("DeviceGetDefaultMemPool")
}

// MemPoolSetAttribute accepts one attribute, and only to turn it off: this driver never makes a
// stream wait for memory.
func (g *GPU) MemPoolSetAttribute(p cuda.MemPool, a cuda.PoolAttribute, value int) error {
	defer g.mu.Unlock()
	if err := g.call("MemPoolSetAttribute"); err != nil {
		return err
	}
	if p != pool || a != cuda.PoolReuseAllowInternalDependencies || value != 0 {
		return cuda.ErrInvalidValue
	}
	return nil
}

// MemPoolTrimTo is [cuda.Library.MemPoolTrimTo].
func (g *GPU) MemPoolTrimTo(p cuda.MemPool, keep uint64) error {
	defer g.mu.Unlock()
	if err := g.inContext("MemPoolTrimTo"); err != nil {
		return err
	}
	if p != pool {
		return cuda.ErrInvalidValue
	}
	g.pooled = min(g.pooled, keep)
	return nil
}

// MemFreeAsync is [cuda.Library.MemFreeAsync]. The memory stays in the pool until a caller
// synchronises or trims it.
func (g *GPU) MemFreeAsync(p cuda.DevicePtr, s cuda.Stream) error {
	return g.queue("MemFreeAsync", s, func() error {
		if g.device[uint64(p)] == nil {
			return cuda.ErrInvalidValue
		}
		return nil
	}, func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		n := uint64(len(g.device[uint64(p)]))
		g.used -= n
		g.pooled += n
		delete(g.device, uint64(p))
		return nil
	})
}

// MemHostRegister is [cuda.Library.MemHostRegister].
func (g *GPU) MemHostRegister(mem []byte, _ uint32) error {
	defer g.mu.Unlock()
	if err := g.inContext("MemHostRegister"); err != nil {
		return err
	}
	if g.host[uint64(cuda.Address(mem))] != nil {
		return cuda.ErrAlreadyRegistered
	}
	g.host[uint64(cuda.Address(mem))] = mem
	return nil
}

// MemHostUnregister is [cuda.Library.MemHostUnregister].
func (g *GPU) MemHostUnregister(mem []byte) error {
	defer g.mu.Unlock()
	if err := g.inContext("MemHostUnregister"); err != nil {
		return err
	}
	if g.host[uint64(cuda.Address(mem))] == nil {
		return cuda.ErrInvalidValue
	}
	delete(g.host, uint64(cuda.Address(mem)))
	return nil
}

// MemcpyHtoDAsync reads memory that is not page-locked before it returns.
func (g *GPU) MemcpyHtoDAsync(dst cuda.DevicePtr, src []byte, s cuda.Stream) error {
	return g.queue("MemcpyHtoDAsync", s, func() error {
		if g.find(dst, uint64(len(src))) == nil {
			return cuda.ErrInvalidValue
		}
		if g.find(cuda.Address(src), uint64(len(src))) == nil {
			src = append([]byte(nil), src...)
		}
		return nil
	}, func() error {
		to, err := g.Bytes(dst, uint64(len(src)))
		copy(to, src)
		return err
	})
}

// MemcpyDtoHAsync waits for a copy to memory that is not page-locked.
func (g *GPU) MemcpyDtoHAsync(dst []byte, src cuda.DevicePtr, s cuda.Stream) error {
	locked := false
	err := g.queue("MemcpyDtoHAsync", s, func() error {
		if g.find(src, uint64(len(dst))) == nil {
			return cuda.ErrInvalidValue
		}
		locked = g.find(cuda.Address(dst), uint64(len(dst))) != nil
		return nil
	}, func() error {
		from, err := g.Bytes(src, uint64(len(dst)))
		copy(dst, from)
		return err
	})
	if err != nil || locked {
		return err
	}
	return g.StreamSynchronize(s)
}

// MemcpyDtoDAsync is [cuda.Library.MemcpyDtoDAsync].
func (g *GPU) MemcpyDtoDAsync(dst, src cuda.DevicePtr, n uint64, s cuda.Stream) error {
	return g.queue("MemcpyDtoDAsync", s, func() error {
		if g.find(dst, n) == nil || g.find(src, n) == nil {
			return cuda.ErrInvalidValue
		}
		return nil
	}, func() error {
		to, err := g.Bytes(dst, n)
		if err != nil {
			return err
		}
		from, err := g.Bytes(src, n)
		copy(to, from)
		return err
	})
}

// Memcpy3DAsync requires, as the driver does, pitches that hold a row and heights that hold a
// slice.
func (g *GPU) Memcpy3DAsync(c *cuda.Memcpy3D, s cuda.Stream) error {
	box := *c
	return g.queue("Memcpy3DAsync", s, func() error {
		short := func(kind uint32, pitch, height uintptr) bool {
			return kind != cuda.MemoryArray && (pitch < box.WidthInBytes || height < box.Height)
		}
		if short(box.SrcMemoryType, box.SrcPitch, box.SrcHeight) || short(box.DstMemoryType, box.DstPitch, box.DstHeight) {
			return cuda.ErrInvalidValue
		}
		return nil
	}, func() error {
		for z := range box.Depth {
			for y := range box.Height {
				to, err := g.row(box.DstMemoryType, box.DstHost, box.DstDevice, (z*box.DstHeight+y)*box.DstPitch, box.WidthInBytes)
				if box.DstMemoryType == cuda.MemoryArray {
					to, err = g.arrayRow(cuda.Array(box.DstArray), box.DstXInBytes, box.DstY+y, box.DstZ+z, box.WidthInBytes)
				}
				if err != nil {
					return err
				}
				from, err := g.row(box.SrcMemoryType, box.SrcHost, box.SrcDevice, (z*box.SrcHeight+y)*box.SrcPitch, box.WidthInBytes)
				if box.SrcMemoryType == cuda.MemoryArray {
					from, err = g.arrayRow(cuda.Array(box.SrcArray), box.SrcXInBytes, box.SrcY+y, box.SrcZ+z, box.WidthInBytes)
				}
				if err != nil {
					return err
				}
				copy(to, from)
			}
		}
		return nil
	})
}

// MemsetAsync is [cuda.Library.MemsetAsync].
func (g *GPU) MemsetAsync(dst cuda.DevicePtr, value uint32, width int, n uint64, s cuda.Stream) error {
	return g.Memset2DAsync(dst, 0, value, width, n, 1, s)
}

// Memset2DAsync is [cuda.Library.Memset2DAsync].
func (g *GPU) Memset2DAsync(dst cuda.DevicePtr, pitch uint64, value uint32, width int, n, rows uint64, s cuda.Stream) error {
	extent := (rows-1)*pitch + n*uint64(width)
	return g.queue("MemsetAsync", s, func() error {
		if g.find(dst, extent) == nil || uint64(dst)%uint64(width) != 0 || rows > 1 && pitch < n*uint64(width) {
			return cuda.ErrInvalidValue
		}
		return nil
	}, func() error {
		to, err := g.Bytes(dst, extent)
		if err != nil {
			return err
		}
		for y := range rows {
			row := to[y*pitch:][:n*uint64(width)]
			for i := range row {
				row[i] = byte(value >> (8 * (i % width)))
			}
		}
		return nil
	})
}

// ModuleLoadData parses entries and byte arrays. An image with "nonsense" in it is invalid PTX.
func (g *GPU) ModuleLoadData(image []byte) (cuda.Module, string, error) {
	defer g.mu.Unlock()
	if err := g.inContext("ModuleLoadData"); err != nil {
		return 0, "", err
	}
	text := string(image)
	if strings.Contains(text, "nonsense") {
		return 0, "line 1: nonsense", cuda.ErrInvalidPTX
	}
	m := &module{functions: map[string]cuda.Function{}, globals: map[string]uint64{}, sizes: map[string]uint64{}}
	for _, name := range entry.FindAllStringSubmatch(text, -1) {
		if g.Kernels[name[1]] == nil {
			return 0, "no kernel " + name[1], cuda.ErrInvalidPTX
		}
		f := cuda.Function(g.handle())
		m.functions[name[1]] = f
		g.kernels[f] = name[1]
	}
	for _, v := range global.FindAllStringSubmatch(text, -1) {
		n := uint64(0)
		for _, digit := range v[2] {
			n = 10*n + uint64(digit-'0')
		}
		p, err := g.allocate(n)
		if err != nil {
			return 0, "", err
		}
		m.globals[v[1]], m.sizes[v[1]] = uint64(p), n
	}
	h := cuda.Module(g.handle())
	g.modules[h] = m
	return h, "", nil
}

// ModuleUnload is [cuda.Library.ModuleUnload].
func (g *GPU) ModuleUnload(m cuda.Module) error {
	defer g.mu.Unlock()
	if err := g.inContext("ModuleUnload"); err != nil {
		return err
	}
	if g.modules[m] == nil {
		return cuda.ErrInvalidHandle
	}
	for _, p := range g.modules[m].globals {
		g.used -= uint64(len(g.device[p]))
		delete(g.device, p)
	}
	delete(g.modules, m)
	return nil
}

// ModuleGetFunction is [cuda.Library.ModuleGetFunction].
func (g *GPU) ModuleGetFunction(m cuda.Module, name string) (cuda.Function, error) {
	defer g.mu.Unlock()
	if err := g.inContext("ModuleGetFunction"); err != nil {
		return 0, err
	}
	if f, ok := g.modules[m].functions[name]; ok {
		return f, nil
	}
	return 0, cuda.ErrNotFound
}

// ModuleGetGlobal is [cuda.Library.ModuleGetGlobal].
func (g *GPU) ModuleGetGlobal(m cuda.Module, name string) (cuda.DevicePtr, uint64, error) {
	defer g.mu.Unlock()
	if err := g.inContext("ModuleGetGlobal"); err != nil {
		return 0, 0, err
	}
	if p, ok := g.modules[m].globals[name]; ok {
		return cuda.DevicePtr(p), g.modules[m].sizes[name], nil
	}
	return 0, 0, cuda.ErrNotFound
}

// ModuleEnumerateFunctions is [cuda.Library.ModuleEnumerateFunctions].
func (g *GPU) ModuleEnumerateFunctions(m cuda.Module) ([]cuda.Function, error) {
	defer g.mu.Unlock()
	if err := g.inContext("ModuleEnumerateFunctions"); err != nil {
		return nil, err
	}
	var all []cuda.Function
	for _, f := range g.modules[m].functions {
		all = append(all, f)
	}
	return all, nil
}

// FuncGetAttribute is [cuda.Library.FuncGetAttribute].
func (g *GPU) FuncGetAttribute(f cuda.Function, a cuda.FunctionAttribute) (int, error) {
	defer g.mu.Unlock()
	if err := g.inContext("FuncGetAttribute"); err != nil {
		return 0, err
	}
	switch a {
	case cuda.FuncMaxThreadsPerBlock:
		return 1024, nil
	case cuda.FuncLocalSizeBytes:
		return g.Attributes[g.kernels[f]].Local, nil
	case cuda.FuncPTXVersion, cuda.FuncBinaryVersion:
		return 90, nil
	}
	return 0, nil
}

// FuncSetAttribute is [cuda.Library.FuncSetAttribute].
func (g *GPU) FuncSetAttribute(cuda.Function, cuda.FunctionAttribute, int) error {
	defer g.mu.Unlock()
	return g.inContext("FuncSetAttribute")
}

// FuncGetParamInfo is [cuda.Library.FuncGetParamInfo].
func (g *GPU) FuncGetParamInfo(f cuda.Function, i int) (offset, size uint64, err error) {
	defer g.mu.Unlock()
	if err := g.inContext("FuncGetParamInfo"); err != nil {
		return 0, 0, err
	}
	sizes := []int{8}
	if a, ok := g.Attributes[g.kernels[f]]; ok {
		sizes = a.Params
	}
	if i >= len(sizes) {
		return 0, 0, cuda.ErrInvalidValue
	}
	for _, n := range sizes[:i] {
		offset += uint64(n)
	}
	return offset, uint64(sizes[i]), nil
}

// OccupancyMaxActiveBlocksPerMultiprocessor is
// [cuda.Library.OccupancyMaxActiveBlocksPerMultiprocessor].
func (g *GPU) OccupancyMaxActiveBlocksPerMultiprocessor(_ cuda.Function, threads int, shared uint64) (int, error) {
	defer g.mu.Unlock()
	return min(2048/max(threads, 1), 32), g.inContext("Occupancy")
}
