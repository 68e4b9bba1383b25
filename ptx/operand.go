package ptx

import "math"

// OperandKind says what an operand is, and which fields of [Operand] hold it.
type OperandKind uint8

// The kinds of operands.
const (
	KindNone     OperandKind = iota
	KindReg                  // a register, also a special one: Name, Sel, Not, Neg, and Bits, an offset that ptxas allows and no compiler emits
	KindImm                  // a constant: Imm, Bits
	KindSymbol               // a variable, parameter, function, label, prototype or list of targets: Name, Bits (an offset), Generic
	KindAddr                 // [base+offset] or [base, …]: Base, Name, Sel, Bits, Elems
	KindVector               // {a, b, …}: Elems
	KindPair                 // a|b: Elems, two of them
	KindList                 // (a, b, …), a call's parameters: Elems
	KindSink                 // _, an unused result
	KindWarpSize             // WARP_SZ
)

// ImmType is the interpretation of an immediate's Bits.
type ImmType uint8

// The types of immediates. A decimal floating-point constant is an F64, as PTX has it (§4.5.2).
const (
	ImmInt ImmType = iota // a 64-bit integer, two's complement
	ImmF32                // the low 32 bits are a float32: 0f3F800000
	ImmF64                // a float64: 0d3FF0000000000000
)

// Operand is one operand of an instruction. It is a plain value: copying it copies the operand,
// save for Elems.
type Operand struct {
	Kind    OperandKind
	Base    OperandKind // of a KindAddr: KindReg, KindSymbol or KindImm
	Imm     ImmType
	Not     bool     // !%p
	Neg     bool     // -%r, of the video instructions; a constant's sign is in Bits
	Generic bool     // generic(symbol)
	Sel     Selector // %tid.x, %r1.b0
	Name    string
	Bits    uint64    // a constant's bits; an address' or symbol's offset (int64); a KindImm address itself
	Elems   []Operand // of a vector, pair or list; what follows the base in an address, as in [tex, {x, y}]
	Sym     *Symbol   // what Name refers to: set by Resolve, never printed or compared
}

// Offset returns the displacement of an address or symbol operand in bytes.
func (o *Operand) Offset() int64 { return int64(o.Bits) }

// Int returns the value of an integer constant.
func (o *Operand) Int() int64 { return int64(o.Bits) }

// Float returns the value of a constant as a float64, converted if it is an integer or a float32.
func (o *Operand) Float() float64 {
	switch o.Imm {
	case ImmF32:
		return float64(math.Float32frombits(uint32(o.Bits)))
	case ImmF64:
		return math.Float64frombits(o.Bits)
	}
	return float64(int64(o.Bits))
}

// Reg returns a register operand.
func Reg(name string) Operand { return Operand{Kind: KindReg, Name: name} }

// Int returns an integer constant.
func Int(v int64) Operand { return Operand{Kind: KindImm, Imm: ImmInt, Bits: uint64(v)} }

// Sym returns an operand that names a variable, function or label.
func Sym(name string) Operand { return Operand{Kind: KindSymbol, Name: name} }

// MemSym returns the address operand [name+offset] with a variable or parameter as its base.
func MemSym(name string, offset int64) Operand {
	return Operand{Kind: KindAddr, Base: KindSymbol, Name: name, Bits: uint64(offset)}
}

// List returns a call's parameter list.
func List(elems ...Operand) Operand { return Operand{Kind: KindList, Elems: elems} }

// Call holds the parts of a call instruction.
type Call struct {
	Returns []Operand // where results go: parameter variables, registers or sinks
	Target  Operand   // a function's name, or a register that holds its address
	Args    []Operand
	Proto   Operand // an indirect call's prototype or list of targets; KindNone for a direct one
}

