package simt

import (
	"slices"
	"strings"

	"vgpud/ptx"
)

// mov compiles mov: of registers, constants, special registers and addresses, and between a
// register and a vector of its parts.
func mov(c *compiler, in *ptx.Instr, m *mods) error {
	if err := c.arity(in, 2, 2); err != nil {
		return err
	}
	d, s := &in.Operands[0], &in.Operands[1]
	if m.has("pred") {
		return c.predLogic(in, func(a, _ uint32) uint32 { return a })
	}
	t := m.typ()
	if n := m.vector(); n > 1 {
		return c.movVector(in, n, t)
	}
	d, s = whole(d), whole(s)
	if d.Kind == ptx.KindVector || s.Kind == ptx.KindVector {
		return c.packOrUnpack(d, s, t)
	}
	r, err := c.dst(d, t)
	if err != nil {
		return err
	}
	if s.Kind == ptx.KindReg && s.Sym != nil && s.Sym.Kind == ptx.SymSpecial {
		a, err := c.specialOf(s, r.class)
		if err != nil {
			return err
		}
		return c.movReg(r, a)
	}
	a, err := c.src(s, t)
	if err != nil {
		return err
	}
	return c.movReg(r, a)
}

// whole returns a vector register that is named as a whole as a vector, and any other operand as it
// is.
func whole(o *ptx.Operand) *ptx.Operand {
	list := elements(o)
	if o.Kind != ptx.KindReg || len(list) < 2 {
		return o
	}
	v := &ptx.Operand{Kind: ptx.KindVector}
	for _, e := range list {
		v.Elems = append(v.Elems, *e)
	}
	return v
}

func (c *compiler) movReg(d, a operand) error {
	f := opMov32
	if d.class == reg64 {
		f = opMov64
	}
	c.op(f, c.costs().Simple, d, a)
	return nil
}

// movVector moves component by component.
func (c *compiler) movVector(in *ptx.Instr, n int, t ptx.Type) error {
	d, s := elements(&in.Operands[0]), elements(&in.Operands[1])
	if len(d) != n || len(s) != n {
		return c.invalid("%d and %d registers for %d", len(d), len(s), n)
	}
	to, from := make([]operand, n), make([]operand, n)
	overlap := false
	for i := range d {
		var err error
		if to[i], err = c.dst(d[i], t); err != nil {
			return err
		}
		if from[i], err = c.src(s[i], t); err != nil {
			return err
		}
		overlap = overlap || slices.Contains(to[:i], from[i])
	}
	if overlap { // some are written before they are read
		for i, a := range from {
			from[i] = c.newReg(a.class)
			if err := c.movReg(from[i], a); err != nil {
				return err
			}
		}
	}
	for i := range to {
		if err := c.movReg(to[i], from[i]); err != nil {
			return err
		}
	}
	return nil
}

// packOrUnpack moves between a register and a vector of its parts, the least significant first.
func (c *compiler) packOrUnpack(d, s *ptx.Operand, t ptx.Type) error {
	one, many := s, d
	pack := s.Kind == ptx.KindVector
	if pack {
		one, many = d, s
	}
	if one.Kind == ptx.KindVector || len(many.Elems) == 0 || t.Bits()%len(many.Elems) != 0 {
		return c.unsupported("these vectors")
	}
	part := map[int]ptx.Type{8: ptx.B8, 16: ptx.B16, 32: ptx.B32, 64: ptx.B64}[t.Bits()/len(many.Elems)]
	if part == ptx.NoType || t.Bits() > 64 {
		return c.unsupported("type .%s in %d parts", t, len(many.Elems))
	}
	parts := make([]operand, len(many.Elems))
	var whole operand
	var err error
	for i := range many.Elems {
		if pack {
			parts[i], err = c.src(&many.Elems[i], part)
		} else if many.Elems[i].Kind != ptx.KindSink {
			parts[i], err = c.dst(&many.Elems[i], part)
		}
		if err != nil {
			return err
		}
	}
	if pack {
		if whole, err = c.dst(one, t); err != nil {
			return err
		}
	} else if whole, err = c.src(one, t); err != nil {
		return err
	}
	f := unpack(parts, whole, part.Bits())
	if pack {
		f = packing(parts, whole, part.Bits())
	}
	c.op(f, c.costs().Simple, whole)
	return nil
}

