// Package nvidia implements package gpu on an NVIDIA GPU through the driver's own library. One process has one [Context], a CUDA
// context, because a GPU fault ends every CUDA context of its process.
//
// A [Channel] is a CUDA stream. After each command the stream writes the command's number to a word in page-locked memory, so its
// progress is read from memory; long waits sleep in the driver, on an event. The same events, before and after a command, give its time
// on the GPU's clock ([gpuClock]). No command waits for the GPU here but Alloc's and LoadModule's calls into the driver: what has to
// come in order is put in order on the GPU.
//
// A running kernel can't be ended. One past its time limit poisons the context, and [Context.Hung] reports that only the end of the
// process stops it.
//
// Suspension of channels, time slices and the record of context switches are in handles.go, monitor.go and package rm: they use the
// kernel driver beneath CUDA.
package nvidia
