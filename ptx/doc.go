// Package ptx reads and writes PTX, the assembly language that CUDA compilers emit: a lexer, a
// parser, a syntax tree and a printer, for PTX ISA versions up to 9.0 (a newer one parses with a
// warning).
//
// Parse turns source text into a [Module]. Instructions are read by their form (opcode, modifiers,
// operands), not from a table of opcodes, so an unknown one still parses and prints; the packages
// above know what instructions mean. [Module.String] writes a module in one canonical layout, and
// parsing that text gives the same tree again, except for positions.
//
// [Resolve] binds names: it finds what every operand refers to through PTX's nested scopes, numbers
// each function's registers densely, and lists its instructions in order with blocks flattened,
// which is the form that an interpreter, or the control-flow analysis in package flow, starts from.
//
// The text comes from a guest and may be hostile. Everything that it can make the parser allocate,
// nest or repeat is bounded by [Options]; errors are of type [*Error] (several: [Errors]) and have
// line, column, what was found and what was expected. The tree holds substrings of the source
// instead of copies, so it keeps the source alive.
//
// Section numbers in comments refer to NVIDIA's "Parallel Thread Execution ISA", release 9.0.
package ptx
