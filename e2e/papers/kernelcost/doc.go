// Package kernelcost runs the corpus' kernels on the soft GPU's interpreter, outside of any device,
// and says what they cost by its cost model: for figures in simulated time, which need to know how
// long kernels are and not what they compute.
package kernelcost
