package main

// mayFallBack are tests that name devices which don't exist, and expect that the host runs these
// regions. They run without OMP_TARGET_OFFLOAD=MANDATORY.
var mayFallBack = map[string]bool{
	"libgomp.c/examples-4/device-2.c":         true,
	"libgomp.fortran/examples-4/device-2.f90": true,
}

// runNoKernel are tests with device code that main does not run: they only map data.
var runNoKernel = map[string]bool{
	"libgomp.c-c++-common/unmap-infinity-2.c": true,
	"correctness/async_copy_chain.cpp":        true, // copies between buffers alone
}
