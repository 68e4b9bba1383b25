// Package workload is what a guest does in demos, tests and measurements: cases of
// the corpus on a virtual GPU, again and again, with every result checked.
//
// A [Plan] says what to do, on which device; [Run] does it until it is told to
// end, and tells of it in [Report]s. Both are JSON, so that a guest can be a
// process beside the device's vfio-user socket as well as one inside a VM. A
// [Load] is one case in GPU memory.
//
// A guest carries this: nothing of the host's is imported.
package workload
