// Package callable makes functions of kernels, PTX to PTX, so that a kernel that is already running
// can execute them: a resident dispatcher that events wake (EDGE §III, with the table in software).
//
// [Make] keeps all that a module has and adds, for each entry that allows it, a function
//
//	.visible .func NAME__vgpud_call(.param .b64 arguments, .param .align 4 .b8 place[48])
//
// Each thread that calls it does what a thread of the kernel would do. Its arguments lie in global
// memory at the address given, as a launch has them (PTX's offsets; aligned as [Report] says). Its
// place is twelve words: %tid, %ntid, %ctaid and %nctaid, x, y and z each. [Prototype] is for calls
// through a pointer. ret and exit return to the caller. Device functions that read these registers
// are copied with the place as their first parameter.
//
// Duties of the caller:
//
//   - Lane l of a warp calls for threads whose number in their block (x first) is l modulo 32, and the threads of a warp of
//     the kernel are lanes of one warp, which call together. They may return one by one.
//   - If [Report.Block] is true, all threads of a block call for all threads of one, which has as many; and they
//     meet at a barrier after the call, before shared memory or barrier 0 is used for anything else.
//   - If [Report.Waits] is true, blocks of the kernel may wait for others: all blocks of a grid are called at once, or there is
//     one only.
//   - What wrote the arguments happens before the call, in the order of PTX's memory model (§8): they are read by plain loads.
//
// A kernel that can't be called is left out, with a [Reason] from a closed list. The package is not
// for dispatching, for kernels that launch others, or for making calls safe from a hostile kernel:
// that one may write wherever its context may.
//
// Flow: check.go and walk.go find what rules a call out; body.go makes the functions; registers.go
// estimates what they need. It runs nothing, and has no locks: a module is one goroutine's.
package callable
