// Package variables has a kernel in a module of its own use the variables of another module, which is
// loaded: PTX to PTX. A module that is made of a kernel's text would otherwise have variables of its own,
// which the host and the other kernels know nothing of.
//
// [Bind] returns a module with one function or kernel and what it calls, and without variables in
// global or constant memory. Where the original names one, the copy has the address that it has on the
// GPU, as a number of 64 bits. Shared and local variables stay: they are each launch's own. Initial
// values need nothing: they were filled in when the original was loaded, addresses of variables
// included.
//
// A variable in constant memory is read by its address in global memory (ld.const becomes ld.global, cvta.const
// becomes cvta.global): the copy has no constant bank with that variable in it. So its values come from global
// memory, and a kernel that stays on the GPU sees what was written to it meanwhile. This rests on:
//
//   - PTX ISA 9.0, §5.1.4 and §6.4.1.1: a generic address is one in global memory unless it falls into the
//     windows of the other spaces, so the address of a global variable is the same in both spaces.
//   - The driver writes a constant variable where cuModuleGetGlobal says, with the copies that it has for
//     global memory, and a kernel that is given that address reaches it there (N. Wilt, The CUDA
//     Handbook, §5.3.2). NVIDIA's manual does not promise it. It was not measured: gpu/nvidia's
//     TestHardwareEventVariables asks a GPU.
//
// An address in constant space means something else in the copy than in the original. So none may come
// from elsewhere, nor leave the function: constant.go follows each from where a variable is named to where
// it is read, and refuses what it can't follow. A kernel that can't be bound is refused with a [Reason]
// from a closed list.
//
// The package is not for linking (ptx/link), and knows no GPU: the caller asks its driver. It runs
// nothing, and has no locks: a module is one goroutine's.
//
// Flow: bind.go finds what is reached, check.go and constant.go what rules it out, write.go makes the
// copies.
package variables
