// Package arith implements PTX's arithmetic on single values: what one lane of one instruction
// computes. It does not know registers or warps; package simt does.
//
// Every function is pure. Floats are passed as float32 and float64, half precision and the 8-bit
// formats as their raw bits (uint16, uint8), packed pairs as uint32, and integers as the Go type of
// their PTX type. A function is named after its instruction, and its doc comment begins with the
// PTX spelling. Modifiers that change a float's rounding are in a [Mode]. The common form (.rn, no
// .ftz, no .sat) has a function of its own, small enough to be inlined into a loop over lanes:
// [FmaF32] beside [FmaF32Mode].
//
// # Exact results
//
// Everything that PTX defines is computed bit for bit: the IEEE 754 operations in all four
// roundings, conversions, minima and maxima, integers, bits, video and packed operations.
// Single-precision operations are done in double precision rounded to odd (Boldo and Melquiond,
// "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008),
// after which the second rounding is correct. Double precision in directed roundings is done on
// integers.
//
// # Results that PTX leaves open
//
// Here this package follows NVIDIA's hardware, as far as its behaviour is public:
//
//   - A NaN result of single precision is 0x7fffffff, of f16, bf16 and their pairs 0x7fff. In
//     double precision the payload of the first NaN operand is kept, quieted; an invalid operation
//     gives 0xfff8000000000000.
//   - .ftz flushes a subnormal operand, and a result that is subnormal once rounded, to zero of the
//     same sign.
//   - .sat turns NaN and both zeros into +0.
//   - An integer divided by zero gives a quotient and a remainder with all bits set; the least
//     integer divided by −1 gives itself, remainder 0.
//
// # Approximate results
//
// The .approx instructions are computed in double precision, to 2^-35 or better, and rounded once.
// They are within 0.51 ulp of the true result, where PTX allows 1 to 2 ulp or the errors named at
// each function, with the special cases of PTX's tables. All machines give the same bits. The
// errors of a particular GPU are not reproduced, so a bit-for-bit comparison of .approx results
// with hardware shows differences.
package arith
