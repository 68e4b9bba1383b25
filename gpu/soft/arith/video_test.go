package arith

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// refPart is PTX's partSelectSignExtend.
func refPart(x uint32, p Part, signed bool) *big.Int {
	v, bits := x, uint(32)
	switch p {
	case PartB0, PartB1, PartB2, PartB3:
		v, bits = x>>(8*(p-PartB0))&0xff, 8
	case PartH0, PartH1:
		v, bits = x>>(16*(p-PartH0))&0xffff, 16
	}
	return wrap(toBig(v), bits, signed)
}

func refClamp(x *big.Int, bits uint, signed bool) *big.Int {
	least, greatest := big.NewInt(0), new(big.Int).Lsh(big.NewInt(1), bits)
	if signed {
		greatest.Rsh(greatest, 1)
		least.Neg(greatest)
	}
	greatest.Sub(greatest, big.NewInt(1))
	switch {
	case x.Cmp(least) < 0:
		return least
	case x.Cmp(greatest) > 0:
		return greatest
	}
	return x
}

func refOp(op VideoOp, a, b *big.Int, c Cmp) *big.Int {
	r := new(big.Int)
	switch op {
	case VideoAdd:
		return r.Add(a, b)
	case VideoSub:
		return r.Sub(a, b)
	case VideoAbsDiff:
		return r.Abs(r.Sub(a, b))
	case VideoMin, VideoMax:
		if (a.Cmp(b) < 0) == (op == VideoMin) {
			return a
		}
		return b
	case VideoAvrg:
		if r.Add(a, b).Sign() >= 0 {
			r.Add(r, big.NewInt(1))
		}
		return r.Rsh(r, 1)
	case VideoShl:
		return r.Lsh(a, uint(b.Uint64()))
	case VideoShr:
		return r.Rsh(a, uint(b.Uint64()))
	}
	if Compare(c, int64(a.Cmp(b)), 0) {
		return big.NewInt(1)
	}
	return r
}

func low32(x *big.Int) uint32 { return uint32(wrap(x, 32, false).Uint64()) }

func anyPart(t *rapid.T, name string) Part { return Part(rapid.IntRange(0, int(PartH1)).Draw(t, name)) }

func anyWord(t *rapid.T, name string) uint32 {
	return rapid.OneOf(rapid.Uint32(), rapid.SampledFrom([]uint32{0, 1, 0x7f, 0x80, 0xff80, 0x7fff8000, 0x80000000, 0x7fffffff, 0xffffffff})).Draw(t, name)
}

func TestVideo(t *testing.T) {
	ops := []VideoOp{VideoAdd, VideoSub, VideoAbsDiff, VideoMin, VideoMax, VideoShl, VideoShr, VideoSet}
	rapid.Check(t, func(t *rapid.T) {
		v := Video{
			Op:      rapid.SampledFrom(ops).Draw(t, "op"),
			SignedD: rapid.Bool().Draw(t, "dtype"), SignedA: rapid.Bool().Draw(t, "atype"), SignedB: rapid.Bool().Draw(t, "btype"),
			D: anyPart(t, "dsel"), A: anyPart(t, "asel"), B: anyPart(t, "bsel"),
			Sat: rapid.Bool().Draw(t, "sat"), Wrap: rapid.Bool().Draw(t, "wrap"),
			Cmp: Cmp(rapid.IntRange(int(CmpEq), int(CmpGe)).Draw(t, "cmp")),
		}
		if v.Op == VideoShl || v.Op == VideoShr {
			v.SignedB = false
		}
		if v.D == PartAll {
			v.Secondary = Secondary(rapid.IntRange(0, int(SecondaryMax)).Draw(t, "op2"))
		}
		a, b, c := anyWord(t, "a"), anyWord(t, "b"), anyWord(t, "c")

		x, y := refPart(a, v.A, v.SignedA), refPart(b, v.B, v.SignedB)
		if v.Op == VideoShl || v.Op == VideoShr {
			if v.Wrap {
				y = wrap(y, 5, false)
			} else if y.Cmp(big.NewInt(32)) > 0 {
				y = big.NewInt(32)
			}
		}
		r := refOp(v.Op, x, y, v.Cmp)
		bits := uint(32)
		switch {
		case v.D >= PartH0:
			bits = 16
		case v.D >= PartB0:
			bits = 8
		}
		if v.Sat {
			r = refClamp(r, bits, v.SignedD)
		}
		third := wrap(toBig(c), 32, v.SignedD)
		switch v.Secondary {
		case SecondaryAdd:
			r = new(big.Int).Add(r, third)
		case SecondaryMin:
			r = refOp(VideoMin, r, third, 0)
		case SecondaryMax:
			r = refOp(VideoMax, r, third, 0)
		}
		want := low32(r)
		switch {
		case v.D >= PartH0:
			shift := 16 * (v.D - PartH0)
			want = c&^(0xffff<<shift) | want&0xffff<<shift
		case v.D >= PartB0:
			shift := 8 * (v.D - PartB0)
			want = c&^(0xff<<shift) | want&0xff<<shift
		}
		// PTX leaves open the min and max of an unsaturated value beyond 33 bits, shifted by all 32
		// places.
		if y.Cmp(big.NewInt(32)) == 0 && v.Op == VideoShl && v.Secondary > SecondaryAdd && !v.Sat {
			return
		}
		if got := v.Do(a, b, c); got != want {
			t.Fatalf("%+v of %#x, %#x, %#x = %#x, want %#x", v, a, b, c, got, want)
		}
	})
}

