// Command case redoes the evaluation of CASE (Chen, Porter, Pande: CASE, PPoPP 2022) in simulated
// time: figures 5 to 9 and tables 3, 4 and 6 on two and four of the soft GPU's machines in co-run
// mode, with package fairshare/place as the scheduler. With -fit it finds the factors below.
//
// # Jobs
//
// A job is a process: host work, then a task (first allocation to last free) of copies, host work
// and launches, then host work. For the seven Rodinia benchmarks each phase is proportional to the
// size of the problem: one rule a benchmark, read off its source (see [rules]). One factor a
// benchmark on its host work, one for the older machine's host and one for all kernels are chosen so
// that single assignment alone gives the paper's table 7 and its utilisation of W7 ([fitted]). They
// were fixed before anything else was run.
//
// The mixes are the authors' own, as published with their code
// (github.com/rudyjantz/GPU-Sched, src/runtime/driver/workloads/ppopp21-volta), and for other seeds
// random ones of the same ratio. All jobs of a mix arrive at once, as §5.2 says.
//
// # What is not modelled
//
// Contention for the host's processors and for PCIe; MPS itself; the memory of contexts.
package main
