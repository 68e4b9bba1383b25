package simt

import (
	"encoding/binary"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
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

// TestIntegerConversions converts between all integer types, in registers of all sizes that they can
// be in, and compares with arithmetic on numbers.
func TestIntegerConversions(t *testing.T) {
	types := []ptx.Type{ptx.U8, ptx.S8, ptx.U16, ptx.S16, ptx.U32, ptx.S32, ptx.U64, ptx.S64}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, to := range types {
		for _, from := range types {
			var body strings.Builder
			count := 0
			type form struct{ result, source int }
			var forms []form
			for _, d := range []int{16, 32, 64} {
				for _, a := range []int{16, 32, 64} {
					if d < to.Bits() || a < from.Bits() {
						continue
					}
					// The source's register has other bits above the type's, and the result's had others before.
					fmt.Fprintf(&body, "	ld.global.u%d %%a%d, [%%rd2]; mov.b%d %%d%d, -1; @%%p cvt.%s.%s %%d%d, %%a%d; st.global.b%d [%%rd1+%d], %%d%d;\n", a, a, d, d, to, from, d, a, d, 8*count, d)
					count++
					forms = append(forms, form{d, a})
				}
			}
			for _, skip := range []int{-1, 3} {
				m := newMachine(t, fmt.Sprintf(`
.visible .entry k(.param .u64 out, .param .u64 in)
{
	.reg .b64 %%rd<4>, %%a64, %%d64; .reg .b32 %%r<4>, %%a32, %%d32; .reg .b16 %%a16, %%d16; .reg .pred %%p;
	ld.param.u64 %%rd1, [out]; ld.param.u64 %%rd2, [in]; mov.u32 %%r1, %%tid.x;
	mad.wide.u32 %%rd1, %%r1, %d, %%rd1; mad.wide.u32 %%rd2, %%r1, 8, %%rd2; setp.ne.s32 %%p, %%r1, %d;
%s	ret;
}`, 8*count, skip, body.String()))
				out, results := m.alloc(8 * count * lanes)
				in, values := m.alloc(8 * lanes)
				for i := range lanes {
					v := aloneEdges[rng.IntN(len(aloneEdges))]
					if i%2 == 0 {
						v = rng.Uint64()
					}
					binary.LittleEndian.PutUint64(values[8*i:], v)
				}
				if f := m.run("k", d3(1), d3(lanes), 0, out, in); f != nil {
					t.Fatal(f)
				}
				for i := range lanes {
					for k, f := range forms {
						v := binary.LittleEndian.Uint64(values[8*i:])
						want := ^uint64(0)
						if i != skip {
							want = truncated(to, truncated(from, v))
						}
						want &= ^uint64(0) >> (64 - f.result)
						if got := binary.LittleEndian.Uint64(results[8*(count*i+k):]); got != want {
							t.Fatalf("cvt.%s.%s of %#x, %d bits from %d: %#x, want %#x", to, from, v, f.result, f.source, got, want)
						}
					}
				}
			}
		}
	}
}

// truncated returns the value of an integer type that a number's lower bits are, extended to 64 bits.
func truncated(t ptx.Type, v uint64) uint64 {
	shift := 64 - t.Bits()
	if t.Class() == ptx.Signed {
		return uint64(int64(v<<shift) >> shift)
	}
	return v << shift >> shift
}
