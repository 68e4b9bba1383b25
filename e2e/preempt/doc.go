// Package preempt holds the transformation to preemptible kernels to its promise:
// whatever is evicted, whenever, the memory in the end is what the original kernel
// leaves, bit for bit. It has tests only.
//
// A run (drive_test.go) takes one case of one kernel, replaces each of its launches
// by a transformed form with random parameters, executes that on the soft GPU's
// interpreter with blocks interleaved at random (schedule_test.go), sets the evict
// word at random moments, and launches again as mediator/executor/preemption says.
// Everything about a run follows from one number. A run that fails prints the
// command that repeats it:
//
//	go test ./e2e/preempt -run 'TestSound/corpus/lookback/sm_90' -seed 1234
//
// More runs, other than the ones that every test does:
//
//	go test ./e2e/preempt -run TestSound -runs 100000 -from 1
//
// The harness itself is held to account by mutants: transformed kernels with one
// thing wrong, each of which it must find (mutant_test.go).
//
// The soft GPU is not what an assembler makes of PTX: gpu/assemble.sh holds the forms
// to NVIDIA's assembler, gpu/check.sh and gpu/hard.sh to a real GPU, with evictions at
// random there too, and hardware_test.go has gpu/nvidia carry one out.
package preempt
