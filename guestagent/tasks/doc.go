// Package tasks is the lazy runtime of CASE §3.1.2. Where a virtual GPU floats, a program's GPU task
// begins as late as it can: what the program does with GPU memory before its first launch is
// recorded, so that the host is asked for a GPU only when one is needed, and for no more memory than
// that. CASE inserts its probes into host code with LLVM; a program that exists only as machine code
// has none to transform, so the record is made while it runs.
//
// # A record
//
// A [Record] holds the objects that the program allocated and what is in them: bytes that were copied
// in, patterns, and zeros. Each call changes it at once. That is an order in which the commands of all
// streams may run, whatever events the streams wait for, because each call comes after those that it
// waits for. Overwritten and freed contents are forgotten, and a copy back is answered from the
// record.
//
// An object has an address that holds on every GPU: programs compute with addresses and store them
// in GPU memory. Such addresses are multiples of a grain, which is 2 MiB on NVIDIA's GPUs. Smaller
// objects share a [Region] of that size.
//
// A call that a record can't hold returns [ErrBegin]. The caller then begins the task, replays the
// record ([Replay]) and carries out the call as usual. From there on nothing is recorded and no call
// costs more than without this package, except that [Record.Free] says when a region is empty.
//
// # What a task asks for
//
// A record can't see what the program allocates later. So the most that a run had at a time is kept,
// and the next run of the same program, with the same arguments and the same record, asks for that
// ([Request]). A program that was not seen yet asks for all that its guest may have: with less it could
// fail for memory that others took.
//
// Records are pure. They have no locks: a record is used by one goroutine at a time.
package tasks
