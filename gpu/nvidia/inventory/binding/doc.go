// Package binding calls NVIDIA's management library (NVML). It needs cgo, and libnvidia-ml.so.1 at
// run time. Open returns an error if either is missing. Only the program vgpu-nvml may import it.
package binding
