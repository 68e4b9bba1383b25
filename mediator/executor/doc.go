// Package executor carries out the commands of one guest context on a
// [gpu.Device].
//
// An [Executor] reads the context's submission rings in the memory it shares
// with the guest, hands launches and copies to the GPU, and writes completions
// in order. [Executor.Step] does what can be done now and says whether that was
// anything; [Executor.Run] is the loop around it that polls while there is work,
// asks for a doorbell and sleeps while there is none, and obeys the daemon's
// verdict. [Serve] is the process around that, `vgpud exec`.
//
// Where the daemon decides about guests a launch never waits for it. Suspended, a
// context stops being fetched; what it has put on the GPU runs on and is charged
// (LoGA §4.3). So little is put there ahead of time, by all contexts of the guest
// together: see admission.
//
// Where the daemon decides about launches, each of them is a job (job.go) that
// waits for its turn in a stub on the guest's page (turn.go). So is, under any
// policy, the launch of a preemptible kernel: it is told to leave by the evict word
// in its control block (evict.go), and what it leaves undone is launched again
// until all is done (preempt.go, and package relaunch, which decides what); the
// guest is answered once.
//
// Everything read from shared memory is copied before it is checked, and checked
// before it is used. A command that can't be carried out completes with a status
// and leaves its channel usable; a fault on the GPU poisons the context.
package executor
