// Package workload is the work of guests in demos, tests and measurements: cases of the corpus on a
// virtual GPU, repeated, with every result checked.
//
// A [Plan] describes the work and the device; [Run] does the work until its context ends and writes
// [Report]s. Both are JSON, so that a guest can be a process beside the device's vfio-user socket
// or one inside a VM. A [Load] is one case in GPU memory.
//
// The package runs in guests: it imports nothing of the host.
package workload
