package ptx

import (
	"fmt"
	"strings"
)

// instruction reads {@{!}p} form {operand, …} ;
func (p *parser) instruction() bool {
	i := p.instrs.one()
	i.Pos = p.here()
	if p.peek() == '@' {
		p.accept('@')
		i.Pred.Not = p.accept('!')
		var ok bool
		if i.Pred.Name, ok = p.ident("a predicate register"); !ok {
			return false
		}
	}
	if !p.form(i) {
		return false
	}
	if !p.accept(';') {
		if !p.instrOperands(i) {
			return false
		}
	}
	p.add(i)
	return true
}

// form reads opcode and modifiers. Instructions of the same form share the slice of modifiers, and
// it is split only once.
func (p *parser) form(i *Instr) bool {
	start := p.pos
	opcode := p.name()
	if opcode == "" || opcode[0] == '%' {
		p.pos = start
		return p.want("an instruction, label, declaration or '}'")
	}
	end := p.formEnd()
	f, ok := p.forms[p.src[start:end]]
	if !ok {
		f.opcode = opcode
		if end > p.pos {
			words := strings.SplitN(p.src[p.pos+1:end], ".", maxNames+1)
			if len(words) > maxNames {
				return p.fail("too many modifiers")
			}
			f.modifiers = p.strings.keep(words)
		}
		p.forms[p.src[start:end]] = f
	}
	p.pos = end
	i.Opcode, i.Modifiers = f.opcode, f.modifiers
	p.skip()
	if p.peek() == '.' { // "ld.global .u32" is rare, so it may be slow
		i.Modifiers = append([]string(nil), i.Modifiers...)
		for p.peek() == '.' {
			w := p.word()
			if w == "" {
				return p.want("a modifier")
			}
			if len(i.Modifiers) == maxNames {
				return p.fail("too many modifiers")
			}
			i.Modifiers = append(i.Modifiers, w)
			p.skip()
		}
	}
	return true
}

// formEnd returns the offset after the modifiers at the cursor, without moving.
func (p *parser) formEnd() int {
	src, i := p.src, p.pos
	for i+1 < len(src) && src[i] == '.' && class[src[i+1]]&isIdent != 0 {
		i += 2
		for i < len(src) {
			if class[src[i]]&isIdent != 0 {
				i++
			} else if src[i] == ':' && i+2 < len(src) && src[i+1] == ':' && class[src[i+2]]&isIdent != 0 {
				i += 3
			} else {
				break
			}
		}
	}
	return i
}

// instrOperands reads the operands to the semicolon.
func (p *parser) instrOperands(i *Instr) bool {
	base := len(p.operandStack)
	list := i.Opcode == "call"
	ok := true
	for {
		var o Operand
		if o, ok = p.operand(list); !ok {
			break
		}
		if ok = p.push(o); !ok {
			break
		}
		if p.accept(',') {
			continue
		}
		if list && p.peek() == '(' || list && o.Kind == KindList && p.peek() != ';' {
			continue // call (r) f (a) without commas, as early compilers emitted it
		}
		ok = p.accept(';') || p.want("',' or ';'")
		break
	}
	i.Operands = p.keepOperands(base)
	return ok
}

// keepOperands moves the operands pushed since base to a slice of their own.
func (p *parser) keepOperands(base int) []Operand {
	kept := p.operands.keep(p.operandStack[base:])
	p.operandStack = p.operandStack[:base]
	return kept
}

// operand reads one operand, or two with a bar between them. In a call, parentheses hold a list.
func (p *parser) operand(call bool) (Operand, bool) {
	o, ok := p.single(call)
	if !ok || p.peek() != '|' {
		return o, ok
	}
	p.accept('|')
	b, ok := p.single(false)
	if !ok {
		return b, false
	}
	base := len(p.operandStack)
	p.operandStack = append(p.operandStack, o, b)
	return Operand{Kind: KindPair, Elems: p.keepOperands(base)}, true
}

// single reads one operand.
func (p *parser) single(call bool) (Operand, bool) {
	c := p.peek()
	if class[c]&isNameStart != 0 {
		return p.named()
	}
	switch c {
	case '[':
		return p.address()
	case '{':
		return p.group(KindVector, '}', call)
	case '(':
		if call {
			return p.group(KindList, ')', call)
		}
	case '!', '-':
		return p.signed(c)
	}
	n, ok := p.expr()
	return Operand{Kind: KindImm, Imm: n.imm, Bits: n.bits}, ok
}

// signed reads an operand after ! or -: a register that it negates, or a constant.
func (p *parser) signed(sign byte) (Operand, bool) {
	at := p.scanner
	p.accept(sign)
	if class[p.peek()]&isNameStart != 0 && !p.atWarpSize() {
		o, ok := p.named()
		o.Not, o.Neg = sign == '!', sign == '-'
		if ok && o.Kind != KindReg {
			p.scanner = at
			return o, p.want("a register or number")
		}
		return o, ok
	}
	p.scanner = at
	n, ok := p.expr()
	return Operand{Kind: KindImm, Imm: n.imm, Bits: n.bits}, ok
}

