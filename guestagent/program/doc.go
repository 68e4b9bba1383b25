// Package program reads a tenant's program file and tells what it asks of CUDA: which libraries it
// loads, whether it has the shared runtime or NVIDIA's static one, whether it will run on a virtual
// GPU and why not, and which of its kernels become preemptible. Nothing is run or loaded.
//
// [Inspect] reads the ELF file (elf.go), finds what shows the use of CUDA (libraries.go, runtime.go),
// finds device code (images.go) and passes judgement (verdict.go). The file may be hostile:
// everything is bounded by [Options], and what can't be read is left out or reported.
package program
