// Package live runs workload W1 of CASE's evaluation (Chen, Porter, Pande: CASE, PPoPP 2022, table 2)
// with real processes on running GPUs: by single assignment, and in guests that float. It also measures
// what floating costs: how long a context takes to begin, and what a launch takes once it has.
//
// The jobs are those of the simulation in [vgpud/e2e/papers/case], scaled: w1.json has them as they are
// there, and a test beside the simulation compares it. Memory is allocated and copied, kernels compute
// and are checked, and host work is waited for. The half second that the simulation has for the start of
// a process is left out: here there are processes.
package live
