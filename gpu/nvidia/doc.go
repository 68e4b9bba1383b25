// Package nvidia is an NVIDIA GPU behind the interface of package gpu, through the
// driver's own library: one process has one [Context], a CUDA context of its own,
// because a GPU fault ends every CUDA context of the process that it happens in.
//
// A [Channel] is a CUDA stream. Behind every command the stream writes the
// command's number to a word in page-locked memory, so that to see how far it has
// come is to read memory; who sleeps does so in the driver, on an event. The same
// events, before and behind a command, give its time on the GPU's clock
// ([gpuClock]). Nothing here waits for the GPU on the way of a command but Alloc's
// and LoadModule's calls into the driver: what has to come in order is put in order
// on the GPU.
//
// A kernel that is on the GPU can't be ended. One past its time limit poisons the
// context, and [Context.Hung] says that only the end of the process will stop it.
//
// The channels' suspension, time slices and the record of context switches are in
// handles.go, monitor.go and package rm: they go past CUDA, to the driver beneath.
package nvidia
