package ptx

import (
	"iter"
	"strings"
)

// Init is a variable's initializer. It is kept as text, which may be hundreds of kilobytes on one
// line; [Var.Values] decodes it on demand. Parse has checked its form.
type Init struct {
	Pos Pos
	Raw string // without the equals sign and the semicolon, as written
}

// Value is one scalar of an initializer: a number, or an address if Name is set.
type Value struct {
	Index   int64   // which element of the variable it initialises, rows flattened
	Imm     ImmType // of a number
	Bits    uint64  // the number, or the offset added to the address
	Name    string  // the variable or function whose address it is; "" for a number
	Generic bool    // generic(name): the address in the generic space rather than in its own
	Mask    uint64  // for a byte of the address, as in 0xFF00(name): its mask; 0 for the whole address
}

// Values decodes the initializer, in order. Elements that it does not mention are zero. An error is
// possible only for a Raw that did not come from Parse. Textures and samplers have no values.
func (v *Var) Values() iter.Seq2[Value, error] {
	return func(yield func(Value, error) bool) {
		if v.Init == nil || v.Type.Class() == Opaque {
			return
		}
		if _, err := v.walkInit(func(val Value) bool { return yield(val, nil) }); err != nil {
			yield(Value{}, err)
		}
	}
}

// walkInit walks the initializer and returns how many elements it covers.
func (v *Var) walkInit(visit func(Value) bool) (int64, error) {
	o := Options{MaxBytes: len(v.Init.Raw)}.withDefaults()
	p := &parser{scanner: newScanner(v.Init.Raw), opts: o}
	w := newInitWalk(p, v)
	w.visit = visit
	if !w.level(0) && !w.stopped || len(p.errs) > 0 {
		return 0, p.errs
	}
	return w.most, nil
}

// Len returns the number of elements of the variable, counting components of vectors: the product
// of its dimensions, or, if the outermost is Unsized, what its initializer has (0 without one).
func (v *Var) Len() int64 {
	row := int64(max(v.Vector, 1))
	for _, d := range v.Dims {
		if d != Unsized {
			row *= d
		}
	}
	if len(v.Dims) == 0 || v.Dims[0] != Unsized {
		return row
	}
	if v.Init == nil || row == 0 {
		return 0
	}
	n, err := v.walkInit(nil)
	if err != nil {
		return 0
	}
	return (n + row - 1) / row * row
}

// Size returns the number of bytes of the variable.
func (v *Var) Size() int64 { return v.Len() * int64(v.Type.Size()) }

// Alignment returns the variable's alignment in bytes: the written one, or that of its type, which
// for a vector is the whole vector's (§5.4.6).
func (v *Var) Alignment() int {
	if v.Align > 0 {
		return v.Align
	}
	return max(v.Type.Size(), 1) * max(v.Vector, 1)
}

// Fields decodes the initializer of one texture or sampler, { name = value, … }: the values as they
// are written. It returns false for any other initializer.
func (v *Var) Fields() (map[string]string, bool) {
	fields := map[string]string{}
	if v.Init == nil || v.Type.Class() != Opaque {
		return fields, false
	}
	p := &parser{scanner: newScanner(v.Init.Raw), opts: Options{MaxBytes: len(v.Init.Raw)}.withDefaults()}
	for ok := p.expect('{'); ok && p.peek() != '}'; ok = p.accept(',') || p.peek() == '}' {
		name, named := p.ident("a field's name")
		if !named || !p.expect('=') {
			return fields, false
		}
		start := p.pos
		if p.name() == "" {
			if _, ok := p.expr(); !ok {
				return fields, false
			}
		}
		fields[name] = strings.TrimSpace(p.src[start:p.pos])
		p.skip()
	}
	return fields, p.expect('}')
}
