// Package simt executes PTX like a GPU's streaming multiprocessors: threads in warps of 32 lanes
// run in lockstep, diverge at branches and reconverge at the immediate post-dominator. It models
// the cost of kernels, but not how contexts share a GPU; package machine does.
//
// [Load] compiles a parsed module. It checks every instruction that a kernel can reach and binds it
// to one function over lane arrays, or refuses it by name. A [Launch] makes a [Grid]. The caller
// places its blocks on SMs one at a time with [Grid.StartBlock], and gives each [Block] a budget of
// instructions with [Block.Step]. So several grids can share a machine, a kernel that never ends
// can be suspended between any two steps, and kernels whose blocks wait for one another progress as
// long as the caller steps all resident blocks.
//
// The package is a pure function of its inputs, without goroutines, clock, locks or randomness. A
// [Grid], its blocks and their [Memory] must be used by one goroutine at a time. Grids with
// different memories are independent.
//
// # Threads of a warp
//
// A warp is a set of paths, each with a program counter and the lanes that are there (diverge.go).
// Reconvergence only affects speed: a path that spins, or waits at a barrier, yields to the lanes
// that it may be waiting for, as with independent thread scheduling since Volta.
//
// # Registers
//
// A warp's registers are arrays of 32 values (struct of lanes) in two banks, of 32 and 64 bits.
// Predicates are masks of lanes. Every function of a kernel's call tree has its own registers, so a
// call does not move a base; the registers of a function that can call itself are saved (call.go).
// Constants, kernel parameters and special registers are lane arrays as well, filled in when a warp
// starts, so that an operation has one form for all operands.
//
// # Adding an instruction
//
// opcodes.go maps each opcode to a handler. The handler consumes the modifiers that it knows
// ([mods]; others are refused), finds the registers of the operands, and adds operations. A lift
// (lift.go) turns an operation of package arith on values into one on warps; a frequent operation
// gets a loop of its own from internal/genops. An operation that may change the path of lanes, or
// make them wait, is added with run = 0 and sets the program counter itself; all others have run =
// 1. uses.go must list an instruction whose first operand is not its result. Then add its forms to
// forms_test.go and its results to ops_test.go.
//
// # Traces
//
// A grid with a [Trace] records what each of its warps executes, for models of a processor's timing
// (trace.go, watch.go). Its warps run a loop of their own, which looks at each instruction; the
// loop of other warps does not know of it.
//
// # Events
//
// [Block.Preempt] has a grid of one warp take the place of a warp between any two instructions, and
// execute in its registers (preempt.go). A warp that is to be preempted runs the loop of watched
// ones.
//
// # Addresses
//
// The generic address space has global memory where the context maps it, including constant
// variables, and windows for shared, local and parameter memory and for functions (memory.go).
package simt

//go:generate go run ./internal/genops
