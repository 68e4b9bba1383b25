package simt

import (
	"vgpud/gpu/soft/arith"
	"vgpud/ptx"
)

// floatOp compiles an operation on n floats. The common form of f32 and f64 has a loop of its own;
// the others pass the rounding mode.
func floatOp(c *compiler, in *ptx.Instr, m *mods, opcode string, n int) error {
	if opcode == "div" {
		switch how := m.any("approx", "full"); how {
		case "approx", "full":
			return divApprox(c, in, m, how)
		}
	}
	if (opcode == "min" || opcode == "max") && !in.Has("f64") {
		return pick(c, in, m, opcode)
	}
	mode := m.mode()
	m.skip("noftz")
	t := m.typ()
	var f opFunc
	cost := c.costs().Simple
	switch t {
	case ptx.F32:
		f = float32Op(opcode, mode)
		if mode != (arith.Mode{}) {
			cost = c.costs().Convert
		}
	case ptx.F64:
		if !mode.FTZ && !mode.Sat && !mode.Relu {
			f = float64Op(opcode, mode.Round)
		}
		cost = c.costs().Wide
		if mode.Round != arith.RN {
			cost = c.costs().Slow
		}
	case ptx.F16, ptx.F16x2, ptx.BF16, ptx.BF16x2:
		f = halfOp(halfType(t), opcode, mode, t.Lanes() == 2)
		cost = c.costs().Special
	}
	if f == nil {
		return c.unsupported("type .%s in this form", t)
	}
	if opcode == "div" {
		cost = c.costs().Slow
	}
	return c.simple(in, f, cost, repeat(t, n+1)...)
}

func float32Op(opcode string, o arith.Mode) opFunc {
	usual := o == arith.Mode{}
	switch opcode {
	case "add":
		if usual {
			return opAddF32
		}
		return lift2(func(a, b float32) float32 { return arith.AddF32Mode(a, b, o) })
	case "sub":
		if usual {
			return opSubF32
		}
		return lift2(func(a, b float32) float32 { return arith.SubF32Mode(a, b, o) })
	case "mul":
		if usual {
			return opMulF32
		}
		return lift2(func(a, b float32) float32 { return arith.MulF32Mode(a, b, o) })
	case "fma", "mad":
		if usual {
			return opFmaF32
		}
		return lift3(func(a, b, c float32) float32 { return arith.FmaF32Mode(a, b, c, o) })
	case "div":
		if usual {
			return opDivF32
		}
		return lift2(func(a, b float32) float32 { return arith.DivF32Mode(a, b, o) })
	case "neg":
		if usual {
			return opNegF32
		}
		return lift1(func(a float32) float32 { return arith.NegF32(arith.FlushF32(a)) })
	case "abs":
		if usual {
			return opAbsF32
		}
		return lift1(func(a float32) float32 { return arith.AbsF32(arith.FlushF32(a)) })
	}
	return nil
}

// pick compiles min and max of single and half precision.
func pick(c *compiler, in *ptx.Instr, m *mods, opcode string) error {
	p := arith.Pick{Max: opcode == "max", FTZ: m.has("ftz"), NaN: m.has("NaN"), XorSign: m.has("xorsign"), Abs: m.has("abs")}
	t := m.typ()
	f := lift2(p.F32)
	cost := c.costs().Convert
	switch t {
	case ptx.F32:
		switch p {
		case arith.Pick{}:
			f, cost = opMinF32, c.costs().Simple
		case arith.Pick{Max: true}:
			f, cost = opMaxF32, c.costs().Simple
		}
		if len(in.Operands) == 4 {
			return c.simple(in, lift3(p.F32x3), c.costs().Convert, repeat(t, 4)...)
		}
	case ptx.F16, ptx.BF16:
		h := halfType(t)
		f = short2(func(a, b uint16) uint16 { return p.Half(h, a, b) })
	case ptx.F16x2, ptx.BF16x2:
		h := halfType(t)
		f = lift2(func(a, b uint32) uint32 { return p.HalfPair(h, a, b) })
	default:
		return c.unsupported("type .%s", t)
	}
	return c.simple(in, f, cost, repeat(t, 3)...)
}

