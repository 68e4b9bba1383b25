package simt

import (
	"vgpud/ptx"
)

// Modifiers for ordering and caching. Here every access is performed at once and in order.
var ordering = []string{
	"weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "mmio", "sys", "gpu", "cta",
	"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "unified",
	"L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate",
	"L2::evict_normal", "L2::evict_first", "L2::evict_last", "L2::cache_hint", "L2::64B", "L2::128B", "L2::256B",
}

// spaces maps modifiers to state spaces. A block is a cluster of its own.
var spaces = map[string]ptx.Space{
	"global": ptx.GlobalSpace, "shared": ptx.SharedSpace, "shared::cta": ptx.SharedSpace, "shared::cluster": ptx.SharedSpace,
	"local": ptx.LocalSpace, "const": ptx.ConstSpace, "param": ptx.ParamSpace, "param::entry": ptx.ParamSpace, "param::func": ptx.ParamSpace,
}

// space consumes the state space of an access; NoSpace is the generic one.
func (m *mods) space() ptx.Space {
	for i, s := range m.list {
		if sp, ok := spaces[s]; ok && m.used>>i&1 == 0 {
			m.used |= 1 << i
			return sp
		}
	}
	return ptx.NoSpace
}

// place is the target of a memory operation.
type place struct {
	resolve opFunc
	fast    opFunc // nil, or faster code than resolve for some patterns of addresses
	base    operand
	offset  uint64
	space   ptx.Space
	param   *ptx.Var // a kernel's parameter, whose value is known at launch
	kind    placeKind
}

// placeKind distinguishes the places that have faster access code.
type placeKind uint8

const (
	otherPlace  placeKind = iota
	globalPlace           // addresses in 64-bit registers, in global memory or generic
	sharedPlace           // addresses in 32-bit registers, in shared memory
)

// address analyses an address operand.
func (c *compiler) address(o *ptx.Operand, space ptx.Space) (place, error) {
	if o.Kind != ptx.KindAddr || len(o.Elems) > 0 {
		return place{}, c.invalid("an operand that is not an address")
	}
	switch o.Base {
	case ptx.KindImm:
		r := c.constant(reg64, o.Bits)
		return place{resolve: c.resolver(space, true), base: r, space: space}, nil
	case ptx.KindReg:
		part := ptx.Operand{Kind: ptx.KindReg, Name: o.Name, Sel: o.Sel, Sym: o.Sym}
		r, err := c.reg(&part)
		if err != nil {
			return place{}, err
		}
		if r.class == reg32 && (space == ptx.GlobalSpace || space == ptx.ConstSpace || space == ptx.NoSpace || space == ptx.ParamSpace) {
			wide := c.newReg(reg64)
			c.op(opCvtU64U32, 0, wide, r)
			r = wide
		}
		if r.class != reg32 && r.class != reg64 {
			return place{}, c.invalid("an address of %s", o.Name)
		}
		p := place{resolve: c.resolver(space, r.class == reg64), base: r, offset: o.Bits, space: space}
		switch {
		case space == ptx.GlobalSpace || space == ptx.NoSpace:
			p.kind = globalPlace
		case space == ptx.SharedSpace && r.class == reg32:
			p.kind = sharedPlace
		}
		return p, nil
	}
	s := o.Sym
	if s == nil || s.Var == nil {
		return place{}, c.invalid("%s is not a variable", o.Name)
	}
	return c.variable(s, uint64(o.Offset()), space)
}

// pointer returns an address that is or can be put in a register: not a parameter, nor part of an
// activation's frame.
func (c *compiler) pointer(o *ptx.Operand, space ptx.Space) (place, error) {
	p, err := c.address(o, space)
	if err == nil && (p.param != nil || p.base.class == noReg) {
		err = c.invalid("%s can't be addressed so", o.Name)
	}
	return p, err
}

// resolver returns the resolver of a memory operation.
func (c *compiler) resolver(space ptx.Space, wide bool) opFunc {
	if space == ptx.ParamSpace && !c.cur.decl.Entry {
		space = ptx.LocalSpace // the space of a device function's parameters
	}
	return resolver(space, wide)
}

