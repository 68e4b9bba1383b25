// Package duration predicts how long kernels run and what it costs to evict them, from the host's
// own measurements: never from what a guest says.
//
// Callers of policies use a [Predictor]. [Models] is FLEP's (§4.2): for each kernel a linear
// regression with L2 penalty over grid size, block size, input size and shared memory, trained on
// its newest hundred runs. An unknown result is zero, as policies expect.
//
// Like the policies it is pure: no clock, no goroutine, no I/O, no locks.
package duration