func unpack(parts []operand, whole operand, bits int) opFunc {
	mask := uint64(1)<<bits - 1
	return func(w *warp, in *inst) {
		for m := w.mask; m != 0; m &= m - 1 {
			i := first(m)
			v := w.lane(whole, i)
			for _, p := range parts {
				if p.class != noReg {
					w.r32[p.index][i] = uint32(v & mask)
				}
				v >>= bits
			}
		}
	}
}

// packing returns the operation of a pack. The whole may be one of the parts, so each lane's value
// is complete before it is stored.
func packing(parts []operand, whole operand, bits int) opFunc {
	return func(w *warp, in *inst) {
		for m := w.mask; m != 0; m &= m - 1 {
			i := first(m)
			var v uint64
			for k, p := range parts {
				v |= uint64(w.r32[p.index][i]) << (k * bits)
			}
			w.setLane(whole, i, v)
		}
	}
}

// lane reads a register in one lane.
func (w *warp) lane(r operand, i int) uint64 {
	if r.class == reg64 {
		return w.r64[r.index][i]
	}
	return uint64(w.r32[r.index][i])
}

func (w *warp) setLane(r operand, i int, v uint64) {
	switch r.class {
	case reg64:
		w.r64[r.index][i] = v
	case reg32:
		w.r32[r.index][i] = uint32(v)
	case reg16:
		w.r32[r.index][i] = uint32(v) & 0xffff
	case reg8:
		w.r32[r.index][i] = uint32(v) & 0xff
	}
}

// cvta compiles cvta, which converts addresses between a space and the generic one. For global and
// constant memory they are equal.
func cvta(c *compiler, in *ptx.Instr, m *mods) error {
	to := m.has("to")
	space := m.space()
	t := m.typ()
	if t.Bits() != 64 {
		return c.unsupported("addresses of %d bits", t.Bits())
	}
	if err := c.arity(in, 2, 2); err != nil {
		return err
	}
	d, err := c.dst(&in.Operands[0], t)
	if err != nil {
		return err
	}
	a, err := c.src(&in.Operands[1], t)
	if err != nil {
		return err
	}
	var window uint64
	switch space {
	case ptx.SharedSpace:
		window = sharedWindow
	case ptx.LocalSpace:
		window = localWindow
	case ptx.ParamSpace:
		window = paramWindow
		if !c.cur.decl.Entry {
			window = localWindow
		}
	}
	switch {
	case window == 0:
		return c.movReg(d, a)
	case to:
		window = -window
	}
	c.op(opAdd64, c.costs().Simple, d, a, c.constant(reg64, window))
	return nil
}

// isspacep compiles isspacep, which tests the space of a generic address.
func isspacep(c *compiler, in *ptx.Instr, m *mods) error {
	if err := c.arity(in, 2, 2); err != nil {
		return err
	}
	space := m.space()
	d, err := c.dstPred(&in.Operands[0])
	if err != nil {
		return err
	}
	a, err := c.src(&in.Operands[1], ptx.U64)
	if err != nil {
		return err
	}
	vars := &c.loader.module.vars
	inside := func(addr uint64) bool {
		switch space {
		case ptx.GlobalSpace:
			return addr < GlobalLimit
		case ptx.ConstSpace:
			return addr-vars.base < vars.constBytes
		case ptx.SharedSpace:
			return addr >= sharedWindow && addr < localWindow
		case ptx.LocalSpace:
			return addr >= localWindow && addr < paramWindow
		}
		return addr >= paramWindow && addr < codeWindow
	}
	c.op(func(w *warp, in *inst) {
		var v uint32
		for m := w.mask; m != 0; m &= m - 1 {
			i := first(m)
			v |= bit(inside(w.r64[in.a][i])) << i
		}
		w.setPred(in.d, w.mask, v)
	}, c.costs().Simple, d, a)
	return nil
}

// specialReg returns the register for a special register that is an ordinary operand.
func (c *compiler) specialReg(o *ptx.Operand) (operand, error) {
	return c.specialOf(o, classOf(o.Sym.Type))
}