// variable returns the place of a variable or parameter.
func (c *compiler) variable(s *ptx.Symbol, offset uint64, space ptx.Space) (place, error) {
	if s.Kind == ptx.SymParam && c.cur.decl.Entry {
		if _, ok := c.params[s.Var]; !ok {
			return place{}, c.invalid("parameter %s of another kernel", s.Name)
		}
		return place{param: s.Var, offset: offset, space: ptx.ParamSpace}, nil
	}
	v := s.Var
	if isReference(v) {
		return place{}, c.invalid("%s is not a variable in memory", v.Name)
	}
	if at, ok := c.cur.frame.at[v]; ok {
		return place{resolve: frameLocal, offset: at + offset, space: v.Space}, nil
	}
	switch v.Space {
	case ptx.SharedSpace:
		at, ok := c.sharedAt(v)
		if !ok {
			return place{}, c.unsupported("shared variable %s", v.Name)
		}
		if space == ptx.NoSpace {
			return place{resolve: generic64, base: c.constant(reg64, sharedWindow+at+offset)}, nil
		}
		return place{resolve: shared32, base: c.constant(reg32, at+offset), space: ptx.SharedSpace, kind: sharedPlace}, nil
	case ptx.GlobalSpace, ptx.ConstSpace:
		at, ok := c.loader.image.at[v]
		if !ok {
			return place{}, c.unsupported("variable %s is defined in no module", v.Name)
		}
		r := c.uniformReg(uniform{wide: true, bits: at + offset, image: true})
		return place{resolve: global64, base: r, space: v.Space}, nil
	}
	return place{}, c.unsupported("variable %s in space .%s", v.Name, v.Space)
}

// sharedAt returns a shared variable's address. An array without a size is the dynamic part.
func (c *compiler) sharedAt(v *ptx.Var) (uint64, bool) {
	if at, ok := c.shared.at[v]; ok {
		return at, true
	}
	if v.Linking != ptx.Extern {
		return 0, false
	}
	at := alignUp(c.shared.size, uint64(max(v.Alignment(), dynamicAlign)))
	if at > c.loader.opts.MaxShared {
		return 0, false
	}
	c.prog.dynamicShared = max(c.prog.dynamicShared, uint32(at))
	return at, true
}

// addressOf returns a register with the address of a variable or function, for mov and as an
// operand of arithmetic.
func (c *compiler) addressOf(o *ptx.Operand, class regClass) (operand, error) {
	s := o.Sym
	if s == nil {
		return operand{}, c.invalid("%s is not declared", o.Name)
	}
	if s.Kind == ptx.SymFunc {
		f := c.loader.addressOf(s.Func)
		if f == 0 || class != reg64 {
			return operand{}, c.unsupported("the address of %s", o.Name)
		}
		return c.constant(class, f), nil
	}
	if s.Var == nil {
		return operand{}, c.invalid("%s has no address", o.Name)
	}
	if isReference(s.Var) {
		if class != reg64 {
			return operand{}, c.invalid("the handle of %s in less than 64 bits", o.Name)
		}
		return c.reference(s, o.Bits)
	}
	p, err := c.variable(s, uint64(o.Offset()), s.Var.Space)
	if err != nil {
		return operand{}, err
	}
	switch {
	case class != reg32 && class != reg64:
		return operand{}, c.invalid("the address of %s in less than 32 bits", o.Name)
	case p.param != nil:
		return c.constant(class, c.params[p.param]+p.offset+generically(o, paramWindow)), nil
	case p.space == ptx.SharedSpace:
		at, _ := c.sharedAt(s.Var)
		return c.constant(class, at+uint64(o.Offset())+generically(o, sharedWindow)), nil
	case p.space == ptx.GlobalSpace || p.space == ptx.ConstSpace:
		u := uniform{wide: class == reg64, bits: c.loader.image.at[s.Var] + uint64(o.Offset()), image: true}
		return c.uniformReg(u), nil
	}
	// It is in the frame of the running activation.
	d := c.newReg(class)
	f := func(w *warp, in *inst) { fill(&w.r32[in.d], w.mask, w.sp+uint32(in.imm)) }
	if class == reg64 {
		f = func(w *warp, in *inst) { fill(&w.r64[in.d], w.mask, uint64(w.sp)+in.imm) }
	}
	c.emit(inst{op: f, d: d.index, imm: p.offset + generically(o, localWindow), run: 1}, 0)
	return d, nil
}

// generically returns the window to add for generic(symbol).
func generically(o *ptx.Operand, window uint64) uint64 {
	if o.Generic {
		return window
	}
	return 0
}

// memory adds a memory operation.
func (c *compiler) memory(p place, data operand, size int, write bool, move mover) {
	mem := &access{size: uint32(size), space: p.space, write: write, site: uint32(c.prog.sites), move: move, resolve: p.resolve}
	c.prog.sites++
	op := p.resolve
	if p.fast != nil {
		op = p.fast
	}
	in := inst{op: op, d: data.index, a: p.base.index, imm: p.offset, run: 1, x: &extra{mem: mem}}
	c.emit(in, c.costs().Memory)
}

