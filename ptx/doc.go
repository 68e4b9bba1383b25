// Package ptx reads and writes PTX, the assembly language that CUDA compilers emit: a lexer, a parser, a syntax
// tree and a printer, for PTX ISA versions up to 9.0 (a newer one parses with a warning).
//
// Parse turns source text into a [Module]. Instructions are read by their form (opcode, modifiers, operands) and not
// from a table of opcodes, so one that nobody has heard of still parses and prints; what an instruction means is for
// the packages above to know. [Print] writes a module back in one canonical layout, and parsing that text gives the
// same tree again, positions aside.
//
// [Resolve] binds names: it finds what every operand refers to through PTX's nested scopes, numbers each function's
// registers densely, and lists its instructions in order with blocks flattened, which is the form that an
// interpreter, or the control-flow analysis in package flow, starts from.
//
// The text is a guest's and therefore hostile. Everything it can make the parser allocate, nest or repeat is bounded
// by [Options]; errors are of type [*Error] (several: [Errors]) and carry line, column, what was found and what was
// expected. The tree keeps substrings of the source instead of copies, so it keeps the source alive.
//
// Section numbers in comments refer to NVIDIA's "Parallel Thread Execution ISA", release 9.0.
package ptx
