// Package corpus is the workload corpus: kernels of our own in CUDA C, the PTX
// that nvcc makes of them, and for each a reference in Go that says what they
// must compute.
//
// A [Kernel] names one source file. [Kernel.Case] makes a [Case] of it: inputs
// made from a seed, the launches to perform in order, and the contents every
// buffer must have afterwards. Whoever runs a case — the soft GPU's tests, the
// demo, a guest — allocates its buffers, performs its steps and hands the bytes
// back to [Case.Check]. The package itself runs nothing and imports nothing but
// the standard library.
//
// # Exactness
//
// The sources are compiled with -fmad=false: every multiply and add carries its
// own rounding, and a fused multiply-add appears only where the source writes
// one. PTX then defines each result bit for bit, and so do the references, with
// every float32 and float64 product rounded explicitly because Go may otherwise
// fuse it. A reference has a [Tolerance] only where the PTX uses an .approx
// instruction, whose last bits differ between GPUs; it states which.
//
// No result depends on the order in which blocks or warps happen to run:
// floating-point sums have a fixed order, and atomics are used on integers.
//
// The references were compared with a real GPU at every size; README.md says
// how to do so again.
package corpus
