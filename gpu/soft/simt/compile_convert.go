package simt

import (
	"math"

	"vgpud/gpu/soft/arith"
	"vgpud/ptx"
)

// fastConversions are conversions with loops of their own, for registers of exactly the types'
// sizes.
var fastConversions = map[[2]ptx.Type]opFunc{
	{ptx.U64, ptx.U32}: opCvtU64U32, {ptx.S64, ptx.U32}: opCvtU64U32, {ptx.S64, ptx.S32}: opCvtS64S32, {ptx.U64, ptx.S32}: opCvtS64S32,
	{ptx.U32, ptx.U64}: opCvtU32U64, {ptx.U32, ptx.S64}: opCvtU32U64, {ptx.S32, ptx.U64}: opCvtU32U64, {ptx.S32, ptx.S64}: opCvtU32U64,
	{ptx.U32, ptx.S32}: opMov32, {ptx.S32, ptx.U32}: opMov32, {ptx.U32, ptx.U32}: opMov32, {ptx.S32, ptx.S32}: opMov32,
}

// fastFromInts are conversions that round to nearest.
var fastFromInts = map[[2]ptx.Type]opFunc{
	{ptx.F32, ptx.S32}: opCvtF32S32, {ptx.F32, ptx.U32}: opCvtF32U32, {ptx.F64, ptx.S32}: opCvtF64S32, {ptx.F64, ptx.U32}: opCvtF64U32,
}

type floatConversion struct {
	to, from ptx.Type
	round    arith.Round
	integral bool
}

// fastFloats are the conversions of C.
var fastFloats = map[floatConversion]opFunc{
	{ptx.S32, ptx.F32, arith.RZ, true}:  opCvtS32F32,
	{ptx.F64, ptx.F32, arith.RN, false}: opCvtF64F32,
	{ptx.F32, ptx.F64, arith.RN, false}: opCvtF32F64,
}

// convert compiles cvt.
func convert(c *compiler, in *ptx.Instr, m *mods) error {
	if err := c.arity(in, 2, 3); err != nil {
		return err
	}
	integral := true
	var mode arith.Mode
	switch m.any("rni", "rzi", "rmi", "rpi") {
	case "rni":
	case "rzi":
		mode.Round = arith.RZ
	case "rmi":
		mode.Round = arith.RM
	case "rpi":
		mode.Round = arith.RP
	default:
		integral = false
	}
	more := m.mode()
	if !integral {
		mode.Round = more.Round
	}
	mode.FTZ, mode.Sat, mode.Relu, mode.SatFinite = more.FTZ, more.Sat, more.Relu, m.has("satfinite")
	dt, st := m.typ(), m.typ()
	if len(in.Operands) == 3 || dt.Lanes() > 1 || st.Lanes() > 1 {
		return convertPair(c, in, dt, st, mode)
	}
	d, err := c.anyDst(&in.Operands[0])
	if err != nil {
		return err
	}
	a, err := c.anySrc(&in.Operands[1], st)
	if err != nil {
		return err
	}
	if d.class == noReg || d.class == predReg || d.class < classOf(dt) {
		return c.invalid("result %s has less than %d bits", in.Operands[0].Name, dt.Bits())
	}
	exact := d.class == classOf(dt) && a.class == classOf(st)
	if f, ok := fastConversions[[2]ptx.Type{dt, st}]; ok && exact && !mode.Sat {
		c.op(f, c.costs().Simple, d, a)
		return nil
	}
	if f, ok := fastFromInts[[2]ptx.Type{dt, st}]; ok && exact && mode == (arith.Mode{}) {
		c.op(f, c.costs().Convert, d, a)
		return nil
	}
	if f, ok := fastFloats[floatConversion{dt, st, mode.Round, integral}]; ok && exact && mode == (arith.Mode{Round: mode.Round}) {
		c.op(f, c.costs().Convert, d, a)
		return nil
	}
	if f := integers(dt, st, d.class, a.class); f != nil && mode == (arith.Mode{}) && !integral {
		c.op(f, c.costs().Convert, d, a)
		return nil
	}
	f := conversion(dt, st, mode, integral)
	if f == nil {
		return c.unsupported("from .%s to .%s", st, dt)
	}
	extend := extension(dt, d.class)
	c.op(func(w *warp, in *inst) {
		for m := w.mask; m != 0; m &= m - 1 {
			i := first(m)
			w.setLane(d, i, extend(f(w.lane(a, i))))
		}
	}, c.costs().Convert, d, a)
	return nil
}