func TestVideoMad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := VideoMad{
			SignedA: rapid.Bool().Draw(t, "atype"), SignedB: rapid.Bool().Draw(t, "btype"),
			A: anyPart(t, "asel"), B: anyPart(t, "bsel"),
			Sat: rapid.Bool().Draw(t, "sat"), Shift: rapid.SampledFrom([]uint8{0, 7, 15}).Draw(t, "scale"),
		}
		switch rapid.IntRange(0, 3).Draw(t, "form") {
		case 1:
			v.PlusOne = true
		case 2:
			v.NegateProduct = true
		case 3:
			v.NegateC = true
		}
		a, b, c := anyWord(t, "a"), anyWord(t, "b"), anyWord(t, "c")
		signed := v.SignedA || v.SignedB || v.NegateProduct || v.NegateC
		p := new(big.Int).Mul(refPart(a, v.A, v.SignedA), refPart(b, v.B, v.SignedB))
		third := wrap(toBig(c), 32, signed)
		switch {
		case v.PlusOne:
			p.Add(p, big.NewInt(1))
		case v.NegateProduct:
			p.Neg(p)
		case v.NegateC:
			third.Neg(third)
		}
		r := p.Rsh(p.Add(p, third), uint(v.Shift))
		if v.Sat {
			r = refClamp(r, 32, signed)
		}
		if got, want := v.Do(a, b, c), low32(r); got != want {
			t.Fatalf("%+v of %#x, %#x, %#x = %#x, want %#x", v, a, b, c, got, want)
		}
	})
}

