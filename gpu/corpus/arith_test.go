package corpus

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// TestFma32RoundsOnce compares with exact arithmetic, on bit patterns that cancel, tie and
// underflow.
func TestFma32RoundsOnce(t *testing.T) {
	check := func(a, b, c float32) {
		exact := new(big.Float).SetPrec(1000).Mul(big.NewFloat(float64(a)), big.NewFloat(float64(b)))
		exact.Add(exact, big.NewFloat(float64(c)))
		want, _ := exact.Float32()
		if got := fma32(a, b, c); got != want {
			t.Fatalf("fma32(%g, %g, %g) = %g, want %g", a, b, c, got, want)
		}
	}
	check(1+0x1p-12, 1+0x1p-12, 0x1p-80) // here a float32 of a float64 fma is wrong
	check(1+0x1p-12, 1+0x1p-12, -0x1p-80)
	rng := rand.New(rand.NewPCG(1, 2))
	finite := func() float32 {
		for {
			f := math.Float32frombits(rng.Uint32())
			if !math.IsNaN(float64(f)) && !math.IsInf(float64(f), 0) {
				return f
			}
		}
	}
	for range 20_000 {
		check(finite(), finite(), finite())
		a, b := finite(), finite()
		near := float32(float64(a) * float64(b)) // cancels or nearly ties
		if !math.IsInf(float64(near), 0) {
			check(a, b, -near)
			check(a, b, near*float32(math.Ldexp(1, -rng.IntN(60))))
		}
		small := func() float32 { return float32(1+rng.IntN(1<<12)) * 0x1p-12 }
		check(small(), small(), float32(math.Ldexp(1, -rng.IntN(100))))
	}
}

func TestFloat16RoundTrips(t *testing.T) {
	for bits := range 1 << 16 {
		h := float16(bits)
		f := h.float32()
		if math.IsNaN(float64(f)) {
			if h&0x7c00 != 0x7c00 || h&0x3ff == 0 {
				t.Errorf("%#04x is not a NaN, got one", bits)
			}
			continue
		}
		if got := half(float64(f)); got != h {
			t.Errorf("half(%g) = %#04x, want %#04x", f, got, bits)
		}
	}
}

// TestHalfRoundsToNearestEven tests all neighbours and values between them.
func TestHalfRoundsToNearestEven(t *testing.T) {
	for bits := range float16(0x7bff) {
		low, high := float64(bits.float32()), float64((bits + 1).float32())
		middle := (low + high) / 2
		even := bits + bits&1
		for x, want := range map[float64]float16{
			middle: even, math.Nextafter(middle, 0): bits, math.Nextafter(middle, high): bits + 1,
			-middle: even | 0x8000,
		} {
			if got := half(x); got != want {
				t.Fatalf("half(%g) = %#04x, want %#04x", x, got, want)
			}
		}
	}
	if half(65519.99) != 0x7bff || half(65520) != 0x7c00 || half(math.Inf(-1)) != 0xfc00 {
		t.Error("half rounds wrongly around its largest value")
	}
}
