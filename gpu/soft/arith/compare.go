package arith

// Float is a floating-point type of Go.
type Float interface{ ~float32 | ~float64 }

// Cmp is a comparison of set, setp and slct.
type Cmp uint8

// Comparisons of PTX. Lo, ls, hi and hs are lt, le, gt and ge of unsigned integers, and have no
// values of their own.
const (
	CmpEq Cmp = iota
	CmpNe
	CmpLt
	CmpLe
	CmpGt
	CmpGe
	CmpEqu // like CmpEq, and true if an operand is NaN; likewise below
	CmpNeu
	CmpLtu
	CmpLeu
	CmpGtu
	CmpGeu
	CmpNum // both operands are numbers
	CmpNan // an operand is NaN
)

// Compare reports whether the relation c holds between a and b. Widen half-precision floats first.
func Compare[T Integer | Float](c Cmp, a, b T) bool {
	unordered := a != a || b != b
	switch c {
	case CmpEq:
		return a == b
	case CmpNe:
		return a < b || a > b
	case CmpLt:
		return a < b
	case CmpLe:
		return a <= b
	case CmpGt:
		return a > b
	case CmpGe:
		return a >= b
	case CmpEqu:
		return a == b || unordered
	case CmpNeu:
		return a != b
	case CmpLtu:
		return a < b || unordered
	case CmpLeu:
		return a <= b || unordered
	case CmpGtu:
		return a > b || unordered
	case CmpGeu:
		return a >= b || unordered
	case CmpNum:
		return !unordered
	case CmpNan:
		return unordered
	}
	return false
}
