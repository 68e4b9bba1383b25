// Package duration foresees how long kernels run and what it costs to evict them,
// from the host's own measurements: never from what a guest says.
//
// A [Predictor] is what policies' callers use; [Models] is FLEP's (§4.2): for each
// kernel a linear regression with L2 penalty over grid size, block size, input
// size and shared memory, trained on its newest hundred runs. What it does not
// know is zero, which policies take as unknown.
//
// Like the policies it is pure: no clock, no goroutine, no input or output.
package duration
