// Package tenant is a program that uses a GPU for the measurements: a process with one context,
// either on a virtual GPU as a guest or on the bare GPU as a program of the host. It reads one
// [Request] a line from its standard input and writes one [Answer] a line.
//
// One interface covers both ways of reaching a GPU, so that a guest and its native baseline execute
// the same code here. Iterations set the lengths of kernels. Times are by the process's own clock
// or, where noted, by the GPU's.
package tenant
