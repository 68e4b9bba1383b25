// Package hard has kernels that are hard to make preemptible: some written by hand ([Tricks]), and
// any number of generated ones ([Generate]). The tests of e2e/preempt run them in all their forms
// on the soft GPU, and gpu/hard.sh there on a real one.
package hard
