package ptx

import (
	"math"
	"strings"
)

// precedence maps the binary operators of constant expressions (§4.5.3) to their precedence, as in
// C.
var precedence = map[string]int{
	"||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6,
	"<": 7, "<=": 7, ">": 7, ">=": 7, "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}

// expr reads a constant expression and computes it.
func (p *parser) expr() (number, bool) {
	if n, ok := p.plainNumber(); ok {
		return n, true
	}
	return p.ternary()
}

// plainNumber reads a constant that is the whole expression, as nearly all are. It returns false,
// without moving, if the text at the cursor is something else.
func (p *parser) plainNumber() (number, bool) {
	at := p.scanner
	text := p.number()
	if text == "" {
		return number{}, false
	}
	p.skip()
	switch p.peek() {
	case ',', ';', '}', ']', ')':
		if n, ok := literal(text); ok {
			return n, true
		}
	}
	p.scanner = at
	return number{}, false
}

// ternary reads a conditional expression, or one of a lower level.
func (p *parser) ternary() (number, bool) {
	if !p.enter() {
		return number{}, false
	}
	defer p.leave()
	cond, ok := p.binary(1)
	if !ok || !p.accept('?') {
		return cond, ok
	}
	yes, ok := p.ternary()
	if !ok {
		return yes, false
	}
	if !p.accept(':') {
		return yes, p.want("':'")
	}
	no, ok := p.ternary()
	if cond.isZero() {
		yes = no
	}
	return yes, ok
}

// binary reads a chain of operators with at least the precedence least.
func (p *parser) binary(least int) (number, bool) {
	a, ok := p.unary()
	for ok {
		op := p.peekOperator()
		if op == "" || precedence[op] < least {
			break
		}
		at := p.here()
		p.pos += len(op)
		p.skip()
		var b number
		if b, ok = p.binary(precedence[op] + 1); !ok {
			break
		}
		var why string
		if a, why = compute(op, a, b); why != "" {
			return a, p.failAt(at, why)
		}
	}
	return a, ok
}

// peekOperator returns the binary operator at the cursor, or "".
func (p *parser) peekOperator() string {
	c, d := p.peek(), p.peekAt(1)
	two := d == c && (c == '|' || c == '&' || c == '=' || c == '<' || c == '>') || d == '=' && (c == '!' || c == '<' || c == '>')
	if two {
		return p.src[p.pos : p.pos+2]
	}
	switch c {
	case '|', '^', '&', '<', '>', '+', '-', '*', '/', '%':
		return p.src[p.pos : p.pos+1]
	}
	return ""
}

// unary reads an operator with one operand, a cast, or a primary expression.
func (p *parser) unary() (number, bool) {
	if !p.enter() {
		return number{}, false
	}
	defer p.leave()
	switch c := p.peek(); c {
	case '+', '-', '!', '~':
		p.pos++
		p.skip()
		n, ok := p.unary()
		if !ok {
			return n, false
		}
		return p.applyUnary(c, n)
	case '(':
		p.accept('(')
		if p.peek() == '.' {
			return p.cast()
		}
		n, ok := p.ternary()
		if ok && !p.accept(')') {
			return n, p.want("')'")
		}
		return n, ok
	}
	at := p.here()
	if text := p.number(); text != "" {
		n, ok := literal(text)
		if !ok {
			return n, p.failAt(at, "malformed number "+quotedShort(text))
		}
		p.skip()
		return n, true
	}
	if p.atWarpSize() {
		p.pos += len(warpSize)
		p.skip()
		return signedInt(32), true
	}
	return number{}, p.want("a number")
}

// warpSize is the name of PTX's only predefined constant.
const warpSize = "WARP_SZ"

// atWarpSize reports whether that name stands at the cursor.
func (p *parser) atWarpSize() bool {
	rest := p.src[p.pos:]
	return strings.HasPrefix(rest, warpSize) && (len(rest) == len(warpSize) || class[rest[len(warpSize)]]&isIdent == 0)
}

// cast reads (.s64) or (.u64), starting at the dot, and its operand.
func (p *parser) cast() (number, bool) {
	w := p.peekWord()
	if w != "s64" && w != "u64" {
		return number{}, p.want(".s64 or .u64")
	}
	p.word()
	p.skip()
	if !p.accept(')') {
		return number{}, p.want("')'")
	}
	n, ok := p.unary()
	if n.imm != ImmInt {
		return n, ok && p.fail("a cast of a floating-point constant")
	}
	n.unsigned = w == "u64"
	return n, ok
}

// applyUnary computes op n.
func (p *parser) applyUnary(op byte, n number) (number, bool) {
	switch {
	case op == '+':
		return n, true
	case op == '!':
		return truth(n.isZero()), true
	case op == '~' && n.imm == ImmInt:
		n.bits = ^n.bits
		return n, true
	case op == '~':
		return n, p.fail("'~' of a floating-point constant")
	case n.imm == ImmF32:
		n.bits ^= 1 << 31
	case n.imm == ImmF64:
		n.bits ^= 1 << 63
	default:
		n.bits = -n.bits
	}
	return n, true
}

// compute applies a binary operator; why says what is wrong, or is "".
func compute(op string, a, b number) (n number, why string) {
	switch op {
	case "&&":
		return truth(!a.isZero() && !b.isZero()), ""
	case "||":
		return truth(!a.isZero() || !b.isZero()), ""
	}
	if a.imm != ImmInt || b.imm != ImmInt {
		return computeFloat(op, a.float(), b.float())
	}
	unsigned := a.unsigned || b.unsigned
	order := func(less, equal, more bool) (number, string) {
		switch {
		case a.bits == b.bits:
			return truth(equal), ""
		case unsigned && a.bits < b.bits || !unsigned && int64(a.bits) < int64(b.bits):
			return truth(less), ""
		}
		return truth(more), ""
	}
	n.unsigned = unsigned
	switch op {
	case "+":
		n.bits = a.bits + b.bits
	case "-":
		n.bits = a.bits - b.bits
	case "*":
		n.bits = a.bits * b.bits
	case "&":
		n.bits = a.bits & b.bits
	case "|":
		n.bits = a.bits | b.bits
	case "^":
		n.bits = a.bits ^ b.bits
	case "<<", ">>":
		n.unsigned = a.unsigned
		n.bits = shift(op, a, min(b.bits, 64))
	case "/", "%":
		if b.bits == 0 {
			return n, "division by zero in a constant"
		}
		n.bits = divide(op, unsigned, a.bits, b.bits)
	case "==":
		return order(false, true, false)
	case "!=":
		return order(true, false, true)
	case "<":
		return order(true, false, false)
	case "<=":
		return order(true, true, false)
	case ">":
		return order(false, false, true)
	case ">=":
		return order(false, true, true)
	}
	return n, ""
}

// shift computes a << by or a >> by; the latter keeps the sign of a signed number.
func shift(op string, a number, by uint64) uint64 {
	switch {
	case op == "<<":
		return a.bits << by
	case a.unsigned:
		return a.bits >> by
	}
	return uint64(int64(a.bits) >> by)
}

// divide computes a / b or a % b, b not zero. The one signed quotient that overflows wraps, as Go
// defines it.
func divide(op string, unsigned bool, a, b uint64) uint64 {
	switch {
	case unsigned && op == "/":
		return a / b
	case unsigned:
		return a % b
	case op == "/":
		return uint64(int64(a) / int64(b))
	}
	return uint64(int64(a) % int64(b))
}

// computeFloat is compute for floating-point operands, whose result is double precision.
func computeFloat(op string, a, b float64) (number, string) {
	var v float64
	switch op {
	case "+":
		v = a + b
	case "-":
		v = a - b
	case "*":
		v = a * b
	case "/":
		v = a / b
	case "==":
		return truth(a == b), ""
	case "!=":
		return truth(a != b), ""
	case "<":
		return truth(a < b), ""
	case "<=":
		return truth(a <= b), ""
	case ">":
		return truth(a > b), ""
	case ">=":
		return truth(a >= b), ""
	default:
		return number{}, "operator '" + op + "' on floating-point constants"
	}
	return number{imm: ImmF64, bits: math.Float64bits(v)}, ""
}
