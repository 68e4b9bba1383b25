// Package corpus is the workload corpus: kernels of our own in CUDA C (src), the PTX that clang
// makes of them (ptx), and for each a reference in Go that computes the expected results.
//
// A [Kernel] stands for one source file. [Kernel.Case] returns a [Case]: inputs made from a seed,
// the launches to perform in order, and the contents that every buffer must have afterwards. The
// program that runs a case (the soft GPU's tests, the demo, a guest) allocates its buffers,
// performs its steps and passes the results to [Case.Check]. The package itself runs nothing and
// imports nothing but the standard library. It has no state and no locks.
//
// # Exactness
//
// The sources are compiled with -ffp-contract=off: every multiplication and addition is rounded
// separately, and a fused multiply-add appears only where the source has one. So PTX defines each
// result bit for bit. The references compute the same, and round every float32 and float64 product
// explicitly because Go may otherwise fuse it. A reference has a [Tolerance] only if the PTX uses
// an .approx instruction, whose last bits differ between GPUs; the tolerance names the instruction.
//
// No result depends on the order of blocks or warps: floating-point sums have a fixed order, and
// atomics are used on integers.
//
// The references were compared with a real GPU at every size; see README.md.
package corpus
