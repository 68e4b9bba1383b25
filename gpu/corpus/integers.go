package corpus

import (
	"math/bits"
	"math/rand/v2"
)

// integers exercises integer instructions of 32 and 64 bits: bit counts, permutes, funnel shifts,
// high products, dot products, divisions.
var integers = Kernel{
	Name: "integers",
	build: func(size Size, rng *rand.Rand) *Case {
		n := choose(size, 400, 8_000, 100_000)
		x, y := words(rng, n), words(rng, n)
		out := make([]uint32, integerRows32*n)
		wideX, wideY := make([]uint64, n), make([]uint64, n)
		wideOut := make([]uint64, integerRows64*n)
		for i := range n {
			// A mix of small and large numbers.
			x[i] >>= rng.UintN(32)
			y[i] >>= rng.UintN(32)
			wideX[i], wideY[i] = rng.Uint64()>>rng.UintN(64), rng.Uint64()>>rng.UintN(64)
			for row, v := range integers32(x[i], y[i]) {
				out[row*n+i] = v
			}
			for row, v := range integers64(wideX[i], wideY[i]) {
				wideOut[row*n+i] = v
			}
		}
		return &Case{
			Buffers: []Buffer{
				input("x", x), input("y", y), output("out", out),
				input("wide x", wideX), input("wide y", wideY), output("wide out", wideOut),
			},
			Steps: []Launch{
				launch("integers32", blocksFor(n, 128), 128, ptr("x"), ptr("y"), ptr("out"), i32(n)),
				launch("integers64", blocksFor(n, 128), 128, ptr("wide x"), ptr("wide y"), ptr("wide out"), i32(n)),
			},
		}
	},
}

// The numbers of the kernels' results for each pair.
const (
	integerRows32 = 24
	integerRows64 = 15
)

func integers32(a, b uint32) [integerRows32]uint32 {
	sa, sb := int32(a), int32(b)
	ffs := uint32(0)
	if a != 0 {
		ffs = uint32(bits.TrailingZeros32(a)) + 1
	}
	pair := uint64(b)<<32 | uint64(a)
	permuted := uint32(0)
	for k := range 4 {
		selector := b >> (4 * k) & 7
		permuted |= uint32(pair>>(8*selector)&0xff) << (8 * k)
	}
	signedDot, dot := a, b
	for k := 0; k < 32; k += 8 {
		signedDot += uint32(int32(int8(a>>k)) * int32(int8(b>>k)))
		dot += (a >> k & 0xff) * (b >> k & 0xff)
	}
	return [...]uint32{
		uint32(bits.OnesCount32(a)),
		uint32(bits.LeadingZeros32(a)),
		ffs,
		bits.Reverse32(a),
		permuted,
		uint32(pair << (b & 31) >> 32),
		uint32(pair >> (a & 31)),
		uint32(pair << min(b&63, 32) >> 32),
		uint32(uint64(a) * uint64(b) >> 32),
		uint32(int64(sa) * int64(sb) >> 32),
		(a & 0xffffff) * (b & 0xffffff),
		uint32(max(int64(sa)-int64(sb), int64(sb)-int64(sa))) + a,
		max(a, b) - min(a, b) + 7,
		uint32((uint64(a) + uint64(b)) / 2),
		signedDot,
		dot,
		a / (b | 1),
		a % (b | 1),
		uint32(sa / (int32(b&0xffff) + 1)),
		uint32(sa % -(int32(b&0xff) + 1)),
		uint32(sa >> (b & 31)),
		uint32(max(sa, -sa)),
		max(a, b) - b,
		uint32(int32(int8(a)) * int32(int16(b))),
	}
}

func integers64(a, b uint64) [integerRows64]uint64 {
	sa, sb := int64(a), int64(b)
	ffs := uint64(0)
	if a != 0 {
		ffs = uint64(bits.TrailingZeros64(a)) + 1
	}
	high, low := bits.Mul64(a, b)
	signedHigh := high - (uint64(sa>>63) & b) - (uint64(sb>>63) & a)
	return [...]uint64{
		uint64(bits.OnesCount64(a)),
		uint64(bits.LeadingZeros64(a)),
		ffs,
		bits.Reverse64(a),
		high,
		signedHigh,
		low,
		a / (b>>20 | 1),
		a % (b>>20 | 1),
		uint64(sa / (int64(b>>40) + 1)),
		uint64(sa >> (b & 63)),
		a << (b & 63),
		uint64(max(sa, sb)),
		min(a, b),
		uint64(uint32(a)) * uint64(uint32(b)),
	}
}
