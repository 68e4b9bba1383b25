// Package tenant is a program that uses a GPU as the measurements want it: a process
// with one context, on a virtual GPU as a guest has it or on the bare GPU as a program
// of the host has it. It does what it is asked over its standard input, one [Request]
// a line, and says what came of it, one [Answer] a line.
//
// Both ways of reaching a GPU are behind one interface, so that a guest and its native
// baseline execute the same code here. Lengths of kernels are set by iterations, times
// are of the process's own clock and, where it says so, the GPU's.
package tenant
