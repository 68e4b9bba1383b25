// Package nvidia implements package gpu for an NVIDIA GPU, through the driver's own library. One
// process has one [Context], a CUDA context of its own, because a GPU fault ends every CUDA context
// of the process in which it happens.
//
// A [Channel] is a CUDA stream. After every command the stream writes the command's number to a
// word in page-locked memory, so polling progress is a memory read. A caller that sleeps does so in
// the driver, on an event. The events before and after a command give its start and end on the
// GPU's clock ([gpuClock]). Queueing a command never waits for the GPU, except in the driver calls
// of Alloc and LoadModule: commands that depend on one another are ordered on the GPU.
//
// A kernel that is on the GPU can't be ended. A kernel past its time limit poisons the context, and
// [Context.Hung] signals that only the end of the process will stop it.
//
// The suspension of channels, time slices and the record of context switches bypass CUDA and use
// the kernel driver below it. They are in handles.go, monitor.go and package rm.
package nvidia
