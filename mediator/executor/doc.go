// Package executor carries out the commands of one guest context on a [gpu.Device]. It does not
// decide when a guest or a launch has its turn; that is the daemon's, on the control page (package
// ipc). It does not emulate the device that the guest sees (package vgpu).
//
// # Flow
//
// An [Executor] reads the context's submission rings in the memory shared with the guest, hands
// launches and copies to the GPU, and writes completions in order. [Executor.Step] does what can be
// done now and reports whether it did anything. [Executor.Run] is the loop around it: it polls
// while there is work, asks for a doorbell and sleeps while there is none, and obeys the suspend
// word. [Serve] is the process around that, `vgpud exec`.
//
// Where the daemon decides about guests a launch never waits for it. The executor stops fetching
// for a suspended guest; what it has put on the GPU runs on and is charged (LoGA §4.3). So all
// contexts of the guest together put little there ahead of time: see admission.go.
//
// Where the daemon decides about launches, each of them is a job (job.go, jobstate.go) that waits
// for its turn in a launch slot on the control page (turn.go). So is, under any policy, the launch
// of a preemptible kernel: the evict word in its control block tells it to leave (eviction.go), and
// what it leaves undone is launched again until all is done (relaunch.go, and package preemption,
// which plans the launches). The guest gets one completion.
//
// Everything in shared memory is copied before it is checked, and checked before it is used. A
// command that can't be carried out completes with a status and leaves its channel usable; a fault
// on the GPU poisons the context.
//
// # Locks
//
// An executor belongs to the goroutine of Step and Run. Other goroutines leave it requests, under
// the one mutex that it has.
package executor
