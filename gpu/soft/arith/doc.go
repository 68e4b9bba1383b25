// Package arith does PTX's arithmetic on single values: what one lane of one instruction computes.
//
// Every function is pure. Floats travel as float32 and float64, half precision and the 8-bit formats as their raw bits
// (uint16, uint8), packed pairs as uint32, integers as the Go type of their PTX type. An instruction's modifiers that change
// a float's rounding are a [Mode]; the usual form (.rn, no .ftz, no .sat) has a function of its own, small enough to be
// inlined into a loop over lanes: [FmaF32] beside [FmaF32Mode].
//
// # What is exact
//
// Everything that PTX defines is computed bit for bit: the IEEE 754 operations in all four roundings, conversions, minima
// and maxima, integers, bits, video and packed operations. Single-precision work is done in double precision rounded to odd
// (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008), whose
// second rounding is then innocuous; double precision in directed roundings is done on integers.
//
// # What is chosen
//
// Where PTX leaves a result open, this package gives what NVIDIA's hardware gives, as far as that is public:
//
//   - A NaN result of single precision is 0x7fffffff, of f16, bf16 and their pairs 0x7fff. In double precision the payload
//     of the first NaN operand is kept, quieted; an invalid operation gives 0xfff8000000000000.
//   - .ftz flushes a subnormal operand, and a result that is subnormal once rounded, to zero of the same sign.
//   - .sat turns NaN and both zeros into +0.
//   - An integer divided by zero gives a quotient and a remainder with all bits set; the least integer divided by −1
//     gives itself, remainder 0.
//
// # What is approximate
//
// The .approx instructions are computed in double precision, to 2^-35 or better, and rounded once: within 0.51 ulp of the true result,
// where PTX allows 1 to 2 ulp or the errors named at each function, with the special cases of PTX's tables. All machines
// give the same bits. A particular GPU's own errors are not imitated: a program that compares .approx results bit for bit
// with hardware will see differences.
package arith
