package nvidia

import "vgpud/gpu/nvidia/cuda"

// Driver is the part of the CUDA driver that this package uses. A [cuda.Library] implements it, and
// so does the software driver of package cudatest. Its methods are the library's.
type Driver interface {
	deviceDriver
	memoryDriver
	moduleDriver
	streamDriver
	textureDriver
}

type deviceDriver interface {
	Init() error
	DriverGetVersion() (int, error)
	DeviceGetCount() (int, error)
	DeviceGet(i int) (cuda.Device, error)
	DeviceGetName(d cuda.Device) (string, error)
	DeviceGetUUID(d cuda.Device) ([16]byte, error)
	DeviceGetPCIBusID(d cuda.Device) (string, error)
	DeviceTotalMem(d cuda.Device) (uint64, error)
	DeviceGetAttribute(d cuda.Device, a cuda.Attribute) (int, error)
	CtxCreate(flags uint32, d cuda.Device) (cuda.Context, error)
	CtxDestroy(c cuda.Context) error
	CtxSetCurrent(c cuda.Context) error
	CtxGetLimit(limit int) (uint64, error)
	CtxSetLimit(limit int, value uint64) error
}

type memoryDriver interface {
	MemGetInfo() (free, total uint64, err error)
	MemAlloc(n uint64) (cuda.DevicePtr, error)
	MemFree(p cuda.DevicePtr) error
	MemAllocAsync(n uint64, s cuda.Stream) (cuda.DevicePtr, error)
	MemFreeAsync(p cuda.DevicePtr, s cuda.Stream) error
	DeviceGetDefaultMemPool(d cuda.Device) (cuda.MemPool, error)
	MemPoolSetAttribute(p cuda.MemPool, a cuda.PoolAttribute, value int) error
	MemPoolTrimTo(p cuda.MemPool, keep uint64) error
	MemGetAllocationGranularity(d cuda.Device) (uint64, error)
	MemAddressReserve(n, align uint64, hint cuda.DevicePtr) (cuda.DevicePtr, error)
	MemAddressFree(p cuda.DevicePtr, n uint64) error
	MemCreate(n uint64, d cuda.Device) (cuda.MemHandle, error)
	MemRelease(h cuda.MemHandle) error
	MemMap(p cuda.DevicePtr, n uint64, h cuda.MemHandle) error
	MemUnmap(p cuda.DevicePtr, n uint64) error
	MemSetAccess(p cuda.DevicePtr, n uint64, d cuda.Device) error
	MemHostRegister(mem []byte, flags uint32) error
	MemHostUnregister(mem []byte) error
	MemcpyHtoDAsync(dst cuda.DevicePtr, src []byte, s cuda.Stream) error
	MemcpyDtoHAsync(dst []byte, src cuda.DevicePtr, s cuda.Stream) error
	MemcpyDtoDAsync(dst, src cuda.DevicePtr, n uint64, s cuda.Stream) error
	Memcpy3DAsync(c *cuda.Memcpy3D, s cuda.Stream) error
	MemsetAsync(dst cuda.DevicePtr, value uint32, width int, n uint64, s cuda.Stream) error
	Memset2DAsync(dst cuda.DevicePtr, pitch uint64, value uint32, width int, n, rows uint64, s cuda.Stream) error
}

type moduleDriver interface {
	ModuleLoadData(image []byte) (m cuda.Module, log string, err error)
	ModuleUnload(m cuda.Module) error
	ModuleGetFunction(m cuda.Module, name string) (cuda.Function, error)
	ModuleGetGlobal(m cuda.Module, name string) (p cuda.DevicePtr, size uint64, err error)
	ModuleEnumerateFunctions(m cuda.Module) ([]cuda.Function, error)
	FuncGetAttribute(f cuda.Function, a cuda.FunctionAttribute) (int, error)
	FuncSetAttribute(f cuda.Function, a cuda.FunctionAttribute, value int) error
	FuncGetParamInfo(f cuda.Function, i int) (offset, size uint64, err error)
	OccupancyMaxActiveBlocksPerMultiprocessor(f cuda.Function, threads int, shared uint64) (int, error)
	LaunchKernel(f cuda.Function, grid, block [3]uint32, shared uint32, s cuda.Stream, a *cuda.Args, n int) error
}

type streamDriver interface {
	StreamCreate(flags uint32, priority int) (cuda.Stream, error)
	StreamDestroy(s cuda.Stream) error
	StreamSynchronize(s cuda.Stream) error
	StreamWaitEvent(s cuda.Stream, e cuda.Event) error
	StreamWriteValue64(s cuda.Stream, at cuda.DevicePtr, value uint64) error
	EventCreate(flags uint32) (cuda.Event, error)
	EventDestroy(e cuda.Event) error
	EventRecord(e cuda.Event, s cuda.Stream) error
	EventQuery(e cuda.Event) (bool, error)
	EventSynchronize(e cuda.Event) error
	EventElapsedTime(from, to cuda.Event) (float32, error)
}

type textureDriver interface {
	ArrayCreate(d *cuda.Array3D) (cuda.Array, error)
	ArrayDestroy(a cuda.Array) error
	TexObjectCreate(r *cuda.ResourceDesc, t *cuda.TextureDesc) (uint64, error)
	TexObjectDestroy(t uint64) error
	SurfObjectCreate(r *cuda.ResourceDesc) (uint64, error)
	SurfObjectDestroy(s uint64) error
	ModuleReference(m cuda.Module, name string) (surface bool, err error)
	BindTexture(m cuda.Module, name string, r *cuda.ResourceDesc, t *cuda.TextureDesc) error
	BindSurface(m cuda.Module, name string, a cuda.Array) error
}

var _ Driver = (*cuda.Library)(nil)
