package arith

import (
	"math"
	"testing"
)

// refPick is PTX's definition of min and max, on float64.
func refPick(p Pick, a, b float64) float64 {
	negative := math.Signbit(a) != math.Signbit(b)
	if p.Abs {
		a, b = math.Abs(a), math.Abs(b)
	}
	var r float64
	switch {
	case a != a && b != b, p.NaN && (a != a || b != b):
		return math.NaN()
	case a != a:
		r = b
	case b != b:
		r = a
	case p.Max:
		r = math.Max(a, b)
	default:
		r = math.Min(a, b)
	}
	if p.XorSign {
		r = math.Abs(r)
		if negative {
			r = -r
		}
	}
	return r
}

func picks() []Pick {
	var all []Pick
	for bits := range 16 {
		p := Pick{Max: bits&1 != 0, NaN: bits&2 != 0, Abs: bits&4 != 0, XorSign: bits&8 != 0}
		if !p.XorSign || p.Abs {
			all = append(all, p)
		}
	}
	return all
}

func TestMinMax(t *testing.T) {
	for _, p := range picks() {
		for _, a := range edges32 {
			for _, b := range edges32 {
				// A signalling NaN's sign survives the conversion to float64 and back.
				check32(t, p.F32(a, b), refPick(p, float64(a), float64(b)), "%+v of %v, %v", p, a, b)
			}
		}
	}
	rnd := newRand()
	for range 40000 {
		a, b := uint16(rnd.Uint32()), uint16(rnd.Uint32())
		switch rnd.IntN(4) {
		case 0:
			b = a ^ b&0x8001
		case 1:
			a |= 0x7c00
		}
		p := picks()[rnd.IntN(len(picks()))]
		for _, c := range halves {
			checkHalf(t, c.half, p.Half(c.half, a, b), refPick(p, signed(c.widen(a), a), signed(c.widen(b), b)), "%s %+v of %#04x, %#04x", c.name, p, a, b)
		}
	}
	if got := (Pick{Max: true}).F32x3(nan32, -1, nan32); got != -1 {
		t.Errorf("max of NaN, −1, NaN = %v", got)
	}
	if got := (Pick{NaN: true}).F32x3(1, nan32, 2); got == got {
		t.Errorf("min.NaN of 1, NaN, 2 = %v", got)
	}
	if got := math.Float32bits(Pick{FTZ: true}.F32(0x1p-130, 1)); got != 0 {
		t.Errorf("min.ftz of a subnormal = %#x", got)
	}
	if got := (Pick{Max: true, FTZ: true}).Half(F16, 0x0001, 0x8001); got != 0 {
		t.Errorf("max.ftz.f16 of subnormals = %#x", got)
	}
	if got, want := (Pick{}).HalfPair(F16, 0x3c00c000, 0x40003c00), uint32(0x3c00c000); got != want {
		t.Errorf("min.f16x2 = %#x, want %#x", got, want)
	}
}

// signed returns x with the sign of the bits it was decoded from, which a decoded NaN has lost.
func signed(x float64, bits uint16) float64 {
	if bits&sign16 != 0 {
		return math.Copysign(x, -1)
	}
	return math.Copysign(x, 1)
}