// specialOf returns a register of the given class that holds a special register.
func (c *compiler) specialOf(o *ptx.Operand, class regClass) (operand, error) {
	name := strings.TrimPrefix(o.Name, "%")
	if f, ok := clocks[name]; ok {
		d := c.newReg(class)
		c.op(readClock(f, d), 0, d)
		return d, nil
	}
	if o.Sym.Vector > 0 {
		k, ok := o.Sel.Component()
		if !ok {
			return operand{}, c.unsupported("%s as a whole", o.Name)
		}
		if k == 3 {
			return c.constant(class, 0), nil
		}
		name += "." + "xyz"[k:k+1]
	}
	kind, ok := specialNames[name]
	switch {
	case ok:
	case strings.HasPrefix(name, "envreg"), strings.HasPrefix(name, "pm"), strings.HasPrefix(name, "reserved_smem"):
		return c.constant(class, 0), nil
	default:
		return operand{}, c.unsupported("special register %s", o.Name)
	}
	if class != reg32 && class != reg64 {
		return operand{}, c.invalid("special register %s in %d bits", o.Name, o.Sym.Type.Bits())
	}
	key := specialKey{kind, class}
	if r, ok := c.special[key]; ok {
		return r, nil
	}
	r := c.newReg(class)
	c.special[key] = r
	s := special{reg: r.index, wide: class == reg64, kind: kind}
	if kind.changes() {
		c.prog.perBlock = append(c.prog.perBlock, s)
	} else {
		c.prog.perWarp = append(c.prog.perWarp, s)
	}
	return r, nil
}

type specialKey struct {
	kind  sreg
	class regClass
}

// changes reports whether the register differs between blocks.
func (s sreg) changes() bool { return s == ctaidX || s == ctaidY || s == ctaidZ || s == smID }

var specialNames = map[string]sreg{
	"tid.x": tidX, "tid.y": tidY, "tid.z": tidZ, "ntid.x": ntidX, "ntid.y": ntidY, "ntid.z": ntidZ,
	"ctaid.x": ctaidX, "ctaid.y": ctaidY, "ctaid.z": ctaidZ, "nctaid.x": nctaidX, "nctaid.y": nctaidY, "nctaid.z": nctaidZ,
	"laneid": laneID, "warpid": warpID, "nwarpid": nwarpID, "smid": smID, "nsmid": nsmID, "gridid": gridID,
	"lanemask_eq": lanemaskEq, "lanemask_le": lanemaskLe, "lanemask_lt": lanemaskLt, "lanemask_ge": lanemaskGe, "lanemask_gt": lanemaskGt,
	"dynamic_smem_size": dynamicShared, "total_smem_size": totalShared, "aggr_smem_size": totalShared,
	// Without clusters a block is a cluster of its own.
	"clusterid.x": ctaidX, "clusterid.y": ctaidY, "clusterid.z": ctaidZ,
	"nclusterid.x": nctaidX, "nclusterid.y": nctaidY, "nclusterid.z": nctaidZ,
	"cluster_ctaid.x": zeroReg, "cluster_ctaid.y": zeroReg, "cluster_ctaid.z": zeroReg, "cluster_ctarank": zeroReg,
	"cluster_nctaid.x": oneReg, "cluster_nctaid.y": oneReg, "cluster_nctaid.z": oneReg, "cluster_nctarank": oneReg,
	"current_graph_exec": zeroReg,
}

// clocks are the special registers that change while a kernel runs.
var clocks = map[string]func(w *warp, cycles uint64) uint64{
	"clock":          func(w *warp, cycles uint64) uint64 { return (w.block.now.Cycle + cycles) & 0xffffffff },
	"clock_hi":       func(w *warp, cycles uint64) uint64 { return (w.block.now.Cycle + cycles) >> 32 },
	"clock64":        func(w *warp, cycles uint64) uint64 { return w.block.now.Cycle + cycles },
	"globaltimer":    func(w *warp, cycles uint64) uint64 { return w.block.nanos(cycles) },
	"globaltimer_lo": func(w *warp, cycles uint64) uint64 { return w.block.nanos(cycles) & 0xffffffff },
	"globaltimer_hi": func(w *warp, cycles uint64) uint64 { return w.block.nanos(cycles) >> 32 },
}

// readClock returns the operation that reads a clock. The cycles of a whole run of instructions are
// counted before it begins, so those of the instructions from here on must be subtracted.
func readClock(f func(w *warp, cycles uint64) uint64, d operand) opFunc {
	return func(w *warp, in *inst) {
		v := f(w, w.block.spent+w.counts.Cycles-in.cost)
		if d.class == reg64 {
			fill(&w.r64[in.d], w.mask, v)
		} else {
			fill(&w.r32[in.d], w.mask, uint32(v))
		}
	}
}