// named reads an operand that begins with a name.
func (p *parser) named() (Operand, bool) {
	start := p.scanner
	name := p.name()
	switch name {
	case "":
		return Operand{}, p.want("an operand")
	case "_":
		p.skip()
		return Operand{Kind: KindSink}, true
	case warpSize:
		p.skip()
		switch p.peek() {
		case ',', ';', ']', '}', ')', '|':
			return Operand{Kind: KindWarpSize}, true
		}
		p.scanner = start
		n, ok := p.expr()
		return Operand{Kind: KindImm, Imm: n.imm, Bits: n.bits}, ok
	}
	o := Operand{Kind: KindSymbol, Name: name}
	if name == "generic" && p.genericAhead() {
		if o.Name = p.parenthesised(); o.Name == "" {
			return o, false
		}
		o.Generic = true
	} else if p.names.reg(name) {
		o.Kind = KindReg
	}
	if p.peek() == '.' {
		at := p.here()
		w := p.word()
		var ok bool
		if o.Sel, ok = ParseSelector(w); !ok {
			return o, p.note(&Error{Pos: at, Want: "a component such as .x", Got: quotedShort("." + w)})
		}
		o.Kind = KindReg // only registers have parts
	}
	p.skip()
	if p.peek() == '+' || p.peek() == '-' {
		off, ok := p.offset()
		o.Bits = uint64(off)
		return o, ok
	}
	return o, true
}

// genericAhead reports whether a parenthesis follows.
func (p *parser) genericAhead() bool {
	at := p.scanner
	p.skip()
	is := p.peek() == '('
	p.scanner = at
	return is
}

// parenthesised reads a name in parentheses; it returns "" after an error.
func (p *parser) parenthesised() string {
	p.skip()
	if !p.expect('(') {
		return ""
	}
	name, ok := p.ident("a variable or function")
	if !ok || !p.expect(')') {
		return ""
	}
	return name
}

// offset reads the displacement of a base: +8, -8, +-8.
func (p *parser) offset() (int64, bool) {
	at := p.here()
	p.accept('+')
	n, ok := p.expr()
	if ok && n.imm != ImmInt {
		return 0, p.failAt(at, "an offset must be an integer")
	}
	return int64(n.bits), ok
}

// address reads [base{+offset}{, operand}…].
func (p *parser) address() (Operand, bool) {
	p.accept('[')
	o := Operand{Kind: KindAddr}
	if !p.enter() {
		return o, false
	}
	defer p.leave()
	base, ok := p.single(false)
	if !ok {
		return o, false
	}
	switch base.Kind {
	case KindReg, KindSymbol:
	case KindImm:
		if base.Imm != ImmInt {
			return o, p.fail("an address must be an integer")
		}
	default:
		return o, p.fail("an address must begin with a register, a variable or a number")
	}
	if base.Not || base.Neg {
		return o, p.fail("an address can't begin with a negated register")
	}
	o.Base, o.Name, o.Sel, o.Bits, o.Generic = base.Kind, base.Name, base.Sel, base.Bits, base.Generic
	stack := len(p.operandStack)
	for p.accept(',') {
		e, ok := p.operand(false)
		if !ok || !p.push(e) {
			p.operandStack = p.operandStack[:stack]
			return o, false
		}
	}
	o.Elems = p.keepOperands(stack)
	return o, p.accept(']') || p.want("'+', ',' or ']'")
}

// group reads a vector or list to its closing byte.
func (p *parser) group(kind OperandKind, closing byte, call bool) (Operand, bool) {
	o := Operand{Kind: kind}
	p.pos++
	p.skip()
	if p.accept(closing) {
		return o, true
	}
	if !p.enter() {
		return o, false
	}
	defer p.leave()
	base := len(p.operandStack)
	for {
		e, ok := p.operand(call)
		if !ok || !p.push(e) {
			p.operandStack = p.operandStack[:base]
			return o, false
		}
		if !p.accept(',') {
			break
		}
	}
	o.Elems = p.keepOperands(base)
	return o, p.accept(closing) || p.want("',' or "+quoted(string(closing)))
}

// push puts an operand on the stack, within the limit.
func (p *parser) push(o Operand) bool {
	if len(p.operandStack) >= p.opts.MaxElements {
		return p.fail(fmt.Sprintf("more operands than the limit of %d", p.opts.MaxElements))
	}
	p.pushed++
	if p.pushed > p.opts.MaxOperands {
		return p.exceed(fmt.Sprintf("more operands in all than the limit of %d", p.opts.MaxOperands))
	}
	p.operandStack = append(p.operandStack, o)
	return true
}
