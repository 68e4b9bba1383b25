package ptx

import "strconv"

// instr writes an instruction with its semicolon.
func (p *printer) instr(i *Instr) {
	if i.Guarded() {
		p.byte('@')
		if i.Pred.Not {
			p.byte('!')
		}
		p.str(i.Pred.Name)
		p.byte(' ')
	}
	p.str(i.Opcode)
	for _, m := range i.Modifiers {
		p.dot(m)
	}
	for j := range i.Operands {
		if j > 0 {
			p.byte(',')
		}
		p.byte(' ')
		p.operand(&i.Operands[j])
	}
	p.byte(';')
}

// operandList writes operands separated by commas.
func (p *printer) operandList(list []Operand) {
	for i := range list {
		p.comma(i)
		p.operand(&list[i])
	}
}

func (p *printer) operand(o *Operand) {
	switch {
	case o.Not:
		p.byte('!')
	case o.Neg:
		p.byte('-')
	}
	switch o.Kind {
	case KindReg:
		p.register(o)
		p.displacement(int64(o.Bits))
	case KindImm:
		p.constant(o.Imm, o.Bits)
	case KindSymbol:
		p.symbol(o)
	case KindAddr:
		p.byte('[')
		switch o.Base {
		case KindReg:
			p.register(o)
			p.displacement(int64(o.Bits))
		case KindSymbol:
			p.symbol(o)
		default:
			p.constant(ImmInt, o.Bits)
		}
		for i := range o.Elems {
			p.str(", ")
			p.operand(&o.Elems[i])
		}
		p.byte(']')
	case KindVector:
		p.byte('{')
		p.operandList(o.Elems)
		p.byte('}')
	case KindList:
		p.byte('(')
		p.operandList(o.Elems)
		p.byte(')')
	case KindPair:
		for i := range o.Elems {
			if i > 0 {
				p.byte('|')
			}
			p.operand(&o.Elems[i])
		}
	case KindSink:
		p.byte('_')
	case KindWarpSize:
		p.str(warpSize)
	}
}

func (p *printer) register(o *Operand) {
	p.str(o.Name)
	if o.Sel != SelNone {
		p.dot(o.Sel.String())
	}
}

func (p *printer) symbol(o *Operand) {
	if o.Generic {
		p.str("generic(" + o.Name + ")")
	} else {
		p.str(o.Name)
	}
	p.displacement(int64(o.Bits))
}

// displacement writes the displacement of a base as nvcc does: +8, +-8.
func (p *printer) displacement(v int64) {
	if v != 0 {
		p.byte('+')
		p.int(v)
	}
}

// constant writes a number such that parsing it gives the same bits.
func (p *printer) constant(imm ImmType, bits uint64) {
	switch imm {
	case ImmF32:
		p.str("0f")
		p.hex(bits, 8)
	case ImmF64:
		p.str("0d")
		p.hex(bits, 16)
	default:
		p.buf = strconv.AppendInt(p.buf, int64(bits), 10)
	}
}

// hex writes the last n hexadecimal digits of v.
func (p *printer) hex(v uint64, n int) {
	const digits = "0123456789ABCDEF"
	for i := n - 1; i >= 0; i-- {
		p.byte(digits[v>>(4*i)&15])
	}
}
