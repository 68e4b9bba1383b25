package simt

import (
	"fmt"

	"vgpud/ptx"
)

// everyone adds an instruction that a warp executes as a whole.
func (c *compiler) everyone(in *ptx.Instr, run exchangeFunc, cost uint32) {
	i := c.exchange(in, exchange{run: run}, c.constant(reg32, uint64(full)), operand{})
	i.x.exchange.same = true
	i.cost = uint64(cost)
}

// shape consumes a modifier like m16n8k16.
func (m *mods) shape() (rows, cols, inner int, ok bool) {
	for i, s := range m.list {
		if m.used>>i&1 != 0 {
			continue
		}
		var r, n, k int
		if _, err := fmt.Sscanf(s, "m%dn%dk%d", &r, &n, &k); err == nil && fmt.Sprintf("m%dn%dk%d", r, n, k) == s {
			m.used |= 1 << i
			return r, n, k, true
		}
	}
	return 0, 0, 0, false
}

// registers finds the registers of a fragment, which are of 32 bits, or of 64 for doubles.
func (c *compiler) registers(o *ptx.Operand, t ptx.Type, result bool) ([]operand, error) {
	word := ptx.B32
	if t == ptx.F64 {
		word = ptx.B64
	}
	var list []operand
	for _, e := range elements(o) {
		find := c.src
		if result {
			find = c.dst
		}
		r, err := find(e, word)
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}

// fragment returns a fragment of an instruction's operand. Without an operand of mma it is one of
// wmma.
func (c *compiler) fragment(o *ptx.Operand, t ptx.Type, operand byte, rows, cols int, result bool) (fragment, error) {
	f := fragment{typ: t, bits: t.Bits(), rows: rows, cols: cols}
	var err error
	if f.regs, err = c.registers(o, t, result); err != nil {
		return f, err
	}
	n := len(f.regs) * max(32/f.bits, 1)
	total := rows * cols
	if n == 0 || n > 16 || operand != 0 && n*lanes != total || operand == 0 && (n*lanes < total || n*lanes%total != 0) {
		return f, c.invalid("%d registers for a matrix of %d×%d elements of type .%s", len(f.regs), rows, cols, t)
	}
	if err := c.charge(len(f.regs)); err != nil {
		return f, err
	}
	key := layoutKey{operand: operand, rows: rows, cols: cols, bits: f.bits, elements: n}
	f.places = c.loader.places(key)
	return f, nil
}

// wmmaShapes and mmaShapes hold the shapes by the type of a, as m, n and k.
var wmmaShapes = map[ptx.Type][][3]int{
	ptx.F16: {{16, 16, 16}, {8, 32, 16}, {32, 8, 16}}, ptx.BF16: {{16, 16, 16}, {8, 32, 16}, {32, 8, 16}},
	ptx.S8: {{16, 16, 16}, {8, 32, 16}, {32, 8, 16}}, ptx.U8: {{16, 16, 16}, {8, 32, 16}, {32, 8, 16}},
	ptx.TF32: {{16, 16, 8}}, ptx.F64: {{8, 8, 4}},
}

var mmaShapes = map[ptx.Type][][3]int{
	ptx.F16: {{16, 8, 8}, {16, 8, 16}}, ptx.BF16: {{16, 8, 8}, {16, 8, 16}}, ptx.TF32: {{16, 8, 4}, {16, 8, 8}},
	ptx.S8: {{8, 8, 16}, {16, 8, 16}, {16, 8, 32}}, ptx.U8: {{8, 8, 16}, {16, 8, 16}, {16, 8, 32}},
	ptx.E4M3: {{16, 8, 16}, {16, 8, 32}}, ptx.E5M2: {{16, 8, 16}, {16, 8, 32}},
	ptx.F64: {{8, 8, 4}, {16, 8, 4}, {16, 8, 8}, {16, 8, 16}},
}

func hasShape(list [][3]int, m, n, k int) bool {
	for _, s := range list {
		if s == [3]int{m, n, k} {
			return true
		}
	}
	return false
}

// accumulates reports whether a multiplication of types a and b can have sums of types d and c.
func accumulates(d, a, b, c ptx.Type) bool {
	switch a {
	case ptx.F16:
		return b == a && (d == ptx.F16 || d == ptx.F32) && (c == ptx.F16 || c == ptx.F32)
	case ptx.E4M3, ptx.E5M2:
		return (b == ptx.E4M3 || b == ptx.E5M2) && (d == ptx.F16 || d == ptx.F32) && c == d
	case ptx.S8, ptx.U8:
		return (b == ptx.S8 || b == ptx.U8) && d == ptx.S32 && c == d
	case ptx.F64:
		return b == a && d == a && c == a
	}
	return b == a && d == ptx.F32 && c == d // bf16, tf32
}

// mma compiles mma.sync.
func mma(c *compiler, in *ptx.Instr, m *mods) error {
	if !m.has("sync") {
		return c.unsupported("this form of mma")
	}
	m.skip("aligned", "rn")
	rows, cols, inner, ok := m.shape()
	if !ok || !m.has("row") || !m.has("col") {
		return c.unsupported("this shape")
	}
	var x multiplication
	x.saturate = m.has("satfinite")
	return c.multiplication(in, m, &x, mmaShapes, rows, cols, inner, m.typ(), m.typ(), m.typ(), m.typ(), true)
}

// wmma compiles wmma.
func wmma(c *compiler, in *ptx.Instr, m *mods) error {
	what := m.any("load", "store", "mma")
	if what != "mma" && what != "" {
		return matrixMemory(c, in, m, what == "store")
	}
	if what == "" || !m.has("sync") {
		return c.unsupported("this form of wmma")
	}
	m.skip("aligned", "rn")
	m.any("row", "col") // the layouts of a and b: wmma.load has followed them
	m.any("row", "col")
	rows, cols, inner, ok := m.shape()
	if !ok {
		return c.unsupported("this shape")
	}
	var x multiplication
	x.saturate = m.has("satfinite")
	d, a := m.typ(), m.typ()
	b, sum := m.typ(), m.typ()
	if b == ptx.NoType { // .dtype.ctype, of halves
		sum, a, b = a, ptx.F16, ptx.F16
	}
	return c.multiplication(in, m, &x, wmmaShapes, rows, cols, inner, d, a, b, sum, false)
}

func (c *compiler) multiplication(in *ptx.Instr, m *mods, x *multiplication, shapes map[ptx.Type][][3]int, rows, cols, inner int, d, a, b, sum ptx.Type, mma bool) error {
	if !hasShape(shapes[a], rows, cols, inner) || !accumulates(d, a, b, sum) || x.saturate && d != ptx.S32 {
		if x.saturate && d != ptx.S32 && d != ptx.F64 { // of halves: obsolete
			return c.unsupported("saturation")
		}
		return c.unsupported("m%dn%dk%d of types .%s, .%s, .%s and .%s", rows, cols, inner, d, a, b, sum)
	}
	if err := c.arity(in, 4, 4); err != nil {
		return err
	}
	operands := [4]byte{'c', 'a', 'b', 'c'}
	if !mma {
		operands = [4]byte{}
	}
	var err error
	for i, f := range []struct {
		to         *fragment
		t          ptx.Type
		rows, cols int
	}{{&x.d, d, rows, cols}, {&x.a, a, rows, inner}, {&x.b, b, inner, cols}, {&x.c, sum, rows, cols}} {
		if *f.to, err = c.fragment(&in.Operands[i], f.t, operands[i], f.rows, f.cols, i == 0); err != nil {
			return err
		}
	}
	c.everyone(in, x.run, c.costs().Shuffle+c.costs().Wide*uint32(rows*cols*inner/lanes))
	return nil
}

// matrixMemory compiles wmma.load and wmma.store.
func matrixMemory(c *compiler, in *ptx.Instr, m *mods, store bool) error {
	which := m.any("a", "b", "c", "d")
	if which == "" || !m.has("sync") || store != (which == "d") {
		return c.unsupported("this form of wmma")
	}
	m.skip("aligned")
	layout := m.any("row", "col")
	rows, cols, inner, ok := m.shape()
	if !ok || layout == "" {
		return c.unsupported("this shape")
	}
	space := m.space()
	t := m.typ()
	x := &matrixAccess{size: t.Size(), byColumn: layout == "col"}
	valid := false
	for a, list := range wmmaShapes {
		sums := t == ptx.F32 && a != ptx.F64 && a != ptx.S8 && a != ptx.U8 || t == ptx.S32 && (a == ptx.S8 || a == ptx.U8) || t == a && (a == ptx.F16 || a == ptx.F64)
		valid = valid || hasShape(list, rows, cols, inner) && (a == t && (which == "a" || which == "b") || sums && (which == "c" || which == "d"))
	}
	if !valid {
		return c.unsupported("m%dn%dk%d of type .%s", rows, cols, inner, t)
	}
	switch which {
	case "a":
		cols = inner
	case "b":
		rows = inner
	}
	if err := c.arity(in, 2, 3); err != nil {
		return err
	}
	regs, addr := &in.Operands[0], &in.Operands[1]
	if store {
		regs, addr = addr, regs
	}
	var err error
	if x.fragment, err = c.fragment(regs, t, 0, rows, cols, !store); err != nil {
		return err
	}
	if x.base, err = c.pointer(addr, space); err != nil {
		return err
	}
	if len(in.Operands) == 3 {
		if x.stride, err = c.src(&in.Operands[2], ptx.B32); err != nil {
			return err
		}
	} else if x.byColumn {
		x.stride = c.constant(reg32, uint64(rows))
	} else {
		x.stride = c.constant(reg32, uint64(cols))
	}
	x.access = access{size: uint32(x.size), space: x.base.space, write: store}
	op := x.load
	if store {
		op = x.store
	}
	c.emit(inst{op: op, run: 1}, c.costs().Memory*uint32(x.elements()))
	return nil
}

// matrixRows compiles ldmatrix and stmatrix.
func matrixRows(store bool) handler {
	return func(c *compiler, in *ptx.Instr, m *mods) error {
		if !m.has("sync") || !m.has("m8n8") {
			return c.unsupported("this form")
		}
		m.skip("aligned")
		n := map[string]int{"x1": 1, "x2": 2, "x4": 4}[m.any("x1", "x2", "x4")]
		x := &rowsOf{transpose: m.has("trans")}
		space := m.space()
		if n == 0 || m.typ() != ptx.B16 || space != ptx.SharedSpace && space != ptx.NoSpace {
			return c.unsupported("this form")
		}
		if err := c.arity(in, 2, 2); err != nil {
			return err
		}
		regs, addr := &in.Operands[0], &in.Operands[1]
		if store {
			regs, addr = addr, regs
		}
		var err error
		if x.regs, err = c.registers(regs, ptx.B32, !store); err != nil {
			return err
		}
		if len(x.regs) != n {
			return c.invalid("%d registers for %d matrices", len(x.regs), n)
		}
		if x.base, err = c.pointer(addr, space); err != nil {
			return err
		}
		x.access = access{size: 16, space: x.base.space, write: store}
		run := x.load
		if store {
			run = x.store
		}
		c.everyone(in, run, c.costs().Memory*uint32(n))
		return nil
	}
}

// movmatrix compiles movmatrix, which transposes a matrix.
func movmatrix(c *compiler, in *ptx.Instr, m *mods) error {
	if !m.has("sync") || !m.has("m8n8") || !m.has("trans") || m.typ() != ptx.B16 {
		return c.unsupported("this form")
	}
	m.skip("aligned")
	if err := c.arity(in, 2, 2); err != nil {
		return err
	}
	d, err := c.dst(&in.Operands[0], ptx.B32)
	if err != nil {
		return err
	}
	a, err := c.src(&in.Operands[1], ptx.B32)
	if err != nil {
		return err
	}
	c.everyone(in, transposed(d, a), c.costs().Shuffle)
	return nil
}
