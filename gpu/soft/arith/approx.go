package arith

import "math"

// The approximations compute in float64 and round once to f32: the error is below 0.51 ulp. With
// ftz, subnormal operands and results become zeros.

// approx32 computes f of a as an .approx instruction.
func approx32(a float32, ftz bool, f func(float64) float64) float32 {
	if !ftz {
		return CanonF32(float32(f(float64(a))))
	}
	return CanonF32(FlushF32(float32(f(float64(FlushF32(a))))))
}

// RcpApproxF32 is rcp.approx.f32; PTX allows 1 ulp.
func RcpApproxF32(a float32, ftz bool) float32 {
	if ftz {
		return CanonF32(FlushF32(1 / FlushF32(a)))
	}
	return RcpF32(a)
}

// SqrtApproxF32 is sqrt.approx.f32; PTX allows a relative error of 2^-23.
func SqrtApproxF32(a float32, ftz bool) float32 { return approx32(a, ftz, math.Sqrt) }

// RsqrtApproxF32 is rsqrt.approx.f32; PTX allows a relative error of 2^-22.9. Of −0 it is −∞.
func RsqrtApproxF32(a float32, ftz bool) float32 {
	return approx32(a, ftz, rsqrt)
}

// rsqrt is 1/√x.
func rsqrt(x float64) float64 { return 1 / math.Sqrt(x) }

// DivApproxF32 is div.approx.f32, which is a·(1/b): PTX allows 2 ulp where 2^-126 ≤ |b| ≤ 2^126;
// above, where 1/b is subnormal, the result is a zero, or NaN if a is infinite.
func DivApproxF32(a, b float32, ftz bool) float32 {
	if ftz {
		a, b = FlushF32(a), FlushF32(b)
	}
	if m := math.Abs(float64(b)); m > 0x1p126 && m <= math.MaxFloat32 {
		return CanonF32(a * CopysignF32(b, 0)) // ∞ times zero is NaN, as PTX wants
	}
	r := DivF32(a, b)
	if ftz {
		r = FlushF32(r)
	}
	return r
}

// DivFullF32 is div.full.f32; PTX allows 2 ulp over the whole range.
func DivFullF32(a, b float32, ftz bool) float32 { return DivF32Mode(a, b, Mode{FTZ: ftz}) }

// Ex2ApproxF32 is ex2.approx.f32; PTX allows 2 ulp.
func Ex2ApproxF32(a float32, ftz bool) float32 { return approx32(a, ftz, exp2) }

// Lg2ApproxF32 is lg2.approx.f32; PTX allows an absolute error of 2^-22 within (0.5, 2), a relative
// one of 2^-22 outside.
func Lg2ApproxF32(a float32, ftz bool) float32 { return approx32(a, ftz, log2) }

// SinApproxF32 is sin.approx.f32; PTX allows an absolute error of 2^-20.5 within ±2π, 2^-14.7
// within ±100π.
func SinApproxF32(a float32, ftz bool) float32 { return approx32(a, ftz, sin) }

// CosApproxF32 is cos.approx.f32; PTX allows what it allows SinApproxF32.
func CosApproxF32(a float32, ftz bool) float32 { return approx32(a, ftz, cos) }

// TanhApproxF32 is tanh.approx.f32; PTX allows a relative error of 2^-11. It has no .ftz, and
// passes subnormals through.
func TanhApproxF32(a float32) float32 { return approx32(a, false, math.Tanh) }

// RsqrtApproxF64 is rsqrt.approx.f64.
func RsqrtApproxF64(a float64) float64 {
	if r := rsqrt(a); r == r {
		return r
	}
	return nan64(a, 0, 0)
}

// RcpGrossF64 is rcp.approx.ftz.f64: it uses the upper word of a, and the lower word of the result
// is zero.
func RcpGrossF64(a float64) float64 { return gross64(a, func(x float64) float64 { return 1 / x }) }

// RsqrtGrossF64 is rsqrt.approx.ftz.f64: it uses the upper word of a, and the lower word of the
// result is zero.
func RsqrtGrossF64(a float64) float64 { return gross64(a, rsqrt) }

// gross64 computes f in PTX's 1.11.20 format: the upper words of doubles, rounded to nearest,
// subnormals flushed, one NaN.
func gross64(a float64, f func(float64) float64) float64 {
	const upper = 0xffffffff << 32
	r := f(flush64(math.Float64frombits(math.Float64bits(a) & upper)))
	if a != a || r != r {
		return math.Float64frombits(0x7fffffff << 32)
	}
	if finite(r) {
		r = math.Float64frombits((math.Float64bits(r) + 1<<31) & upper)
	}
	return flush64(r)
}

// flush64 replaces a subnormal by a zero of its sign.
func flush64(x float64) float64 {
	if b := math.Float64bits(x); b&(0x7ff<<52) == 0 {
		return math.Float64frombits(b & (1 << 63))
	}
	return x
}
