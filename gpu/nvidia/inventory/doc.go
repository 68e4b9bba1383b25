// Package inventory is what NVIDIA's driver says of the host's GPUs: which there
// are, how they are, and what went wrong on them.
//
// It is said by NVML, the driver's management library, which is C. So it runs in
// a program of its own, vgpu-nvml, that writes a line of JSON for each thing it
// has to say ([Serve]); whoever wants to know starts it and stays free of C
// ([Watch], [Once]). When the library hangs or crashes, or the program is missing,
// an error says so and nothing else happens. Only the program needs cgo; package
// binding is what it calls the library by.
//
// Nothing here ever changes a setting of a GPU.
//
//	err := inventory.Watch(ctx, inventory.Options{Clock: clock.Real{}, Log: log}, func(m inventory.Message) { … })
//
// [Health] makes of what was said of one GPU whether that can still be used.
package inventory
