// Package inventory reports the host's GPUs as seen by NVIDIA's driver: the list of them, their
// state, and their errors.
//
// The source is NVML, the driver's management library, which is C. It runs in a program of its own,
// vgpu-nvml, that writes a line of JSON for each message ([Serve]). Users of this package start
// that program and stay free of C ([Watch], [Once]). If the library hangs or crashes, or the
// program is missing, the only effect is an error. Only the program needs cgo; it calls the library
// through package binding.
//
// Nothing here ever changes a setting of a GPU.
//
// \terr := inventory.Watch(ctx, inventory.Options{Clock: clock.Real{}, Log: log}, func(m
// inventory.Message) { … })
//
// [Health] decides from the messages about one GPU whether it can still be used.
package inventory
