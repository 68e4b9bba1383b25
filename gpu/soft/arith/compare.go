package arith

// Float is the floating-point types that Go has.
type Float interface{ ~float32 | ~float64 }

// Cmp is a comparison of set, setp and slct.
type Cmp uint8

// Comparisons of PTX. Lo, ls, hi and hs are lt, le, gt and ge of unsigned integers, and have no values of their own.
const (
	CmpEq Cmp = iota
	CmpNe
	CmpLt
	CmpLe
	CmpGt
	CmpGe
	CmpEqu // the same, and also true when an operand is NaN
	CmpNeu
	CmpLtu
	CmpLeu
	CmpGtu
	CmpGeu
	CmpNum // both are numbers
	CmpNan // one is NaN
)

// Compare is the relation c between a and b; for half-precision floats, widen them first.
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

// Ne is setp.ne of floats: false when an operand is NaN, unlike Go's !=, which is setp.neu.
func Ne[T Float](a, b T) bool { return a < b || a > b }

// Equ is setp.equ: true when an operand is NaN.
func Equ[T Float](a, b T) bool { return !(a < b || a > b) }

// Ltu is setp.ltu: true when an operand is NaN.
func Ltu[T Float](a, b T) bool { return !(a >= b) }

// Leu is setp.leu: true when an operand is NaN.
func Leu[T Float](a, b T) bool { return !(a > b) }

// Gtu is setp.gtu: true when an operand is NaN.
func Gtu[T Float](a, b T) bool { return !(a <= b) }

// Geu is setp.geu: true when an operand is NaN.
func Geu[T Float](a, b T) bool { return !(a < b) }

// Num is setp.num: neither operand is NaN.
func Num[T Float](a, b T) bool { return a == a && b == b }

// Nan is setp.nan: an operand is NaN.
func Nan[T Float](a, b T) bool { return a != a || b != b }