// elements lists the registers of an operand with several: of a vector, also of a vector register
// that is named as a whole.
func elements(o *ptx.Operand) []*ptx.Operand {
	if s := o.Sym; o.Kind == ptx.KindReg && s != nil && s.Kind == ptx.SymReg && s.Vector > 0 && s.Vector <= 4 && o.Sel == ptx.SelNone {
		list := make([]*ptx.Operand, s.Vector)
		for i := range list {
			part := *o
			part.Sel = ptx.SelX + ptx.Selector(i)
			list[i] = &part
		}
		return list
	}
	if o.Kind != ptx.KindVector {
		return []*ptx.Operand{o}
	}
	list := make([]*ptx.Operand, len(o.Elems))
	for i := range o.Elems {
		list[i] = &o.Elems[i]
	}
	return list
}

// vector consumes .v2, .v4 or .v8.
func (m *mods) vector() int {
	switch m.any("v2", "v4", "v8") {
	case "v2":
		return 2
	case "v4":
		return 4
	case "v8":
		return 8
	}
	return 1
}

// load compiles ld and ldu.
func load(c *compiler, in *ptx.Instr, m *mods) error {
	if err := c.arity(in, 2, 3); err != nil {
		return err
	}
	space := m.space()
	m.skip(ordering...)
	n, t := m.vector(), m.typ()
	size := t.Size()
	if t.Bits() < 8 || t.Bits() > 64 {
		return c.unsupported("type .%s", t)
	}
	list := elements(&in.Operands[0])
	if len(list) != n {
		return c.invalid("%d registers for %d elements", len(list), n)
	}
	p, err := c.address(&in.Operands[1], space)
	if err != nil {
		return err
	}
	elems := make([]element, n)
	for i, o := range list {
		r, err := c.anyDst(o)
		if err != nil {
			return err
		}
		if r.class == predReg || r.class != noReg && r.class < classOf(t) {
			return c.invalid("result %s has less than %d bits", o.Name, t.Bits())
		}
		elems[i] = element{reg: r, at: i * size, size: size, sext: t.Class() == ptx.Signed}
	}
	if p.param != nil {
		return c.loadParam(p, elems)
	}
	e := elems[0]
	move := loadElements(elems)
	switch {
	case n == 1 && size == 4 && e.reg.class == reg32:
		move = load32
	case n == 1 && size == 8 && e.reg.class == reg64:
		move = load64
	}
	p.fast = fast(p, elems, false)
	c.memory(p, e.reg, n*size, false, move)
	return nil
}

// loadParam compiles a read of a kernel's parameter. All lanes of all warps share the value, so a
// register holds it from the start.
func (c *compiler) loadParam(p place, elems []element) error {
	base := c.params[p.param] + p.offset
	for _, e := range elems {
		at := base + uint64(e.at)
		if at+uint64(e.size) > c.attr.ParamBytes || at > c.attr.ParamBytes {
			return c.invalid("a parameter at %d, beyond the last", at)
		}
		u := uniform{wide: e.reg.class == reg64, bits: at, param: true, size: uint8(e.size), sext: e.sext}
		r := c.uniformReg(u)
		switch e.reg.class {
		case reg64:
			c.op(opMov64, c.costs().Simple, e.reg, r)
		case reg32:
			c.op(opMov32, c.costs().Simple, e.reg, r)
		case reg16, reg8:
			c.op(lift1(func(a uint32) uint32 { return a & 0xffff }), c.costs().Simple, e.reg, r)
		}
	}
	return nil
}

// store compiles st.
func store(c *compiler, in *ptx.Instr, m *mods) error {
	if err := c.arity(in, 2, 3); err != nil {
		return err
	}
	space := m.space()
	m.skip(ordering...)
	n, t := m.vector(), m.typ()
	size := t.Size()
	if t.Bits() < 8 || t.Bits() > 64 {
		return c.unsupported("type .%s", t)
	}
	list := elements(&in.Operands[1])
	if len(list) != n {
		return c.invalid("%d registers for %d elements", len(list), n)
	}
	if space == ptx.ConstSpace || space == ptx.ParamSpace && c.cur.decl.Entry && in.Operands[0].Base != ptx.KindSymbol {
		return c.invalid("a store to space .%s", space)
	}
	p, err := c.address(&in.Operands[0], space)
	if err != nil {
		return err
	}
	if p.param != nil || p.space == ptx.ConstSpace {
		return c.invalid("a store to what is read-only")
	}
	elems := make([]element, n)
	for i, o := range list {
		r, err := c.anySrc(o, t)
		if err != nil {
			return err
		}
		elems[i] = element{reg: r, at: i * size, size: size}
	}
	e := elems[0]
	move := storeElements(elems)
	switch {
	case n == 1 && size == 4 && e.reg.class == reg32:
		move = store32
	case n == 1 && size == 8 && e.reg.class == reg64:
		move = store64
	}
	p.fast = fast(p, elems, true)
	c.memory(p, e.reg, n*size, true, move)
	return nil
}
