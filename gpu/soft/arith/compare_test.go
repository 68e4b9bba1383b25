package arith

import (
	"math"
	"testing"
)

func TestCompare(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		a, b float64
		want string // which of eq ne lt le gt ge equ neu ltu leu gtu geu num nan hold
	}{
		{1, 1, "x..x.xx..x.xx."},
		{0, math.Copysign(0, -1), "x..x.xx..x.xx."},
		{1, 2, ".xxx...xxx..x."},
		{-inf, inf, ".xxx...xxx..x."},
		{2, 1, ".x..xx.x..xxx."},
		{nan, 1, "......xxxxxx.x"},
		{1, nan, "......xxxxxx.x"},
		{nan, nan, "......xxxxxx.x"},
	} {
		for cmp := CmpEq; cmp <= CmpNan; cmp++ {
			want := c.want[cmp] == 'x'
			if got := Compare(cmp, c.a, c.b); got != want {
				t.Errorf("comparison %d of %v and %v is %v", cmp, c.a, c.b, got)
			}
			if got := Compare(cmp, float32(c.a), float32(c.b)); got != want {
				t.Errorf("comparison %d of %v and %v in f32 is %v", cmp, c.a, c.b, got)
			}
			if got := F16.Compare(cmp, CvtF16F32(float32(c.a)), CvtF16F32(float32(c.b)), Mode{}); got != want {
				t.Errorf("comparison %d of %v and %v in f16 is %v", cmp, c.a, c.b, got)
			}
		}
	}
	if !Compare[uint32](CmpGt, 0xffffffff, 1) || Compare[int32](CmpGt, -1, 1) {
		t.Error("hi and gt differ in the sign alone")
	}
	if !BF16.Compare(CmpEq, 0x0001, 0x8001, Mode{FTZ: true}) {
		t.Error("subnormals are equal once flushed")
	}
}

func TestTestp(t *testing.T) {
	for _, c := range []struct {
		name string
		x    float64
		x32  float32
		want string // finite infinite number notanumber normal subnormal
	}{
		{"zero", 0, 0, "x.x.x."},
		{"−0", math.Copysign(0, -1), float32(math.Copysign(0, -1)), "x.x.x."},
		{"one", 1, 1, "x.x.x."},
		{"subnormal", -0x1p-1060, -0x1p-140, "x.x..x"},
		{"least normal", 0x1p-1022, 0x1p-126, "x.x.x."},
		{"infinity", math.Inf(-1), float32(math.Inf(-1)), ".xx..."},
		{"NaN", math.NaN(), nan32, "...x.."},
	} {
		for test := TestFinite; test <= TestSubnormal; test++ {
			want := c.want[test] == 'x'
			if got := TestpF64(test, c.x); got != want {
				t.Errorf("testp %d of %s in f64 is %v", test, c.name, got)
			}
			if got := TestpF32(test, c.x32); got != want {
				t.Errorf("testp %d of %s in f32 is %v", test, c.name, got)
			}
		}
	}
}
