package corpus

import (
	"math"
	"math/bits"
	"math/rand/v2"
)

// inlineptx exercises PTX written by hand: carry chains, nested scopes, negated predicates,
// permutes by mode, saturation, red.
var inlineptx = Kernel{
	Name: "inlineptx",
	build: func(size Size, rng *rand.Rand) *Case {
		n := choose(size, 250, 6_000, 70_000)
		pairs, out := make([]uint32, 2*n), make([]uint32, inlineRows*n)
		startSum, startMost := rng.Uint32(), int32(math.MinInt32)
		sum, most := startSum, startMost
		for i := range n {
			// A mix of small and large numbers, some of them equal or zero.
			a, b := rng.Uint32()>>rng.UintN(32), rng.Uint32()>>rng.UintN(32)
			switch rng.IntN(16) {
			case 0:
				a = b
			case 1:
				b = 0
			case 2:
				a = 0
			case 3:
				a |= 0x7f800000 // infinity or NaN
			}
			pairs[2*i], pairs[2*i+1] = a, b
			sum += a
			most = max(most, int32(b))
			for row, v := range inlineResults(a, b) {
				out[row*n+i] = v
			}
		}
		return &Case{
			Buffers: []Buffer{
				input("pairs", pairs), output("out", out),
				update("sum", []uint32{startSum}, []uint32{sum}), update("most", []int32{startMost}, []int32{most}),
			},
			Steps: []Launch{launch("inlineptx", blocksFor(n, 128), 128,
				ptr("pairs"), ptr("out"), ptr("sum"), ptr("most"), i32(n))},
		}
	},
}

// inlineRows is the number of the kernel's results for each pair.
const inlineRows = 40

func inlineResults(a, b uint32) [inlineRows]uint32 {
	sa, sb := int32(a), int32(b)
	s0, carry := bits.Add32(a, b, 0)
	s1, carry := bits.Add32(b, a, carry)
	s2, carry := bits.Add32(^a, b, carry)
	s3, _ := bits.Add32(a, ^b, carry)
	d0, borrow := bits.Sub32(a, b, 0)
	d1, _ := bits.Sub32(b, a, borrow)
	high, low := bits.Mul32(a, b)
	m0, carry := bits.Add32(low, a, 0)
	m1, _ := bits.Add32(high, b, carry)

	shift := b & 31
	pair := uint64(b)<<32 | uint64(a)
	// permute returns a word whose byte k is byte choice(k) of the pair.
	permute := func(choice func(k uint32) uint32) (v uint32) {
		for k := range uint32(4) {
			v |= uint32(pair>>(8*(choice(k)&7))&0xff) << (8 * k)
		}
		return v
	}
	sel := b & 3
	signs := uint32(0)
	for k := 0; k < 32; k += 8 {
		signs |= uint32(int32(int8(a>>k))>>31) & 0xff << k
	}
	saturate := func(v, lowest, highest int64) uint32 { return uint32(max(lowest, min(v, highest))) }
	word := func(v int64) uint32 { return saturate(v, math.MinInt32, math.MaxInt32) }
	signed24 := func(v uint32) int64 { return int64(int32(v<<8) >> 8) }
	return [inlineRows]uint32{
		s0, s1, s2, s3, d0, d1, m0, m1,
		a&b | ^a&(a>>3),   // lop3 0xca: where a, then b, else c
		a >> shift & 0x7f, // bfe.u32
		uint32(int64(sa) >> shift << (64 - 9) >> (64 - 9)), // bfe.s32 repeats the sign beyond bit 31
		b&^(0x7ff<<5) | a&0x7ff<<5,                         // bfi
		highestBit(a),
		highestBit(uint32(sa ^ sa>>31)),
		31 - highestBit(a) | -truth(a == 0),
		uint32(uint64(0x3f) << shift),
		uint32(sa << (31 - b&15) >> (31 - b&15)), // szext from b%16 + 1 bits
		map[bool]uint32{true: a, false: b}[int32(a^b) >= 0],
		-truth(sa < sb),
		1 - b&1,
		permute(func(k uint32) uint32 { return sel + k }),
		permute(func(k uint32) uint32 { return sel - k }),
		permute(func(uint32) uint32 { return sel }),
		permute(func(k uint32) uint32 { return max(k, sel) }),
		permute(func(k uint32) uint32 { return min(k, sel) }),
		permute(func(k uint32) uint32 { return sel&1*2 + k&1 }),
		signs,
		word(int64(sa) + int64(sb)),
		word(int64(sa) - int64(sb)),
		uint32(int64(sa)*int64(sb)>>32) + a,
		uint32(uint64(a&0xffffff) * uint64(b&0xffffff) >> 16),
		uint32(signed24(a)*signed24(b)) + b,
		saturate(int64(sa), math.MinInt8, math.MaxInt8),
		saturate(int64(sa), 0, math.MaxUint16),
		uint32(int32(int16(a)))*(b&0xff) + uint32(sa>>16)*(b>>8&0xff) + a,
		a&0xffff*uint32(int32(int8(b>>16))) + a>>16*uint32(sb>>24) + a,
		(a>>4 ^ b) + max(a, b) - min(a, b),
		truth(sa < sb && b == 0) | truth(!(sa < sb) && b == 0)<<1,
		gcd(a, b|1),
		floatClass(a),
	}
}

// highestBit returns the position of v's highest set bit, or −1.
func highestBit(v uint32) uint32 { return uint32(bits.Len32(v)) - 1 }

func gcd(x, y uint32) uint32 {
	for y != 0 {
		x, y = y, x%y
	}
	return x
}

// floatClass returns the sum of the testp properties of a float32: finite 1, normal 2, subnormal 4,
// NaN 8.
func floatClass(v uint32) uint32 {
	exponent, fraction := v>>23&0xff, v&0x7fffff
	switch {
	case exponent == 0xff && fraction != 0:
		return 8
	case exponent == 0xff:
		return 0
	case exponent == 0 && fraction != 0:
		return 1 | 4
	}
	return 1 | 2 // for testp a zero is normal
}
