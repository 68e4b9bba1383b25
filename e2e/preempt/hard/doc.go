// Package hard has kernels that are hard to make preemptible: some written by hand
// ([Tricks]), and any number of generated ones ([Generate]). Tests run them in all
// their forms on the soft GPU, gpu/check.sh of the package above on a real one.
package hard