// extension returns the function that extends a result to its register, with the sign for a signed
// type.
func extension(t ptx.Type, class regClass) func(uint64) uint64 {
	shift := 64 - t.Bits()
	switch {
	case class == classOf(t):
		return func(v uint64) uint64 { return v }
	case t.Class() == ptx.Signed:
		return func(v uint64) uint64 { return uint64(int64(v<<shift) >> shift) }
	}
	return func(v uint64) uint64 { return v << shift >> shift }
}

// conversion returns the function between the bits of two types. It ignores the source's bits above
// its type.
func conversion(dt, st ptx.Type, o arith.Mode, integral bool) func(uint64) uint64 {
	isInt := func(t ptx.Type) bool { return t.Class() == ptx.Signed || t.Class() == ptx.Unsigned }
	switch {
	case isInt(dt) && isInt(st):
		return intToInt(dt, st, o.Sat)
	case isInt(st):
		return intToFloat(dt, st, o)
	case isInt(dt):
		return floatToInt(dt, st, o)
	}
	return floatToFloat(dt, st, o, integral)
}

// asInt64 reads the bits of an integer type.
func asInt64(t ptx.Type) func(uint64) uint64 {
	shift := 64 - t.Bits()
	if t.Class() == ptx.Signed {
		return func(v uint64) uint64 { return uint64(int64(v<<shift) >> shift) }
	}
	return func(v uint64) uint64 { return v << shift >> shift }
}

func intToInt(dt, st ptx.Type, sat bool) func(uint64) uint64 {
	read := asInt64(st)
	if !sat {
		return read
	}
	least, greatest := int64(0), uint64(1)<<(dt.Bits()-1)-1
	if dt.Class() == ptx.Signed {
		least = -int64(greatest) - 1
	} else {
		greatest = greatest*2 + 1
	}
	signed := st.Class() == ptx.Signed
	return func(v uint64) uint64 {
		v = read(v)
		if signed && int64(v) < 0 {
			return uint64(max(int64(v), least))
		}
		return min(v, greatest)
	}
}

func intToFloat(dt, st ptx.Type, o arith.Mode) func(uint64) uint64 {
	read := asInt64(st)
	signed := st.Class() == ptx.Signed
	switch dt {
	case ptx.F32:
		if signed {
			return func(v uint64) uint64 { return uint64(math.Float32bits(arith.CvtF32Int(int64(read(v)), o))) }
		}
		return func(v uint64) uint64 { return uint64(math.Float32bits(arith.CvtF32Int(read(v), o))) }
	case ptx.F64:
		if signed {
			return func(v uint64) uint64 { return math.Float64bits(arith.CvtF64Int(int64(read(v)), o)) }
		}
		return func(v uint64) uint64 { return math.Float64bits(arith.CvtF64Int(read(v), o)) }
	case ptx.F16, ptx.BF16:
		h := halfType(dt)
		if signed {
			return func(v uint64) uint64 { return uint64(arith.CvtHalfInt(h, int64(read(v)), o)) }
		}
		return func(v uint64) uint64 { return uint64(arith.CvtHalfInt(h, read(v), o)) }
	}
	return nil
}

// toInt holds the conversions to an integer type from f32 and f64.
type toInt struct {
	f32 func(float32, arith.Round) uint64
	f64 func(float64, arith.Round) uint64
}

func toIntOf[I arith.Integer]() toInt {
	return toInt{
		func(x float32, r arith.Round) uint64 { return uint64(arith.CvtIntF32[I](x, r)) },
		func(x float64, r arith.Round) uint64 { return uint64(arith.CvtIntF64[I](x, r)) },
	}
}

var toInts = map[ptx.Type]toInt{
	ptx.U8: toIntOf[uint8](), ptx.S8: toIntOf[int8](), ptx.U16: toIntOf[uint16](), ptx.S16: toIntOf[int16](),
	ptx.U32: toIntOf[uint32](), ptx.S32: toIntOf[int32](), ptx.U64: toIntOf[uint64](), ptx.S64: toIntOf[int64](),
}

func floatToInt(dt, st ptx.Type, o arith.Mode) func(uint64) uint64 {
	f := toInts[dt]
	switch st {
	case ptx.F64:
		return func(v uint64) uint64 { return f.f64(math.Float64frombits(v), o.Round) }
	case ptx.F32:
		return func(v uint64) uint64 {
			x := math.Float32frombits(uint32(v))
			if o.FTZ {
				x = arith.FlushF32(x)
			}
			return f.f32(x, o.Round)
		}
	case ptx.F16, ptx.BF16:
		h := halfType(st)
		return func(v uint64) uint64 { return f.f32(h.Float32(uint16(v)), o.Round) }
	}
	return nil
}

