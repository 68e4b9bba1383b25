// Command libcuda is the Go part of libcuda.so.1, a library named libvgpucuda.so that the C part in
// front loads at cuInit. It only translates: package guestagent/cuda implements CUDA's driver API.
package main

/*
#include "front/part.h"

static void vgpu_print(struct vgpu_hooks *h, const char *text, size_t bytes, int error) { h->print(text, bytes, error); }
static size_t vgpu_shared_bytes(void *f, int threads) { return ((size_t (*)(int))f)(threads); }
static int vgpu_start_callbacks(struct vgpu_hooks *h) { return h->start_callbacks(); }
*/
import "C"

import (
	"errors"
	"sync/atomic"
	"unsafe"

	"vgpud/guestagent/cuda"
)

//go:generate go run ./api/generate

// library is the process's driver. vgpuInit sets it before any other call.
var library *cuda.Driver

// hooks calls the C part.
type hooks struct{ c *C.struct_vgpu_hooks }

func (h hooks) Print(text []byte, failure bool) {
	if len(text) == 0 {
		return
	}
	to := C.int(0)
	if failure {
		to = 1
	}
	C.vgpu_print(h.c, (*C.char)(unsafe.Pointer(&text[0])), C.size_t(len(text)), to)
}

func (h hooks) StartCallbacks() error {
	if C.vgpu_start_callbacks(h.c) != 0 {
		return errors.New("no thread for callbacks")
	}
	return nil
}

func (h hooks) SharedBytes(function cuda.Pointer, threads int) uint64 {
	return uint64(C.vgpu_shared_bytes(function, C.int(threads)))
}

func (h hooks) Missed() []uint32 {
	counts := unsafe.Slice((*uint32)(h.c.missed), len(cuda.Functions))
	now := make([]uint32, len(counts))
	for i := range counts {
		now[i] = atomic.LoadUint32(&counts[i]) // other threads count
	}
	return now
}

//export vgpuInit
func vgpuInit(h *C.struct_vgpu_hooks) C.uint32_t {
	if library == nil {
		library = cuda.New(cuda.Options{Hooks: hooks{h}, Secure: h.secure != 0})
	}
	return C.uint32_t(library.Init())
}

//export vgpuCall
func vgpuCall(function C.uint32_t, t *C.struct_vgpu_thread, words *C.uint64_t) C.uint32_t {
	return C.uint32_t(library.Call(uint32(function), (*cuda.Thread)(unsafe.Pointer(t)), unsafe.Pointer(words)))
}

//export vgpuAgain
func vgpuAgain(t *C.struct_vgpu_thread) C.uint32_t {
	return C.uint32_t(library.Again((*cuda.Thread)(unsafe.Pointer(t))))
}

//export vgpuNextCallback
func vgpuNextCallback(c *C.struct_vgpu_callback) C.uint32_t {
	if !library.NextCallback((*cuda.Callback)(unsafe.Pointer(c))) {
		return 0
	}
	return 1
}

//export vgpuExit
func vgpuExit() { library.Exit() }

func main() {}
