// Package cuda implements CUDA's driver API over the virtual GPU's driver. It is the Go part of
// libcuda.so.1; the C part (cmd/libcuda/front) passes every call to [Driver.Call] with its
// arguments as words, and calls_unsafe.go, which is generated, passes it on to the method of [Call]
// with the function's name. The methods' documentation is CUDA's.
//
// # A call
//
// A thread that is in this package gets no signals: handlers must not run on a goroutine's stack. So
// no call waits for long. One that would (for a kernel, for room in a ring) waits for [waitSlice],
// leaves what is to be done next in Call.resume and returns [again]; the C part lets the thread have
// its signals and calls [Driver.Again].
//
// # Objects
//
// Handles are numbers, not pointers: a wrong or outdated one is recognized (handle.go).
//
// A [Context] is a context of the driver and so a process of the host. Its streams share its
// channels (stream.go). Commands of all streams are enqueued under Context.mu, so that a command
// only ever waits for commands that were enqueued before it, and sharing a channel can't deadlock.
// Errors of commands are found when their completions are read, at the latest at the next
// synchronization (channel.go).
//
// # Locks
//
// In this order: Driver.mu, Context.mu, then those of package driver. Driver.mu is not held while a
// call waits.
package cuda