func floatToFloat(dt, st ptx.Type, o arith.Mode, integral bool) func(uint64) uint64 {
	f32 := func(v uint64) float32 { return math.Float32frombits(uint32(v)) }
	out32 := func(x float32) uint64 { return uint64(math.Float32bits(x)) }
	half := func(t ptx.Type) bool { return t == ptx.F16 || t == ptx.BF16 }
	switch {
	case dt == ptx.F32 && st == ptx.F32:
		if integral {
			return func(v uint64) uint64 { return out32(arith.IntegralF32(f32(v), o)) }
		}
		return func(v uint64) uint64 { return out32(arith.CvtF32F32(f32(v), o)) }
	case dt == ptx.F64 && st == ptx.F64:
		if integral {
			return func(v uint64) uint64 { return math.Float64bits(arith.IntegralF64(math.Float64frombits(v), o)) }
		}
		return func(v uint64) uint64 {
			if o.Sat {
				return math.Float64bits(arith.SatF64(math.Float64frombits(v)))
			}
			return v
		}
	case dt == ptx.F32 && st == ptx.F64:
		return func(v uint64) uint64 { return out32(arith.CvtF32F64Mode(math.Float64frombits(v), o)) }
	case dt == ptx.F64 && st == ptx.F32:
		return func(v uint64) uint64 { return math.Float64bits(arith.CvtF64F32Mode(f32(v), o)) }
	case dt == ptx.TF32 && st == ptx.F32:
		return func(v uint64) uint64 { return uint64(arith.CvtTF32F32(f32(v), o)) }
	case half(dt) && st == ptx.F32:
		h := halfType(dt)
		return func(v uint64) uint64 { return uint64(h.FromF32(f32(v), o)) }
	case half(dt) && st == ptx.F64:
		h := halfType(dt)
		return func(v uint64) uint64 { return uint64(h.FromF64(math.Float64frombits(v), o)) }
	case half(dt) && dt == st:
		h := halfType(dt)
		if integral {
			return func(v uint64) uint64 { return uint64(h.Integral(uint16(v), o)) }
		}
		return func(v uint64) uint64 { return uint64(h.FromHalf(h, uint16(v), o)) }
	case half(dt) && half(st):
		h, from := halfType(dt), halfType(st)
		return func(v uint64) uint64 { return uint64(h.FromHalf(from, uint16(v), o)) }
	case dt == ptx.F32 && half(st):
		h := halfType(st)
		return func(v uint64) uint64 { return out32(arith.CvtF32F32(h.Float32(uint16(v)), o)) }
	case dt == ptx.F64 && half(st):
		h := halfType(st)
		return func(v uint64) uint64 { return math.Float64bits(arith.CvtF64F32Mode(h.Float32(uint16(v)), o)) }
	}
	return nil
}

// convertPair compiles conversions of two values to a pair, and between pairs. In cvt.f16x2.f32 d,
// a, b the first source becomes the upper half.
func convertPair(c *compiler, in *ptx.Instr, dt, st ptx.Type, o arith.Mode) error {
	two := len(in.Operands) == 3
	f8 := map[ptx.Type]*arith.Float8{ptx.E4M3x2: arith.E4M3, ptx.E5M2x2: arith.E5M2}
	switch {
	case two && st == ptx.F32 && (dt == ptx.F16x2 || dt == ptx.BF16x2):
		h := halfType(dt)
		f := lift2(func(a, b float32) uint32 { return uint32(h.FromF32(a, o))<<16 | uint32(h.FromF32(b, o)) })
		return c.simple(in, f, c.costs().Convert, dt, st, st)
	case two && st == ptx.F32 && f8[dt] != nil:
		h := f8[dt]
		f := lift2(func(a, b float32) uint32 { return uint32(h.FromF32(a, o.Relu))<<8 | uint32(h.FromF32(b, o.Relu)) })
		return c.simple(in, f, c.costs().Convert, dt, st, st)
	case !two && st == ptx.F16x2 && f8[dt] != nil:
		h := f8[dt]
		f := lift1(func(a uint32) uint32 {
			return uint32(h.FromF16(uint16(a>>16), o.Relu))<<8 | uint32(h.FromF16(uint16(a), o.Relu))
		})
		return c.simple(in, f, c.costs().Convert, dt, st)
	case !two && dt == ptx.F16x2 && f8[st] != nil:
		h := f8[st]
		f := lift1(func(a uint32) uint32 {
			return uint32(h.F16(uint8(a>>8), o.Relu))<<16 | uint32(h.F16(uint8(a), o.Relu))
		})
		return c.simple(in, f, c.costs().Convert, dt, st)
	}
	return c.unsupported("from .%s to .%s", st, dt)
}
