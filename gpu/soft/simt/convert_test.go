package simt

import (
	"fmt"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"vgpud/ptx"
)

// valueOf returns the number that v, extended to 64 bits, is in type t.
func valueOf(t ptx.Type, v uint64) *big.Int {
	if t.Class() == ptx.Signed {
		return big.NewInt(int64(v))
	}
	return new(big.Int).SetUint64(v)
}

// bounds returns the least and the greatest value of integer type t.
func bounds(t ptx.Type) (least, greatest *big.Int) {
	one := big.NewInt(1)
	if t.Class() == ptx.Signed {
		top := new(big.Int).Lsh(one, uint(t.Bits()-1))
		return new(big.Int).Neg(top), new(big.Int).Sub(top, one)
	}
	top := new(big.Int).Lsh(one, uint(t.Bits()))
	return new(big.Int), top.Sub(top, one)
}

// cvt.sat between integer types clamps to the range of the result's type, for every pair of types.
func TestIntegerConversionsSaturate(t *testing.T) {
	types := []ptx.Type{ptx.U8, ptx.S8, ptx.U16, ptx.S16, ptx.U32, ptx.S32, ptx.U64, ptx.S64}
	for _, from := range types {
		for _, to := range types {
			t.Run(fmt.Sprintf("%s.%s", to, from), func(t *testing.T) {
				convert := intToInt(to, from, true)
				least, greatest := bounds(to)
				rapid.Check(t, func(t *rapid.T) {
					bits := rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 300)).Draw(t, "bits")
					if rapid.Bool().Draw(t, "negate") {
						bits = -bits
					}
					want := valueOf(from, asInt64(from)(bits))
					if want.Cmp(least) < 0 {
						want = least
					}
					if want.Cmp(greatest) > 0 {
						want = greatest
					}
					if got := valueOf(to, convert(bits)); got.Cmp(want) != 0 {
						t.Fatalf("cvt.sat.%s.%s of %#x = %d, want %d", to, from, bits, got, want)
					}
				})
			})
		}
	}
}
