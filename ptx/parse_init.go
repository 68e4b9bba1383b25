package ptx

import "fmt"

// initializer checks the initializer at the cursor against the variable's shape and keeps its text.
func (p *parser) initializer(v *Var) bool {
	in := &Init{Pos: p.here()}
	start := p.pos
	var end int
	var ok bool
	if v.Type.Class() == Opaque {
		end, ok = p.opaqueInit()
	} else {
		w := newInitWalk(p, v)
		ok = w.level(0)
		end = w.end
	}
	if !ok {
		return false
	}
	in.Raw = p.src[start:end]
	v.Init = in
	return true
}

// opaqueInit reads a texture's or sampler's { field = value, … }, or an array of those. It returns
// the offset after the last brace.
func (p *parser) opaqueInit() (int, bool) {
	if !p.expect('{') || !p.enter() {
		return 0, false
	}
	defer p.leave()
	for p.peek() != '}' {
		if p.peek() == '{' {
			if _, ok := p.opaqueInit(); !ok {
				return 0, false
			}
		} else {
			if _, ok := p.ident("a field's name"); !ok || !p.expect('=') {
				return 0, false
			}
			if p.name() == "" {
				if _, ok := p.expr(); !ok {
					return 0, false
				}
			}
			p.skip()
		}
		if !p.accept(',') {
			break
		}
	}
	end := p.pos + 1
	return end, p.expect('}')
}

// initWalk walks an initializer, checks it against the variable's dimensions and, if visit is set,
// decodes it.
type initWalk struct {
	p       *parser
	strides []int64 // elements under one element of each level of braces
	total   int64   // elements of the variable; Unsized if the initializer determines them
	index   int64   // of the next element
	most    int64   // one more than the largest index so far
	end     int     // offset after the last token
	visit   func(Value) bool
	stopped bool
}

func newInitWalk(p *parser, v *Var) *initWalk {
	dims := v.Dims
	if v.Vector > 0 {
		dims = append(dims[:len(dims):len(dims)], int64(v.Vector))
	}
	w := &initWalk{p: p, total: 1, strides: make([]int64, len(dims))}
	for i := len(dims) - 1; i >= 0; i-- {
		w.strides[i] = w.total
		if dims[i] == Unsized {
			w.total = Unsized
		} else {
			w.total *= dims[i]
		}
	}
	return w
}

// level reads a scalar, or a braced list whose elements are those of the dimension at depth.
func (w *initWalk) level(depth int) bool {
	p := w.p
	if p.peek() != '{' {
		return w.scalar()
	}
	if depth >= len(w.strides) && depth > 0 {
		return p.fail("more braces than dimensions")
	}
	if !p.enter() {
		return false
	}
	defer p.leave()
	p.accept('{')
	first := w.index
	stride := int64(1)
	if depth < len(w.strides) {
		stride = w.strides[depth]
	}
	for p.peek() != '}' {
		if p.peek() == '{' {
			// A braced row begins on a row's boundary, even if the previous one was not full.
			if past := (w.index - first) % max(stride, 1); past != 0 {
				w.index += stride - past
			}
			row := w.index
			if !w.level(depth + 1) {
				return false
			}
			w.index = row + stride
			if w.index > maxBytes {
				return p.fail("array is larger than any memory")
			}
		} else if !w.scalar() {
			return false
		}
		if w.stopped || !p.accept(',') {
			break
		}
	}
	if w.stopped {
		return false
	}
	w.end = p.pos + 1
	return p.accept('}') || p.want("',' or '}'")
}

// scalar reads one element.
func (w *initWalk) scalar() bool {
	if w.total != Unsized && w.index >= w.total {
		return w.p.fail(fmt.Sprintf("more values than the variable's %d elements", w.total))
	}
	val := Value{Index: w.index}
	w.index++
	w.most = max(w.most, w.index)
	if !w.p.initValue(&val, &w.end) {
		return false
	}
	if w.visit != nil && !w.visit(val) {
		w.stopped = true
	}
	return true
}

// initValue reads a number, an address, or a byte of an address.
func (p *parser) initValue(v *Value, end *int) bool {
	if c := p.peek(); class[c]&isDigit != 0 {
		at := p.scanner
		if text := p.number(); text != "" {
			*end = p.pos
			p.skip()
			switch p.peek() {
			case ',', '}', ';':
				n, ok := literal(text)
				v.Imm, v.Bits = n.imm, n.bits
				if !ok {
					p.scanner = at
					return p.fail("malformed number " + quotedShort(text))
				}
				return true
			case '(':
				n, ok := literal(text)
				if !ok || n.imm != ImmInt || n.bits == 0 {
					p.scanner = at
					return p.fail("malformed mask " + quotedShort(text))
				}
				v.Mask = n.bits
				p.accept('(')
				if !p.addressValue(v, end) {
					return false
				}
				*end = p.pos + 1
				return p.expect(')')
			}
		}
		p.scanner = at
	} else if class[c]&isNameStart != 0 && !p.atWarpSize() {
		return p.addressValue(v, end)
	}
	n, ok := p.expr()
	v.Imm, v.Bits = n.imm, n.bits
	*end = lastToken(p.src, p.pos)
	return ok
}

// addressValue reads name{+offset} or generic(name){+offset}.
func (p *parser) addressValue(v *Value, end *int) bool {
	if class[p.peek()]&isNameStart == 0 {
		return p.want("a variable or function")
	}
	o, ok := p.named()
	if !ok {
		return false
	}
	if o.Kind != KindSymbol && o.Kind != KindReg || o.Sel != SelNone {
		return p.want("a variable or function")
	}
	v.Name, v.Generic, v.Bits = o.Name, o.Generic, o.Bits
	*end = lastToken(p.src, p.pos)
	return true
}

// lastToken returns the offset after the last token before pos. Only space may be in between. (A
// comment there would be kept, too, which is harmless except for a line comment: its newline is
// kept with it.)
func lastToken(src string, pos int) int {
	i := pos
	for i > 0 && (class[src[i-1]]&isBlank != 0 || src[i-1] == '\n') {
		i--
	}
	if i < pos {
		for j := i; j < pos; j++ {
			if src[j] == '\n' {
				return j + 1
			}
		}
	}
	return i
}
