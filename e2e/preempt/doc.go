// Package preempt tests the transformation to preemptible kernels: whatever is evicted at whatever
// time, the memory in the end is bit for bit what the original kernel leaves. It only has tests.
//
// A run (drive_test.go) takes one case of one kernel and replaces each of its launches by a
// transformed form with random parameters. It executes the form on the soft GPU's interpreter with
// randomly interleaved blocks (schedule_test.go), sets the evict word at random times, and
// relaunches like mediator/executor/preemption. One seed determines the whole run. A failed run
// prints the command that repeats it:
//
//	go test ./e2e/preempt -run 'TestSound/corpus/lookback/sm_90' -seed 1234
//
// More runs, different from those of every test:
//
//	go test ./e2e/preempt -run TestSound -runs 100000 -from 1
//
// Mutants test the harness itself: transformed kernels with one error each, which it must find
// (mutant_test.go).
//
// The soft GPU does not run what an assembler makes of PTX. So gpu/assemble.sh checks the forms
// with NVIDIA's assembler, gpu/check.sh and gpu/hard.sh run them on a real GPU with random
// evictions, and hardware_test.go evicts one through gpu/nvidia.
package preempt