// halfType returns the half-precision type of t or of its two halves.
func halfType(t ptx.Type) *arith.Half {
	if t == ptx.BF16 || t == ptx.BF16x2 {
		return arith.BF16
	}
	return arith.F16
}

// halfOp returns an operation on half-precision floats, single or paired.
func halfOp(h *arith.Half, opcode string, o arith.Mode, pair bool) opFunc {
	if f := map[string]func(a uint16, m arith.Mode) uint16{"neg": h.Neg, "abs": h.Abs}[opcode]; f != nil {
		if pair {
			return lift1(func(a uint32) uint32 { return arith.Packed1(a, o, f) })
		}
		return short1(func(a uint16) uint16 { return f(a, o) })
	}
	if opcode == "fma" {
		if pair {
			return lift3(func(a, b, c uint32) uint32 { return arith.Packed3(a, b, c, o, h.Fma) })
		}
		return short3(func(a, b, c uint16) uint16 { return h.Fma(a, b, c, o) })
	}
	f := map[string]func(a, b uint16, m arith.Mode) uint16{"add": h.Add, "sub": h.Sub, "mul": h.Mul}[opcode]
	switch {
	case f == nil:
		return nil
	case pair:
		return lift2(func(a, b uint32) uint32 { return arith.Packed2(a, b, o, f) })
	}
	return short2(func(a, b uint16) uint16 { return f(a, b, o) })
}

func float64Op(opcode string, r arith.Round) opFunc {
	usual := r == arith.RN
	switch opcode {
	case "add":
		if usual {
			return opAddF64
		}
		return lift2(func(a, b float64) float64 { return arith.AddF64Round(a, b, r) })
	case "sub":
		if usual {
			return opSubF64
		}
		return lift2(func(a, b float64) float64 { return arith.SubF64Round(a, b, r) })
	case "mul":
		if usual {
			return opMulF64
		}
		return lift2(func(a, b float64) float64 { return arith.MulF64Round(a, b, r) })
	case "fma", "mad":
		if usual {
			return opFmaF64
		}
		return lift3(func(a, b, c float64) float64 { return arith.FmaF64Round(a, b, c, r) })
	case "div":
		if usual {
			return opDivF64
		}
		return lift2(func(a, b float64) float64 { return arith.DivF64Round(a, b, r) })
	case "neg":
		return opNegF64
	case "abs":
		return opAbsF64
	case "min":
		return opMinF64
	case "max":
		return opMaxF64
	}
	return nil
}

// divApprox compiles div.approx.f32 and div.full.f32.
func divApprox(c *compiler, in *ptx.Instr, m *mods, how string) error {
	ftz := m.has("ftz")
	if t := m.typ(); t != ptx.F32 {
		return c.unsupported("type .%s", t)
	}
	f := arith.DivApproxF32
	if how == "full" {
		f = arith.DivFullF32
	}
	return c.simple(in, lift2(func(a, b float32) float32 { return f(a, b, ftz) }), c.costs().Special, repeat(ptx.F32, 3)...)
}

// specialFunc returns the handler of a function of one operand: rcp, sqrt, sin …
func specialFunc(opcode string) handler {
	return func(c *compiler, in *ptx.Instr, m *mods) error {
		approx := m.has("approx")
		mode := m.mode()
		t := m.typ()
		var f opFunc
		cost := c.costs().Special
		switch {
		case t == ptx.F32:
			f = special32(opcode, approx, mode)
		case t == ptx.F64:
			f = special64(opcode, approx, mode)
			cost = c.costs().Slow
		case approx && t.Class() == ptx.Float:
			f = specialHalf(opcode, t, mode)
		}
		if f == nil {
			return c.unsupported("type .%s in this form", t)
		}
		return c.simple(in, f, cost, t, t)
	}
}

