package cuda

import (
	"runtime"
	"unsafe"
)

// MemHandle is memory of a device without an address, a CUmemGenericAllocationHandle.
type MemHandle uint64

// Values of the structures below.
const (
	memAllocationPinned = 1
	memLocationDevice   = 1
	memAccessReadWrite  = 3
)

// memLocation is CUmemLocation.
type memLocation struct {
	kind int32
	id   int32
}

// memAllocationProp is CUmemAllocationProp.
type memAllocationProp struct {
	kind        int32
	handleTypes int32
	location    memLocation
	win32       uintptr
	flags       [8]byte
}

// memAccessDesc is CUmemAccessDesc.
type memAccessDesc struct {
	location memLocation
	flags    int32
}

// withProp calls f with the properties of a device's plain memory.
func withProp(d Device, f func(prop uintptr) error) error {
	p := &memAllocationProp{kind: memAllocationPinned, location: memLocation{memLocationDevice, int32(d)}}
	var pin runtime.Pinner
	pin.Pin(p)
	defer pin.Unpin()
	return f(uintptr(unsafe.Pointer(p)))
}

// MemGetAllocationGranularity returns what sizes and addresses of a device's memory are multiples
// of.
func (l *Library) MemGetAllocationGranularity(d Device) (uint64, error) {
	n, _, err := answers(func(s *scratch) error {
		return withProp(d, func(prop uintptr) error { return l.call(cuMemGetAllocationGranularity, s.at(0), prop, 0) })
	})
	return n, err
}

// MemAddressReserve reserves n bytes of the address space, at hint if that is free.
func (l *Library) MemAddressReserve(n, align uint64, hint DevicePtr) (DevicePtr, error) {
	p, _, err := answers(func(s *scratch) error {
		return l.call(cuMemAddressReserve, s.at(0), uintptr(n), uintptr(align), uintptr(hint), 0)
	})
	return DevicePtr(p), err
}

// MemAddressFree gives reserved addresses back. Nothing may be mapped there.
func (l *Library) MemAddressFree(p DevicePtr, n uint64) error {
	return l.call(cuMemAddressFree, uintptr(p), uintptr(n))
}

// MemCreate takes n bytes of a device's memory.
func (l *Library) MemCreate(n uint64, d Device) (MemHandle, error) {
	h, _, err := answers(func(s *scratch) error {
		return withProp(d, func(prop uintptr) error { return l.call(cuMemCreate, s.at(0), uintptr(n), prop, 0) })
	})
	return MemHandle(h), err
}

// MemRelease gives memory back, once it is mapped nowhere.
func (l *Library) MemRelease(h MemHandle) error { return l.call(cuMemRelease, uintptr(h)) }

// MemMap maps all n bytes of h at reserved addresses. They can be accessed after MemSetAccess.
func (l *Library) MemMap(p DevicePtr, n uint64, h MemHandle) error {
	return l.call(cuMemMap, uintptr(p), uintptr(n), 0, uintptr(h), 0)
}

// MemUnmap undoes MemMap. No command may use the memory any more.
func (l *Library) MemUnmap(p DevicePtr, n uint64) error {
	return l.call(cuMemUnmap, uintptr(p), uintptr(n))
}

// MemSetAccess lets a device load from and store to mapped memory.
func (l *Library) MemSetAccess(p DevicePtr, n uint64, d Device) error {
	a := &memAccessDesc{memLocation{memLocationDevice, int32(d)}, memAccessReadWrite}
	var pin runtime.Pinner
	pin.Pin(a)
	defer pin.Unpin()
	return l.call(cuMemSetAccess, uintptr(p), uintptr(n), uintptr(unsafe.Pointer(a)), 1)
}
