// Package binding calls NVIDIA's management library (NVML). It needs cgo, and at
// run time libnvidia-ml.so.1; without either, Open says so. Only the program
// vgpu-nvml is to import it.
package binding