func special32(opcode string, approx bool, o arith.Mode) opFunc {
	if !approx {
		switch opcode {
		case "rcp":
			return lift1(func(a float32) float32 { return arith.RcpF32Mode(a, o) })
		case "sqrt":
			if o == (arith.Mode{}) {
				return opSqrtF32
			}
			return lift1(func(a float32) float32 { return arith.SqrtF32Mode(a, o) })
		}
		return nil
	}
	f := map[string]func(a float32, ftz bool) float32{
		"rcp": arith.RcpApproxF32, "sqrt": arith.SqrtApproxF32, "rsqrt": arith.RsqrtApproxF32, "sin": arith.SinApproxF32,
		"cos": arith.CosApproxF32, "lg2": arith.Lg2ApproxF32, "ex2": arith.Ex2ApproxF32,
		"tanh": func(a float32, _ bool) float32 { return arith.TanhApproxF32(a) },
	}[opcode]
	if f == nil {
		return nil
	}
	ftz := o.FTZ
	return lift1(func(a float32) float32 { return f(a, ftz) })
}

func special64(opcode string, approx bool, o arith.Mode) opFunc {
	switch {
	case opcode == "rsqrt" && approx && o.FTZ:
		return lift1(arith.RsqrtGrossF64)
	case opcode == "rsqrt" && approx:
		return lift1(arith.RsqrtApproxF64)
	case opcode == "rcp" && approx && o.FTZ:
		return lift1(arith.RcpGrossF64)
	case approx:
		return nil
	case opcode == "rcp":
		return lift1(func(a float64) float64 { return arith.RcpF64Round(a, o.Round) })
	case opcode == "sqrt" && o.Round == arith.RN:
		return opSqrtF64
	case opcode == "sqrt":
		return lift1(func(a float64) float64 { return arith.SqrtF64Round(a, o.Round) })
	}
	return nil
}

func specialHalf(opcode string, t ptx.Type, o arith.Mode) opFunc {
	h := halfType(t)
	f := map[string]func(a uint16, m arith.Mode) uint16{"ex2": h.Ex2, "tanh": h.Tanh}[opcode]
	if f == nil {
		return nil
	}
	if t.Lanes() == 2 {
		return lift1(func(a uint32) uint32 { return arith.Packed1(a, o, f) })
	}
	return short1(func(a uint16) uint16 { return f(a, o) })
}

func copysign(c *compiler, in *ptx.Instr, m *mods) error {
	f := byType{ptx.F32: lift2(arith.CopysignF32), ptx.F64: lift2(arith.CopysignF64)}
	return plain(2, simpleCost, f)(c, in, m)
}

var testpTests = map[string]arith.Test{
	"finite": arith.TestFinite, "infinite": arith.TestInfinite, "number": arith.TestNumber,
	"notanumber": arith.TestNotANumber, "normal": arith.TestNormal, "subnormal": arith.TestSubnormal,
}

// testp compiles testp, which sets a predicate by the class of a float.
func testp(c *compiler, in *ptx.Instr, m *mods) error {
	test, ok := testpTests[m.any("finite", "infinite", "number", "notanumber", "normal", "subnormal")]
	t := m.typ()
	if !ok || t != ptx.F32 && t != ptx.F64 {
		return c.unsupported("this form of testp")
	}
	if err := c.arity(in, 2, 2); err != nil {
		return err
	}
	d, err := c.dstPred(&in.Operands[0])
	if err != nil {
		return err
	}
	a, err := c.src(&in.Operands[1], t)
	if err != nil {
		return err
	}
	f := testLanes(test, arith.TestpF32)
	if t == ptx.F64 {
		f = testLanes(test, arith.TestpF64)
	}
	c.op(predicate(f), c.costs().Simple, d, a)
	return nil
}

func testLanes[T value](test arith.Test, f func(arith.Test, T) bool) func(w *warp, in *inst) uint32 {
	return func(w *warp, in *inst) (v uint32) {
		a := vec[T](w, in.a)
		for m := w.mask; m != 0; m &= m - 1 {
			i := first(m)
			v |= bit(f(test, a[i])) << i
		}
		return v
	}
}
