package simt

import (
	"vgpud/gpu/soft/arith"
	"vgpud/ptx"
)

var videoOps = map[string]arith.VideoOp{
	"vadd": arith.VideoAdd, "vsub": arith.VideoSub, "vabsdiff": arith.VideoAbsDiff, "vmin": arith.VideoMin, "vmax": arith.VideoMax,
	"vavrg": arith.VideoAvrg, "vshl": arith.VideoShl, "vshr": arith.VideoShr, "vset": arith.VideoSet,
}

// part returns the part of a word that an operand's selector selects.
func (c *compiler) part(o *ptx.Operand) (arith.Part, error) {
	bytes := o.Sel.Bytes()
	switch {
	case o.Sel == ptx.SelNone:
		return arith.PartAll, nil
	case len(bytes) == 1 && bytes[0] < 4:
		return arith.PartB0 + arith.Part(bytes[0]), nil
	case len(bytes) == 2 && bytes[0] < 4:
		return arith.PartH0 + arith.Part(bytes[0]/2), nil
	}
	return 0, c.unsupported("selector .%s", o.Sel)
}

// word returns the register of a video instruction's source, ignoring its selector, and whether it
// is negated.
func (c *compiler) word(o *ptx.Operand) (operand, bool, error) {
	whole := *o
	whole.Sel, whole.Neg = ptx.SelNone, false
	r, err := c.src(&whole, ptx.B32)
	return r, o.Neg, err
}

// video compiles the scalar video instructions except vmad.
func video(opcode string) handler {
	return func(c *compiler, in *ptx.Instr, m *mods) error {
		if err := c.arity(in, 3, 4); err != nil {
			return err
		}
		v := arith.Video{Op: videoOps[opcode]}
		if v.Op == arith.VideoSet {
			cmp, ok := m.compare()
			if !ok {
				return c.invalid("no comparison")
			}
			v.Cmp = cmp
		} else {
			v.SignedD = m.typ() == ptx.S32
		}
		v.SignedA, v.SignedB = m.typ() == ptx.S32, m.typ() == ptx.S32
		v.Sat = m.has("sat")
		v.Wrap = m.any("wrap", "clamp") == "wrap"
		switch m.any("add", "min", "max") {
		case "add":
			v.Secondary = arith.SecondaryAdd
		case "min":
			v.Secondary = arith.SecondaryMin
		case "max":
			v.Secondary = arith.SecondaryMax
		}
		var err error
		if v.D, err = c.part(&in.Operands[0]); err != nil {
			return err
		}
		if v.A, err = c.part(&in.Operands[1]); err != nil {
			return err
		}
		if v.B, err = c.part(&in.Operands[2]); err != nil {
			return err
		}
		return c.videoOp(in, v.Do)
	}
}

// videoOp adds an operation on three words, of which the last is optional.
func (c *compiler) videoOp(in *ptx.Instr, f func(a, b, c uint32) uint32) error {
	d := in.Operands[0]
	d.Sel = ptx.SelNone
	r, err := c.dst(&d, ptx.B32)
	if err != nil {
		return err
	}
	src := []operand{2: c.constant(reg32, 0)}
	for i := range in.Operands[1:] {
		if src[i], _, err = c.word(&in.Operands[i+1]); err != nil {
			return err
		}
	}
	c.op(lift3(f), c.costs().Slow, r, src...)
	return nil
}

// videoMad compiles vmad.
func videoMad(c *compiler, in *ptx.Instr, m *mods) error {
	if err := c.arity(in, 4, 4); err != nil {
		return err
	}
	m.typ()
	v := arith.VideoMad{SignedA: m.typ() == ptx.S32, SignedB: m.typ() == ptx.S32, Sat: m.has("sat"), PlusOne: m.has("po")}
	switch m.any("shr7", "shr15") {
	case "shr7":
		v.Shift = 7
	case "shr15":
		v.Shift = 15
	}
	v.NegateProduct = in.Operands[1].Neg != in.Operands[2].Neg
	v.NegateC = in.Operands[3].Neg
	var err error
	if v.A, err = c.part(&in.Operands[1]); err != nil {
		return err
	}
	if v.B, err = c.part(&in.Operands[2]); err != nil {
		return err
	}
	return c.videoOp(in, v.Do)
}

// videoPacked compiles the instructions on two halves or four bytes.
func videoPacked(opcode string, n int) handler {
	return func(c *compiler, in *ptx.Instr, m *mods) error {
		if err := c.arity(in, 4, 4); err != nil {
			return err
		}
		v := arith.VideoPacked{Op: videoOps[opcode], Lanes: n}
		if v.Op == arith.VideoSet {
			cmp, ok := m.compare()
			if !ok {
				return c.invalid("no comparison")
			}
			v.Cmp = cmp
		} else {
			v.SignedD = m.typ() == ptx.S32
		}
		v.SignedA, v.SignedB = m.typ() == ptx.S32, m.typ() == ptx.S32
		v.Sat, v.Accumulate = m.has("sat"), m.has("add")
		elements := func(o *ptx.Operand, first int) (e [4]uint8) {
			list := o.Sel.Bytes()
			for i := range n {
				e[i] = uint8(first + i)
				switch {
				case n == 4 && len(list) == 4:
					e[i] = uint8(list[i])
				case n == 2 && len(list) == 4:
					e[i] = uint8(list[2*i] / 2)
				}
			}
			return e
		}
		// Without a selector, a selects from the first source and b from the second.
		v.A, v.B = elements(&in.Operands[1], 0), elements(&in.Operands[2], n)
		v.Mask = 1<<n - 1
		if list := in.Operands[0].Sel.Bytes(); list != nil {
			v.Mask = 0
			for _, k := range list {
				v.Mask |= 1 << (k * n / 4)
			}
		}
		return c.videoOp(in, v.Do)
	}
}