// Call returns the parts of a call instruction: call{.uni} (ret), target, (args), proto, where only
// the target is required. It returns false for any other instruction.
func (i *Instr) Call() (Call, bool) {
	var c Call
	ops := i.Operands
	if i.Opcode != "call" {
		return c, false
	}
	if len(ops) > 0 && ops[0].Kind == KindList {
		c.Returns, ops = ops[0].Elems, ops[1:]
	}
	if len(ops) == 0 || ops[0].Kind != KindSymbol && ops[0].Kind != KindReg {
		return c, false
	}
	c.Target, ops = ops[0], ops[1:]
	if len(ops) > 0 && ops[0].Kind == KindList {
		c.Args, ops = ops[0].Elems, ops[1:]
	}
	if len(ops) > 0 {
		c.Proto, ops = ops[0], ops[1:]
	}
	return c, len(ops) == 0
}

// Selector picks a part of a register: a vector's component (.x), or bytes or half words for the
// video instructions (.b0, .h1, .b3210, .h10). The zero Selector picks the whole.
type Selector uint16

// Components of vectors and of special registers such as %tid. The letters r, g, b, a name the same
// four.
const (
	SelNone Selector = iota
	SelX
	SelY
	SelZ
	SelW
)

// A byte or half-word selector has its class in the top bits and up to four octal digits, of which
// the first written one is the highest.
const (
	selBytes   Selector = 1 << 15
	selHalves  Selector = 1 << 14
	selSeveral Selector = 1 << 13 // two digits (halves) or four (bytes) rather than one
	selDigits           = 1<<12 - 1
)

// ParseSelector parses a selector written without its dot.
func ParseSelector(s string) (Selector, bool) {
	if len(s) == 1 {
		switch s[0] {
		case 'x', 'r':
			return SelX, true
		case 'y', 'g':
			return SelY, true
		case 'z', 'b':
			return SelZ, true
		case 'w', 'a':
			return SelW, true
		}
		return 0, false
	}
	if len(s) < 2 || len(s) > 5 {
		return 0, false
	}
	var sel Selector
	switch {
	case s[0] == 'b' && len(s) == 2:
		sel = selBytes
	case s[0] == 'b' && len(s) == 5:
		sel = selBytes | selSeveral
	case s[0] == 'h' && len(s) == 2:
		sel = selHalves
	case s[0] == 'h' && len(s) == 3:
		sel = selHalves | selSeveral
	default:
		return 0, false
	}
	var digits Selector
	for _, c := range []byte(s[1:]) {
		if c < '0' || c > '7' {
			return 0, false
		}
		digits = digits<<3 | Selector(c-'0')
	}
	return sel | digits, true
}

// String returns the selector as written, without its dot; "" for SelNone.
func (s Selector) String() string {
	switch {
	case s == SelNone:
		return ""
	case s <= SelW:
		return "xyzw"[s-1 : s]
	}
	class, n := byte('b'), 1
	if s&selHalves != 0 {
		class = 'h'
	}
	if s&selSeveral != 0 {
		n = 2
		if class == 'b' {
			n = 4
		}
	}
	buf := []byte{class}
	for i := n - 1; i >= 0; i-- {
		buf = append(buf, '0'+byte(s&selDigits>>(3*i)&7))
	}
	return string(buf)
}

// Component returns which component of a vector the selector picks, 0 to 3, or false if it picks
// none.
func (s Selector) Component() (int, bool) {
	if s >= SelX && s <= SelW {
		return int(s - SelX), true
	}
	return 0, false
}

// Bytes returns the source bytes that a byte or half-word selector picks, the least significant
// first: .b2 gives 2, .h1 gives 2 and 3. It is nil for other selectors.
func (s Selector) Bytes() []int {
	if s&(selBytes|selHalves) == 0 {
		return nil
	}
	var out []int
	text := s.String()
	for i := len(text) - 1; i >= 1; i-- {
		d := int(text[i] - '0')
		if text[0] == 'b' {
			out = append(out, d)
		} else {
			out = append(out, 2*d, 2*d+1)
		}
	}
	return out
}
