package cuda

// Flags of MemHostRegister.
const (
	HostPortable  = 1
	HostDeviceMap = 2
)

// MemGetInfo returns the GPU's free and total memory in bytes.
func (l *Library) MemGetInfo() (free, total uint64, err error) {
	return answers(func(s *scratch) error { return l.call(cuMemGetInfo, s.at(0), s.at(1)) })
}

// MemAlloc allocates memory outside of any stream's order.
func (l *Library) MemAlloc(n uint64) (DevicePtr, error) {
	p, _, err := answers(func(s *scratch) error { return l.call(cuMemAlloc, s.at(0), uintptr(n)) })
	return DevicePtr(p), err
}

// MemFree frees memory of MemAlloc. It waits for the context's running work.
func (l *Library) MemFree(p DevicePtr) error { return l.call(cuMemFree, uintptr(p)) }

// MemAllocAsync allocates memory in s's order. The address is known at once.
func (l *Library) MemAllocAsync(n uint64, stream Stream) (DevicePtr, error) {
	p, _, err := answers(func(s *scratch) error { return l.call(cuMemAllocAsync, s.at(0), uintptr(n), uintptr(stream)) })
	return DevicePtr(p), err
}

// MemFreeAsync frees memory in s's order.
func (l *Library) MemFreeAsync(p DevicePtr, s Stream) error {
	return l.call(cuMemFreeAsync, uintptr(p), uintptr(s))
}

// MemPool is the pool from which MemAllocAsync takes a device's memory, and to which MemFreeAsync
// returns it. It belongs to the process, not to a context.
type MemPool uintptr

// PoolAttribute is a CUmemPool_attribute.
type PoolAttribute int

// PoolReuseAllowInternalDependencies reports whether MemAllocAsync may make its stream wait for
// another one that will free memory, if none is free now. It is on by default.
const PoolReuseAllowInternalDependencies PoolAttribute = 3

// DeviceGetDefaultMemPool returns the pool of MemAllocAsync.
func (l *Library) DeviceGetDefaultMemPool(d Device) (MemPool, error) {
	p, _, err := answers(func(s *scratch) error { return l.call(cuDeviceGetDefaultMemPool, s.at(0), uintptr(d)) })
	return MemPool(p), err
}

// MemPoolSetAttribute sets an attribute that is an int.
func (l *Library) MemPoolSetAttribute(p MemPool, a PoolAttribute, value int) error {
	_, _, err := answers(func(s *scratch) error {
		s.word[0] = uint64(value)
		return l.call(cuMemPoolSetAttribute, uintptr(p), uintptr(a), s.at(0))
	})
	return err
}

// MemPoolTrimTo returns the pool's unused memory beyond keep bytes to the GPU. The pool does so by
// itself only when a caller synchronises with a stream, an event or a context.
func (l *Library) MemPoolTrimTo(p MemPool, keep uint64) error {
	return l.call(cuMemPoolTrimTo, uintptr(p), uintptr(keep))
}

// MemHostRegister locks the pages of mem and lets the GPU access them. mem must stay mapped until
// MemHostUnregister.
func (l *Library) MemHostRegister(mem []byte, flags uint32) error {
	return l.call(cuMemHostRegister, address(mem), uintptr(len(mem)), uintptr(flags))
}

// MemHostUnregister undoes MemHostRegister. It waits for copies under way.
func (l *Library) MemHostUnregister(mem []byte) error {
	return l.call(cuMemHostUnregister, address(mem))
}

// MemcpyHtoDAsync copies to the GPU. src must stay valid until the copy is done. If src is not
// page-locked, the call may wait for earlier commands.
func (l *Library) MemcpyHtoDAsync(dst DevicePtr, src []byte, s Stream) error {
	return l.call(cuMemcpyHtoDAsync, uintptr(dst), address(src), uintptr(len(src)), uintptr(s))
}

// MemcpyDtoHAsync copies from the GPU; see MemcpyHtoDAsync.
func (l *Library) MemcpyDtoHAsync(dst []byte, src DevicePtr, s Stream) error {
	return l.call(cuMemcpyDtoHAsync, address(dst), uintptr(src), uintptr(len(dst)), uintptr(s))
}

// MemcpyDtoDAsync copies within the GPU's memory.
func (l *Library) MemcpyDtoDAsync(dst, src DevicePtr, n uint64, s Stream) error {
	return l.call(cuMemcpyDtoDAsync, uintptr(dst), uintptr(src), uintptr(n), uintptr(s))
}

// MemsetAsync sets n elements of width 1, 2 or 4 bytes to the low bytes of value.
func (l *Library) MemsetAsync(dst DevicePtr, value uint32, width int, n uint64, s Stream) error {
	f := [...]function{1: cuMemsetD8Async, 2: cuMemsetD16Async, 4: cuMemsetD32Async}[width]
	return l.call(f, uintptr(dst), uintptr(truncate(value, width)), uintptr(n), uintptr(s))
}

// Memset2DAsync sets rows of n elements, pitch bytes apart.
func (l *Library) Memset2DAsync(dst DevicePtr, pitch uint64, value uint32, width int, n, rows uint64, s Stream) error {
	f := [...]function{1: cuMemsetD2D8Async, 2: cuMemsetD2D16Async, 4: cuMemsetD2D32Async}[width]
	return l.call(f, uintptr(dst), uintptr(pitch), uintptr(truncate(value, width)), uintptr(n), uintptr(rows), uintptr(s))
}

// truncate returns the low bytes of value, as many as an element has.
func truncate(value uint32, width int) uint32 {
	return value & (1<<(8*width) - 1)
}

// Kinds of memory in a [Memcpy3D].
const (
	MemoryHost   = 1
	MemoryDevice = 2
	MemoryArray  = 3
)

// Memcpy3D is CUDA_MEMCPY3D_v2.
type Memcpy3D struct {
	SrcXInBytes, SrcY, SrcZ uintptr
	SrcLOD                  uintptr
	SrcMemoryType           uint32
	_                       uint32
	SrcHost                 uintptr
	SrcDevice               DevicePtr
	SrcArray                uintptr
	reserved0               uintptr
	SrcPitch, SrcHeight     uintptr

	DstXInBytes, DstY, DstZ uintptr
	DstLOD                  uintptr
	DstMemoryType           uint32
	_                       uint32
	DstHost                 uintptr
	DstDevice               DevicePtr
	DstArray                uintptr
	reserved1               uintptr
	DstPitch, DstHeight     uintptr

	WidthInBytes, Height, Depth uintptr
}

// SetSrcHost makes the program's memory mem the source.
func (c *Memcpy3D) SetSrcHost(mem []byte) { c.SrcMemoryType, c.SrcHost = MemoryHost, address(mem) }

// SetDstHost makes the program's memory mem the destination.
func (c *Memcpy3D) SetDstHost(mem []byte) { c.DstMemoryType, c.DstHost = MemoryHost, address(mem) }
