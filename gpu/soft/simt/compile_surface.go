package simt

import (
	"encoding/binary"

	"vgpud/gpu"
	"vgpud/gpu/soft/texture"
	"vgpud/ptx"
)

// surfaceOp is an instruction that accesses a surface.
type surfaceOp struct {
	object operand
	site   uint32
	dims   int
	layer  operand
	at     [3]operand
	bounds texture.Bounds
	write  bool
	texels bool // x is in texels rather than bytes
	size   int  // of the access; 0: a texel
	elems  []element
}

// surface consumes what all surface instructions have: bounds, object and coordinates.
func (c *compiler) surface(m *mods, g geometry, o *ptx.Operand) (*surfaceOp, error) {
	x := &surfaceOp{dims: g.dims}
	switch m.any("trap", "clamp", "zero") {
	case "clamp":
		x.bounds = texture.Clamp
	case "zero":
		x.bounds = texture.Zero
	}
	m.skip(ordering...)
	var err error
	if x.object, err = c.object(o); err != nil {
		return nil, err
	}
	if len(o.Elems) != 1 {
		return nil, c.invalid("no coordinates")
	}
	if x.layer, x.at, err = c.coordinates(&o.Elems[0], g, ptx.S32); err != nil {
		return nil, err
	}
	x.site = uint32(c.prog.sites)
	c.prog.sites++
	return x, nil
}

// surfaceShape consumes the shape of a surface instruction.
func (c *compiler) surfaceShape(m *mods) (geometry, error) {
	g, ok := m.geometry()
	if !ok || g.cube {
		return g, c.unsupported("this shape of surface")
	}
	return g, nil
}

// suld compiles suld.b.
func suld(c *compiler, in *ptx.Instr, m *mods) error {
	if !m.has("b") {
		return c.unsupported("formatted loads")
	}
	g, err := c.surfaceShape(m)
	if err != nil {
		return err
	}
	n, t := m.vector(), m.typ()
	if err := c.arity(in, 2, 2); err != nil {
		return err
	}
	list := elements(&in.Operands[0])
	if len(list) != n || n > 4 || t.Class() != ptx.Untyped {
		return c.invalid("%d registers for %d elements of type .%s", len(list), n, t)
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
		elems[i] = element{reg: r, at: i * t.Size(), size: t.Size()}
	}
	x, err := c.surface(m, g, &in.Operands[1])
	if err != nil {
		return err
	}
	x.elems, x.size = elems, n*t.Size()
	c.emit(inst{op: func(w *warp, in *inst) {
		x.each(w, in, func(lane int, _ *texture.Texture, p []byte) {
			for k := range x.elems {
				if e := &x.elems[k]; e.reg.class != noReg {
					v := uint64(0)
					if p != nil {
						v = fetch(p[e.at:], e.size, false)
					}
					w.setLane(e.reg, lane, v)
				}
			}
		})
	}, run: 1}, c.costs().Memory)
	return nil
}

// sust compiles sust.b, which stores bytes, and sust.p, which stores a texel.
func sust(c *compiler, in *ptx.Instr, m *mods) error {
	how := m.any("b", "p")
	if how == "" {
		return c.unsupported("this form of sust")
	}
	g, err := c.surfaceShape(m)
	if err != nil {
		return err
	}
	n, t := m.vector(), m.typ()
	if err := c.arity(in, 2, 2); err != nil {
		return err
	}
	list := elements(&in.Operands[1])
	if len(list) != n || n > 4 || how == "b" && t.Class() != ptx.Untyped || how == "p" && t.Bits() != 32 {
		return c.invalid("%d registers for %d elements of type .%s", len(list), n, t)
	}
	elems := make([]element, n)
	for i, o := range list {
		r, err := c.anySrc(o, t)
		if err != nil {
			return err
		}
		elems[i] = element{reg: r, at: i * t.Size(), size: t.Size()}
	}
	x, err := c.surface(m, g, &in.Operands[0])
	if err != nil {
		return err
	}
	x.elems, x.write = elems, true
	if how == "b" {
		x.size = n * t.Size()
	} else {
		x.texels = true
	}
	c.emit(inst{op: func(w *warp, in *inst) {
		x.each(w, in, func(lane int, s *texture.Texture, p []byte) {
			switch {
			case p == nil:
			case x.texels:
				var v texture.Value
				for k := range x.elems {
					v[k] = uint32(w.lane(x.elems[k].reg, lane))
				}
				s.Store(p, &v)
			default:
				for k := range x.elems {
					e := &x.elems[k]
					put(p[e.at:], e.size, w.lane(e.reg, lane))
				}
			}
		})
	}, run: 1}, c.costs().Memory)
	return nil
}

