package arith

import "math"

// Test is a property that testp tests.
type Test uint8

// Properties of floats. PTX counts zeros as normal.
const (
	TestFinite Test = iota
	TestInfinite
	TestNumber
	TestNotANumber
	TestNormal
	TestSubnormal
)

// TestpF32 is testp.f32.
func TestpF32(test Test, x float32) bool {
	return testp(test, float64(x), x != 0 && math.Float32bits(x)&0x7f800000 == 0)
}

// TestpF64 is testp.f64.
func TestpF64(test Test, x float64) bool {
	return testp(test, x, x != 0 && math.Float64bits(x)&(0x7ff<<52) == 0)
}

func testp(test Test, x float64, subnormal bool) bool {
	switch test {
	case TestFinite:
		return finite(x)
	case TestInfinite:
		return math.IsInf(x, 0)
	case TestNumber:
		return x == x
	case TestNotANumber:
		return x != x
	case TestNormal:
		return finite(x) && !subnormal
	case TestSubnormal:
		return subnormal
	}
	return false
}