func TestVideoPacked(t *testing.T) {
	ops := []VideoOp{VideoAdd, VideoSub, VideoAbsDiff, VideoMin, VideoMax, VideoAvrg, VideoSet}
	rapid.Check(t, func(t *rapid.T) {
		v := VideoPacked{
			Op: rapid.SampledFrom(ops).Draw(t, "op"), Lanes: rapid.SampledFrom([]int{2, 4}).Draw(t, "lanes"),
			SignedD: rapid.Bool().Draw(t, "dtype"), SignedA: rapid.Bool().Draw(t, "atype"), SignedB: rapid.Bool().Draw(t, "btype"),
			Mask: rapid.Uint8Range(0, 15).Draw(t, "mask"), Sat: rapid.Bool().Draw(t, "sat"), Accumulate: rapid.Bool().Draw(t, "add"),
			Cmp: Cmp(rapid.IntRange(int(CmpEq), int(CmpGe)).Draw(t, "cmp")),
		}
		for i := range v.Lanes {
			v.A[i] = rapid.Uint8Range(0, uint8(2*v.Lanes-1)).Draw(t, "asel")
			v.B[i] = rapid.Uint8Range(0, uint8(2*v.Lanes-1)).Draw(t, "bsel")
		}
		a, b, c := anyWord(t, "a"), anyWord(t, "b"), anyWord(t, "c")
		bits := 32 / v.Lanes
		element := func(i uint8, signed bool) *big.Int {
			both := new(big.Int).SetUint64(uint64(b)<<32 | uint64(a))
			return wrap(both.Rsh(both, uint(int(i)*bits)), uint(bits), signed)
		}
		var want uint32
		sum := toBig(c)
		for i := range v.Lanes {
			old := wrap(new(big.Int).Rsh(toBig(c), uint(i*bits)), uint(bits), false)
			r := refOp(v.Op, element(v.A[i], v.SignedA), element(v.B[i], v.SignedB), v.Cmp)
			if v.Sat {
				r = refClamp(r, uint(bits), v.SignedD)
			}
			if v.Mask>>i&1 == 0 {
				r = old
			} else {
				sum = new(big.Int).Add(sum, r)
			}
			want |= uint32(wrap(r, uint(bits), false).Uint64()) << (i * bits)
		}
		if v.Accumulate {
			want = low32(sum)
		}
		if got := v.Do(a, b, c); got != want {
			t.Fatalf("%+v of %#x, %#x, %#x = %#x, want %#x", v, a, b, c, got, want)
		}
	})
}

// These values need PTX's wide intermediate results.
func TestVideoBeyond33Bits(t *testing.T) {
	const most = 0xffffffff
	for _, c := range []struct {
		name      string
		got, want uint32
	}{
		{"vshl.u32.u32.sat by 32", Video{Op: VideoShl, Sat: true}.Do(most, 32, 0), most},
		{"vshl.u32.u32.sat of 0 by 99", Video{Op: VideoShl, Sat: true}.Do(0, 99, 0), 0},
		{"vshl.s32.s32.sat of −1 by 32", Video{Op: VideoShl, Sat: true, SignedA: true, SignedD: true}.Do(most, 32, 0), 1 << 31},
		{"vshl.u32.u32 by 32", Video{Op: VideoShl}.Do(most, 32, 0), 0},
		{"vmad.u32.u32.sat", VideoMad{Sat: true}.Do(most, most, 1), most},
		{"vmad.u32.u32.po.sat", VideoMad{Sat: true, PlusOne: true}.Do(most, most, most), most},
		{"vmad.u32.u32.sat of −(a·b)", VideoMad{Sat: true, NegateProduct: true}.Do(most, most, 0), 1 << 31},
		{"vmad.u32.s32.sat", VideoMad{Sat: true, SignedB: true}.Do(most, 1<<31, 0), 1 << 31},
		{"vmad.u32.u32.shr15", VideoMad{Shift: 15}.Do(most, most, most), 0x1fffe0000 & most},
	} {
		if c.got != c.want {
			t.Errorf("%s = %#x, want %#x", c.name, c.got, c.want)
		}
	}
}

func TestPackedMinMax(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want uint32
	}{
		{"min.s16x2", MinS16x2(0x8000_0001, 0x7fff_ffff), 0x8000_ffff},
		{"min.u16x2", MinU16x2(0x8000_0001, 0x7fff_ffff), 0x7fff_0001},
		{"max.s16x2", MaxS16x2(0x8000_0001, 0x7fff_ffff), 0x7fff_0001},
		{"max.u16x2", MaxU16x2(0x8000_0001, 0x7fff_ffff), 0x8000_ffff},
		{"min.relu.s16x2", MinReluS16x2(0x0005_0001, 0x0003_ffff), 0x0003_0000},
		{"max.relu.s16x2", MaxReluS16x2(0x8000_0001, 0xffff_0002), 0x0000_0002},
		{"add.s16x2", AddU16x2(0x7fff_ffff, 0x0001_0001), 0x8000_0000},
	} {
		if c.got != c.want {
			t.Errorf("%s = %#x, want %#x", c.name, c.got, c.want)
		}
	}
}
