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
// A launch never waits for the daemon. Suspended, a context stops being fetched;
// what it has put on the GPU runs on and is charged (LoGA §4.3). So little is put
// there ahead of time: see aheadLaunches and aheadWork.
//
// Everything read from shared memory is copied before it is checked, and checked
// before it is used. A command that can't be carried out completes with a status
// and leaves its channel usable; a fault on the GPU poisons the context.
package executor
