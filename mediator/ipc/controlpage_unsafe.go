package ipc

import "unsafe"

// The layout must have the size that ControlPageBytes gives: otherwise the subtractions fail to
// compile.
const (
	_ = uint(contextsBytes - unsafe.Sizeof(pageLayout{}))
	_ = uint(unsafe.Sizeof(pageLayout{}) - contextsBytes)
	_ = uint(launchAreaBytes - unsafe.Sizeof(launchArea{}))
	_ = uint(unsafe.Sizeof(launchArea{}) - launchAreaBytes)
	_ = uint(workAreaBytes - unsafe.Sizeof(workArea{}))
	_ = uint(unsafe.Sizeof(workArea{}) - workAreaBytes)
	_ = uint(eventAreaBytes - unsafe.Sizeof(eventArea{}))
	_ = uint(unsafe.Sizeof(eventArea{}) - eventAreaBytes)

	_ = uint(32 - MaxContexts) // bits of pageLayout.disabled
)

// launchAreaOf returns the launch slots' part of a page that has it.
func launchAreaOf(mem []byte) *launchArea {
	area := mem[contextsBytes : contextsBytes+launchAreaBytes]
	return (*launchArea)(unsafe.Pointer(unsafe.SliceData(area)))
}

// workAreaOf returns the work logs' part of a page that has it.
func workAreaOf(mem []byte) *workArea {
	area := mem[contextsBytes+launchAreaBytes:][:workAreaBytes]
	return (*workArea)(unsafe.Pointer(unsafe.SliceData(area)))
}

// eventAreaOf returns the event kernels' part of a page of ControlPageBytes.
func eventAreaOf(mem []byte) *eventArea {
	area := mem[contextsBytes+launchAreaBytes+workAreaBytes : ControlPageBytes]
	return (*eventArea)(unsafe.Pointer(unsafe.SliceData(area)))
}

// layoutOf returns the page's first part. A mapping is aligned to a memory page, and at least
// contextsBytes long.
func layoutOf(mem []byte) *pageLayout {
	return (*pageLayout)(unsafe.Pointer(unsafe.SliceData(mem)))
}
