// Package host starts the whole of vgpud for tests and benchmarks: a soft GPU,
// the daemon and guests' virtual GPUs, each a process of the program as built
// from this tree, in a directory of its own. Nothing of it is simulated but the
// GPU.
package host
