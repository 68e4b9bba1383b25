package arith

import "math/bits"

// The extended-precision instructions pass a carry (or borrow) of 0 or 1 through CF of the
// condition code. An instruction without .cc drops the carry out; one without c in its name has a
// carry in of 0.

// AddC32 is add.cc, addc and addc.cc on 32 bits.
func AddC32(a, b, carry uint32) (sum, out uint32) { return bits.Add32(a, b, carry) }

// AddC64 is add.cc, addc and addc.cc on 64 bits.
func AddC64(a, b, carry uint64) (sum, out uint64) { return bits.Add64(a, b, carry) }

// SubC32 is sub.cc, subc and subc.cc on 32 bits; borrow is CF.
func SubC32(a, b, borrow uint32) (diff, out uint32) { return bits.Sub32(a, b, borrow) }

// SubC64 is sub.cc, subc and subc.cc on 64 bits; borrow is CF.
func SubC64(a, b, borrow uint64) (diff, out uint64) { return bits.Sub64(a, b, borrow) }
