package ptx

import (
	"math"
	"strconv"
)

// number is the value of a constant expression: PTX computes with 64-bit integers, signed unless a
// value needs the unsigned range or is marked for it, and with floating-point constants (§4.5).
type number struct {
	imm      ImmType
	unsigned bool
	bits     uint64
}

// signedInt returns v as a number.
func signedInt(v int64) number { return number{bits: uint64(v)} }

// truth returns the number that a comparison gives.
func truth(b bool) number {
	if b {
		return signedInt(1)
	}
	return signedInt(0)
}

// isZero reports whether n counts as false.
func (n number) isZero() bool { return n.bits == 0 || n.imm != ImmInt && n.float() == 0 }

// float returns n as a float64.
func (n number) float() float64 {
	switch {
	case n.imm == ImmF32:
		return float64(math.Float32frombits(uint32(n.bits)))
	case n.imm == ImmF64:
		return math.Float64frombits(n.bits)
	case n.unsigned:
		return float64(n.bits)
	}
	return float64(int64(n.bits))
}

// literal parses a numeric constant; it returns false for other text.
func literal(text string) (number, bool) {
	if n, ok := decimal(text); ok {
		return n, true
	}
	if len(text) > 2 && text[0] == '0' {
		switch digits := text[2:]; text[1] {
		case 'f', 'F':
			v, err := strconv.ParseUint(digits, 16, 32)
			return number{imm: ImmF32, bits: v}, err == nil && len(digits) == 8
		case 'd', 'D':
			v, err := strconv.ParseUint(digits, 16, 64)
			return number{imm: ImmF64, bits: v}, err == nil && len(digits) == 16
		case 'x', 'X':
			return integer(digits, 16)
		case 'b', 'B':
			return integer(digits, 2)
		}
	}
	for i := range len(text) {
		switch text[i] {
		case '.', 'e', 'E':
			return decimalFloat(text)
		}
	}
	if text[0] == '0' && len(text) > 1 {
		return integer(text[1:], 8)
	}
	return integer(text, 10)
}

// decimal parses the most common constants, plain decimal numbers of up to 18 digits.
func decimal(text string) (number, bool) {
	if len(text) > 18 || text[0] == '0' && len(text) > 1 {
		return number{}, false
	}
	var v uint64
	for i := range len(text) {
		d := text[i] - '0'
		if d > 9 {
			return number{}, false
		}
		v = v*10 + uint64(d)
	}
	return number{bits: v}, true
}

// integer parses the digits of an integer constant, with the suffix U if it has one. One that
// exceeds int64 is unsigned.
func integer(digits string, base int) (number, bool) {
	n := len(digits)
	unsigned := n > 0 && digits[n-1] == 'U'
	if unsigned {
		digits = digits[:n-1]
	}
	if digits == "" && base == 8 { // 0U
		return number{unsigned: true}, true
	}
	for _, c := range []byte(digits) {
		if c == '_' { // strconv accepts it only with base 0, but check anyway
			return number{}, false
		}
	}
	v, err := strconv.ParseUint(digits, base, 64)
	return number{bits: v, unsigned: unsigned || v > math.MaxInt64}, err == nil
}

// decimalFloat parses a floating-point constant in decimal notation, which is double precision.
func decimalFloat(text string) (number, bool) {
	for _, c := range []byte(text) {
		if class[c]&isDigit == 0 && c != '.' && c != 'e' && c != 'E' && c != '+' && c != '-' {
			return number{}, false // strconv accepts more forms than PTX
		}
	}
	v, err := strconv.ParseFloat(text, 64)
	return number{imm: ImmF64, bits: math.Float64bits(v)}, err == nil
}
