// Package batch runs a batch of jobs on several GPUs, as CASE's evaluation does (Chen, Porter, Pande:
// CASE, PPoPP 2022, §5): all arrive at once, and what counts is when each has ended.
//
// Each job is a process of the program, a guest of the running daemon, and does what package
// [vgpud/cmd/vgpud/workload] calls a job, with checked results. There are two ways to run them.
// [Single] is single assignment, the paper's SA: a job has a GPU for itself while its process lives.
// [Floating] starts all at once, each in a guest that floats, and the host chooses when each job's task
// has which GPU.
//
//	Run ─► create the guests ─► start the jobs ─► their reports ─► delete the guests
//
// The guests of both ways are there before the clock begins to run: one for each GPU for single
// assignment, one for each job for floating. The package starts no daemon and no GPU.
package batch