// sured compiles sured, a reduction.
func sured(c *compiler, in *ptx.Instr, m *mods) error {
	how := m.any("b", "p")
	op := m.any("add", "min", "max", "and", "or")
	if how == "" || op == "" {
		return c.unsupported("this form of sured")
	}
	g, err := c.surfaceShape(m)
	if err != nil {
		return err
	}
	t := m.typ()
	f32, f64 := atomics32[op][t], atomics64[op][t]
	if f32 == nil && f64 == nil {
		return c.unsupported("operation .%s on .%s", op, t)
	}
	if err := c.arity(in, 2, 2); err != nil {
		return err
	}
	v, err := c.src(&in.Operands[1], t)
	if err != nil {
		return err
	}
	x, err := c.surface(m, g, &in.Operands[0])
	if err != nil {
		return err
	}
	x.write, x.size, x.texels = true, t.Size(), how == "p"
	c.emit(inst{op: func(w *warp, in *inst) {
		x.each(w, in, func(lane int, _ *texture.Texture, p []byte) {
			switch {
			case p == nil:
			case f32 != nil:
				binary.LittleEndian.PutUint32(p, f32(binary.LittleEndian.Uint32(p), uint32(w.lane(v, lane)), 0))
			default:
				binary.LittleEndian.PutUint64(p, f64(binary.LittleEndian.Uint64(p), w.lane(v, lane), 0))
			}
		})
	}, run: 1}, c.costs().Memory+c.costs().Atomic)
	return nil
}

// each calls do with each lane's bytes of the surface, or with nil if the access has no effect.
func (x *surfaceOp) each(w *warp, in *inst, do func(lane int, t *texture.Texture, p []byte)) {
	var t *texture.Texture
	var data []byte
	handle := ^uint64(0)
	for m := w.mask; m != 0; m &= m - 1 {
		i := first(m)
		if h := w.r64[x.object.index][i]; t == nil || h != handle {
			var ok bool
			if t, data, ok = w.texture(in, x.site, i, h, x.write); ok && !t.Surface {
				w.textureFault(in, gpu.FaultAddress, i, h, x.write)
				ok = false
			}
			if !ok {
				return
			}
			handle = h
		}
		var at [3]int32
		for d := range x.dims {
			at[d] = int32(w.r32[x.at[d].index][i])
		}
		size := x.size
		if x.texels {
			texel := t.Texel.Bytes()
			if size == 0 {
				size = texel
			}
			// The product must not wrap around.
			at[0] = max(min(at[0], int32(t.Size[0])), -1) * int32(texel)
		}
		var layer int64
		if x.layer.class != noReg {
			layer = int64(int32(w.r32[x.layer.index][i]))
		}
		off, where := t.Locate(at, layer, size, x.bounds)
		switch where {
		case texture.Inside:
			do(i, t, data[off:][:size])
		case texture.Skipped:
			do(i, t, nil)
		case texture.Misaligned:
			w.textureFault(in, gpu.FaultMisaligned, i, handle, x.write)
			return
		default:
			w.textureFault(in, gpu.FaultAddress, i, handle, x.write)
			return
		}
	}
	if t != nil {
		w.chargeSectors(uint32(popcount(w.mask)*max(x.size, t.Texel.Bytes())+sectorBytes-1) / sectorBytes)
	}
}
