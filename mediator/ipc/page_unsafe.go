package ipc

import "unsafe"

// The layout must be what PageBytes says: the subtractions fail to compile
// otherwise.
const (
	_ = uint(contextsBytes - unsafe.Sizeof(pageLayout{}))
	_ = uint(unsafe.Sizeof(pageLayout{}) - contextsBytes)
	_ = uint(stubAreaBytes - unsafe.Sizeof(stubArea{}))
	_ = uint(unsafe.Sizeof(stubArea{}) - stubAreaBytes)
	_ = uint(workAreaBytes - unsafe.Sizeof(workArea{}))
	_ = uint(unsafe.Sizeof(workArea{}) - workAreaBytes)

	_ = uint(32 - MaxContexts) // bits of pageLayout.disabled
)

// areaOf is where the stubs lie on a page that has them.
func areaOf(mem []byte) *stubArea {
	area := mem[contextsBytes : contextsBytes+stubAreaBytes]
	return (*stubArea)(unsafe.Pointer(unsafe.SliceData(area)))
}

// workOf is where the accounts of work lie on a page of PageBytes.
func workOf(mem []byte) *workArea {
	area := mem[contextsBytes+stubAreaBytes : PageBytes]
	return (*workArea)(unsafe.Pointer(unsafe.SliceData(area)))
}

// layoutOf is the page seen as its layout. A mapping is aligned to a memory
// page, and at least contextsBytes long.
func layoutOf(mem []byte) *pageLayout {
	return (*pageLayout)(unsafe.Pointer(unsafe.SliceData(mem)))
}
