// Package host starts all of vgpud for tests and benchmarks: a soft GPU, the daemon and guests'
// virtual GPUs, each a process of the program built from this tree, in a directory of its own. Only
// the GPU is simulated.
package host
