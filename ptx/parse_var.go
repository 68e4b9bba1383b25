package ptx

import "math"

const (
	maxAlign = 1 << 20 // bytes; ptxas itself stops far below
	maxRegs  = 1e9 - 1 // in name<N>; a declaration costs nothing, only use does
	maxDims  = 16
	maxBytes = 1 << 48 // of one variable: the address space of any GPU
)

// isVariableSpace reports whether w begins a variable's declaration.
func isVariableSpace(w string) bool {
	switch w {
	case "reg", "sreg", "const", "global", "local", "param", "shared", "tex":
		return true
	}
	return false
}

// variables reads a declaration from its state space to its semicolon, and calls keep with each
// variable that it declares. first holds what preceded the state space (position, linking,
// attributes).
func (p *parser) variables(first Var, keep func(*Var)) bool {
	v := &first
	if !p.varHead(v) {
		return false
	}
	for {
		d := p.vars.one()
		*d = first
		d.Pos = p.here()
		if !p.declarator(d) || !p.count() {
			return false
		}
		if p.accept('=') && !p.initializer(d) {
			return false
		}
		p.names.declare(d)
		keep(d)
		if !p.accept(',') {
			return p.expect(';')
		}
	}
}

// varHead reads the part of a declaration before its first name: state space, alignment, vector,
// type, attributes and a parameter's .ptr, which compilers emit in different orders.
func (p *parser) varHead(v *Var) bool {
	space, ok := ParseSpace(p.peekWord())
	if !ok {
		return p.want("a state space")
	}
	v.Space = space
	p.word()
	p.skip()
	for p.peek() == '.' {
		switch w := p.peekWord(); w {
		case "align":
			if v.Align, ok = p.align(); !ok {
				return false
			}
		case "v2", "v4", "v8":
			p.word()
			v.Vector = int(w[1] - '0')
		case "attribute":
			if v.Attributes, ok = p.attributes(v.Attributes); !ok {
				return false
			}
		case "ptr":
			if !p.pointer(v) {
				return false
			}
		default:
			t, ok := ParseType(w)
			if !ok {
				return p.want("a type such as .b32")
			}
			if v.Type != NoType {
				return p.fail("two types in one declaration")
			}
			p.word()
			v.Type = t
		}
		p.skip()
	}
	if v.Type == NoType {
		return p.want("a type such as .b32")
	}
	return true
}

// align reads .align N.
func (p *parser) align() (int, bool) {
	p.word()
	p.skip()
	at := p.here()
	n, ok := p.integer("an alignment", 1, maxAlign)
	if ok && n&(n-1) != 0 {
		return 0, p.failAt(at, "alignment is no power of two")
	}
	return int(n), ok
}

// pointer reads .ptr{.space}{.align N}, with optional space between the words.
func (p *parser) pointer(v *Var) bool {
	p.word()
	p.skip()
	v.Ptr = &Ptr{}
	if s, ok := ParseSpace(p.peekWord()); ok {
		p.word()
		p.skip()
		v.Ptr.Space = s
	}
	var ok = true
	if p.peekWord() == "align" {
		v.Ptr.Align, ok = p.align()
	}
	return ok
}

// declarator reads a name with its register count or array dimensions.
func (p *parser) declarator(v *Var) bool {
	var ok bool
	if v.Name, ok = p.ident("a name"); !ok {
		return false
	}
	if p.accept('<') {
		at := p.here()
		text := p.number() // not an expression: its end would read as an operator
		n, ok := literal(orZero(text))
		if text == "" || !ok || n.imm != ImmInt || n.bits < 1 || n.bits > maxRegs {
			return p.failAt(at, "the number of registers must be an integer from 1 to 999999999")
		}
		v.Count = int(n.bits)
		p.skip()
		return p.expect('>')
	}
	size := int64(max(v.Type.Size(), 1)) * int64(max(v.Vector, 1))
	for p.accept('[') {
		if len(v.Dims) == maxDims {
			return p.fail("too many array dimensions")
		}
		if p.accept(']') {
			if len(v.Dims) > 0 {
				return p.fail("only the first array dimension may be empty")
			}
			v.Dims = append(v.Dims, Unsized)
			continue
		}
		at := p.here()
		n, ok := p.integer("an array dimension", 0, math.MaxInt64)
		if !ok {
			return false
		}
		if n > 0 && size > maxBytes/n {
			return p.failAt(at, "array is larger than any memory")
		}
		size *= max(n, 1)
		v.Dims = append(v.Dims, n)
		if !p.expect(']') {
			return false
		}
	}
	return true
}

// orZero makes text valid for literal, which requires at least a digit.
func orZero(text string) string {
	if text == "" {
		return "0"
	}
	return text
}

// params reads a parenthesised list of parameters.
func (p *parser) params() ([]*Var, bool) {
	if !p.expect('(') {
		return nil, false
	}
	var list []*Var
	if p.accept(')') {
		return nil, true
	}
	for {
		v := p.vars.one()
		v.Pos = p.here()
		if !p.varHead(v) || !p.declarator(v) || !p.count() {
			return nil, false
		}
		list = append(list, v)
		if !p.accept(',') {
			return list, p.expect(')')
		}
	}
}
