package arith

// Part selects the part of an operand that a video instruction reads, or of its result that it
// writes.
type Part uint8

// The parts of a word. PartAll, the zero value, is the word itself.
const (
	PartAll Part = iota
	PartB0
	PartB1
	PartB2
	PartB3
	PartH0
	PartH1
)

// position returns the offset and width of the part.
func (p Part) position() (at, width int) {
	switch {
	case p >= PartH0:
		return 16 * int(p-PartH0), 16
	case p >= PartB0:
		return 8 * int(p-PartB0), 8
	}
	return 0, 32
}

// of extracts the part of x, extended by sign or zeros.
func (p Part) of(x uint32, signed bool) int64 {
	at, width := p.position()
	return extend(x>>at, width, signed)
}

// extend returns the low width bits of x as a number.
func extend(x uint32, width int, signed bool) int64 {
	if signed {
		return int64(int32(x<<(32-width)) >> (32 - width))
	}
	return int64(x << (32 - width) >> (32 - width))
}

// saturate clamps x to the range of a number of the given width.
func saturate(x int64, width int, signed bool) int64 {
	if signed {
		return min(max(x, -1<<(width-1)), 1<<(width-1)-1)
	}
	return min(max(x, 0), 1<<width-1)
}

// VideoOp is the first operation of a video instruction.
type VideoOp uint8

// Operations of the video instructions. VideoAvrg exists only in the packed forms, the shifts only
// in the scalar ones.
const (
	VideoAdd     VideoOp = iota // vadd
	VideoSub                    // vsub
	VideoAbsDiff                // vabsdiff
	VideoMin                    // vmin
	VideoMax                    // vmax
	VideoAvrg                   // vavrg2, vavrg4: half of the sum; a half is rounded up if the sum is positive, else down
	VideoShl                    // vshl
	VideoShr                    // vshr
	VideoSet                    // vset: 1 if the comparison holds
)

// apply performs the operation on two numbers of at most 33 bits.
func (op VideoOp) apply(a, b int64, c Cmp) int64 {
	switch op {
	case VideoAdd:
		return a + b
	case VideoSub:
		return a - b
	case VideoAbsDiff:
		return Abs(a - b)
	case VideoMin:
		return min(a, b)
	case VideoMax:
		return max(a, b)
	case VideoAvrg:
		if a+b >= 0 {
			return (a + b + 1) >> 1
		}
		return (a + b) >> 1
	case VideoShl:
		if b == 32 { // out of every range, with a low word of zero
			return saturate(a, 24, true) << 32
		}
		return a << b
	case VideoShr:
		return a >> b
	case VideoSet:
		if Compare(c, a, b) {
			return 1
		}
	}
	return 0
}

// Secondary is the second operation of a scalar video instruction, between its result and c.
type Secondary uint8

// Second operations.
const (
	SecondaryNone Secondary = iota
	SecondaryAdd
	SecondaryMin
	SecondaryMax
)

// Video is a scalar video instruction: vadd, vsub, vabsdiff, vmin, vmax, vshl, vshr or vset.
type Video struct {
	Op                        VideoOp
	SignedD, SignedA, SignedB bool // .s32 rather than .u32
	D, A, B                   Part // if D is not PartAll, the rest of the result comes from c
	Sat                       bool // .sat: clamp to the range of the part written
	Wrap                      bool // .wrap rather than .clamp, of the shifts
	Cmp                       Cmp  // of vset
	Secondary                 Secondary
}

// Do performs the instruction. c is ignored if there is no third operand.
func (v Video) Do(a, b, c uint32) uint32 {
	x, y := v.A.of(a, v.SignedA), v.B.of(b, v.SignedB)
	if v.Op == VideoShl || v.Op == VideoShr {
		if v.Wrap {
			y &= 31
		} else {
			y = int64(min(uint32(y), 32))
		}
	}
	t := v.Op.apply(x, y, v.Cmp)
	at, width := v.D.position()
	if v.Sat {
		t = saturate(t, width, v.SignedD)
	}
	third := extend(c, 32, v.SignedD)
	switch v.Secondary {
	case SecondaryAdd:
		t += third
	case SecondaryMin:
		t = min(t, third)
	case SecondaryMax:
		t = max(t, third)
	}
	if v.D == PartAll {
		return uint32(t)
	}
	return Bfi32(uint32(t), c, uint32(at), uint32(width))
}

// VideoMad is vmad: a·b+c with optional negation, increment, shift and saturation.
type VideoMad struct {
	SignedA, SignedB bool
	A, B             Part
	NegateProduct    bool // exactly one of a and b is negated
	NegateC          bool
	PlusOne          bool // .po
	Sat              bool
	Shift            uint8 // 0, 7 or 15
}

// Do performs the instruction.
func (v VideoMad) Do(a, b, c uint32) uint32 {
	signed := v.SignedA || v.SignedB || v.NegateProduct || v.NegateC
	// The product has up to 64 bits and the sum one more, so the sum has two words.
	x, y := v.A.of(a, v.SignedA), v.B.of(b, v.SignedB)
	hi, lo := MulHiS64(x, y), uint64(x)*uint64(y)
	third := extend(c, 32, signed)
	var one uint64
	switch {
	case v.PlusOne:
		one = 1
	case v.NegateProduct:
		hi, lo, one = ^hi, ^lo, 1
	case v.NegateC:
		third, one = ^third, 1
	}
	lo, carry := AddC64(lo, uint64(third), 0)
	hi += third>>63 + int64(carry)
	lo, carry = AddC64(lo, one, 0)
	hi += int64(carry)
	if n := uint(v.Shift); n > 0 {
		lo = lo>>n | uint64(hi)<<(64-n)
		hi >>= n
	}
	if !v.Sat {
		return uint32(lo)
	}
	// Beyond 64 bits only the sign matters.
	r := int64(lo)
	if hi != r>>63 {
		r = hi>>63 ^ (1<<63 - 1)
	}
	return uint32(saturate(r, 32, signed))
}

// VideoPacked is a packed video instruction: vadd2, vsub4, vabsdiff4, vavrg2, vset4 and similar.
type VideoPacked struct {
	Op                        VideoOp
	Lanes                     int      // 2 halves or 4 bytes
	SignedD, SignedA, SignedB bool     // .s32 rather than .u32
	A, B                      [4]uint8 // for each lane, lowest first, the element of b:a that it reads
	Mask                      uint8    // a bit for each lane that is written (or accumulated)
	Sat                       bool     // .sat: clamp to the lane
	Accumulate                bool     // .add: the result is c plus the lanes, instead of c with the lanes replaced
	Cmp                       Cmp      // of vset2 and vset4
}

// Do performs the instruction.
func (v VideoPacked) Do(a, b, c uint32) uint32 {
	width := 32 / v.Lanes
	both := uint64(b)<<32 | uint64(a)
	for i := range v.Lanes {
		if v.Mask>>i&1 == 0 {
			continue
		}
		x := extend(uint32(both>>(int(v.A[i])*width)), width, v.SignedA)
		y := extend(uint32(both>>(int(v.B[i])*width)), width, v.SignedB)
		t := v.Op.apply(x, y, v.Cmp)
		if v.Sat {
			t = saturate(t, width, v.SignedD)
		}
		if v.Accumulate {
			c += uint32(t)
		} else {
			c = Bfi32(uint32(t), c, uint32(i*width), uint32(width))
		}
	}
	return c
}
