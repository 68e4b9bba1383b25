// Package simt executes PTX as a GPU's streaming multiprocessors do: threads
// in warps of 32 lanes that run in lockstep, diverge at branches and meet again
// at the immediate post-dominator.
//
// [Load] compiles a parsed module: every instruction that a kernel can reach is
// checked and bound to one function over lane arrays, or refused by name. A
// [Launch] makes a [Grid]; the caller places its blocks on SMs one at a time
// with [Grid.StartBlock] and gives each [Block] a budget of instructions with
// [Block.Step]. So several grids can share a machine, a kernel that never ends
// can be suspended between any two steps, and kernels whose blocks wait for one
// another make progress as long as the caller steps all resident blocks.
//
// The package is a pure function of what it is given: it has no goroutine, no
// clock and no randomness. A [Grid], its blocks and the [Memory] they use must
// be used by one goroutine at a time; grids with different memories are
// independent of one another.
//
// # Threads of a warp
//
// A warp is a set of paths, each a program counter with the lanes that are
// there (diverge.go). Reconvergence is only a matter of speed: a path that
// spins, or waits at a barrier, gives way to the lanes that it may be waiting
// for, as independent thread scheduling has it since Volta.
//
// # Registers
//
// A warp's registers are arrays of 32 values (struct of lanes) in two banks, of
// 32 and 64 bits; predicates are masks of lanes. Every function of a kernel's
// call tree has its own registers, so a call moves no base; a function that can
// call itself has them saved (call.go). Constants, kernel parameters and
// special registers are lane arrays as well, filled in when a warp starts, so
// that an operation has one form whatever its operands are.
//
// # Adding an instruction
//
// opcodes.go maps each opcode to a handler, which takes the modifiers it knows
// ([mods]; what is left over is refused), finds the registers of the operands and
// adds operations. An operation on values from package arith is made one on warps
// by a lift (lift.go); one that kernels use much gets a loop of its own from
// internal/genops. What may change where lanes go, or make them wait, is added
// with run = 0 and moves the program counter itself; everything else has run = 1.
// uses.go must know of an instruction whose first operand is not its result. Then
// add its forms to forms_test.go and what it computes to ops_test.go.
//
// # Addresses
//
// Generic addresses: global memory wherever the context has it mapped, constant
// variables among it, and windows for shared, local and parameter memory and
// for functions (memory.go).
package simt

//go:generate go run ./internal/genops
