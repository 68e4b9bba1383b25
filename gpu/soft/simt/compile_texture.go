package simt

import (
	"math"

	"vgpud/gpu"
	"vgpud/gpu/soft/arith"
	"vgpud/gpu/soft/texture"
	"vgpud/ptx"
)

// geometry is the shape that a texture or surface instruction expects.
type geometry struct {
	dims  int
	layer bool // the first coordinate is a layer
	cube  bool
}

var geometries = map[string]geometry{
	"1d": {dims: 1}, "2d": {dims: 2}, "3d": {dims: 3}, "a1d": {dims: 1, layer: true}, "a2d": {dims: 2, layer: true},
	"cube": {dims: 3, cube: true}, "acube": {dims: 3, layer: true, cube: true},
}

// geometry consumes the shape.
func (m *mods) geometry() (geometry, bool) {
	g, ok := geometries[m.any("1d", "2d", "3d", "a1d", "a2d", "cube", "acube")]
	return g, ok
}

// isReference reports whether a variable names a texture, sampler or surface.
func isReference(v *ptx.Var) bool { return v.Type.Class() == ptx.Opaque || v.Space == ptx.TexSpace }

// reference returns a register with the handle in a variable that names a texture, sampler or
// surface: the variable is a word of the module's image, or a parameter.
func (c *compiler) reference(s *ptx.Symbol, offset uint64) (operand, error) {
	if s == nil || s.Var == nil {
		return operand{}, c.invalid("no texture, sampler or surface")
	}
	d := c.newReg(reg64)
	if s.Kind == ptx.SymParam && c.cur.decl.Entry {
		if _, ok := c.params[s.Var]; !ok {
			return operand{}, c.invalid("parameter %s of another kernel", s.Name)
		}
		err := c.loadParam(place{param: s.Var, offset: offset}, []element{{reg: d, size: 8}})
		return d, err
	}
	at, ok := c.loader.image.at[s.Var]
	if !ok || !isReference(s.Var) {
		return operand{}, c.unsupported("%s, which is no texture of this module", s.Name)
	}
	base := c.uniformReg(uniform{wide: true, bits: at + offset, image: true})
	c.memory(place{resolve: global64, fast: loadGlobal64, base: base, space: ptx.GlobalSpace}, d, 8, false, load64)
	return d, nil
}

// object returns a register with the handle of what an address operand names.
func (c *compiler) object(o *ptx.Operand) (operand, error) {
	if o.Kind != ptx.KindAddr {
		return operand{}, c.invalid("an operand that is not an address")
	}
	switch o.Base {
	case ptx.KindReg:
		part := ptx.Operand{Kind: ptx.KindReg, Name: o.Name, Sel: o.Sel, Sym: o.Sym}
		if o.Bits != 0 {
			return operand{}, c.unsupported("an offset from a handle")
		}
		return c.src(&part, ptx.B64)
	case ptx.KindSymbol:
		return c.reference(o.Sym, o.Bits)
	}
	return operand{}, c.unsupported("a constant as handle")
}

// textureOp is an instruction that reads a texture.
type textureOp struct {
	object, sampler operand
	site            uint32
	geometry        geometry
	layer           operand
	at              [3]operand
	ints            bool // coordinates
	gather          int  // the channel of tld4, or -1
	dst             []operand
	out             func(w *warp, x *textureOp, lane int, v *texture.Value)
}

// coordinateCharge is what a texture or surface instruction counts beyond other instructions,
// because of its operands.
const coordinateCharge = 8

// coordinates finds the registers of an instruction's coordinates.
func (c *compiler) coordinates(o *ptx.Operand, g geometry, t ptx.Type) (layer operand, at [3]operand, err error) {
	list := elements(o)
	n := g.dims
	if g.layer {
		n++
	}
	if err := c.charge(coordinateCharge); err != nil {
		return layer, at, err
	}
	if len(list) < n || len(list) > 4 {
		return layer, at, c.invalid("%d coordinates, expected %d", len(list), n)
	}
	if g.layer {
		if layer, err = c.src(list[0], ptx.U32); err != nil {
			return layer, at, err
		}
		list = list[1:]
	}
	for d := range g.dims {
		if at[d], err = c.src(list[d], t); err != nil {
			return layer, at, err
		}
	}
	return layer, at, nil
}

// tex compiles tex and tld4. Textures have one level, so a level of detail has no effect.
func tex(gather bool) handler {
	return func(c *compiler, in *ptx.Instr, m *mods) error {
		x := &textureOp{gather: -1}
		if gather {
			channels := map[string]int{"r": 0, "g": 1, "b": 2, "a": 3}
			k, ok := channels[m.any("r", "g", "b", "a")]
			if !ok {
				return c.unsupported("this form of tld4")
			}
			x.gather = k
		}
		extra := 0
		switch m.any("base", "level", "grad") {
		case "level":
			extra = 1
		case "grad":
			extra = 2
		}
		var ok bool
		if x.geometry, ok = m.geometry(); !ok || gather && x.geometry.dims != 2 {
			return c.unsupported("this shape of texture")
		}
		vector := m.vector()
		m.skip("noftz")
		result, coord := m.typ(), m.typ()
		if err := c.arity(in, 2, 2+extra); err != nil {
			return c.unsupported("offsets and comparisons")
		}
		if coord != ptx.F32 && (coord != ptx.S32 || x.geometry.cube || gather) {
			return c.unsupported("coordinates of type .%s", coord)
		}
		x.ints = coord == ptx.S32
		dst := &in.Operands[0]
		resident := operand{}
		var err error
		if dst.Kind == ptx.KindPair {
			if resident, err = c.dstPred(&dst.Elems[1]); err != nil {
				return err
			}
			dst = &dst.Elems[0]
		}
		if err := c.textureResults(x, dst, vector, result); err != nil {
			return err
		}
		a := &in.Operands[1]
		if x.object, err = c.object(a); err != nil {
			return err
		}
		parts := a.Elems
		if len(parts) == 2 {
			if x.sampler, err = c.samplerOf(&parts[0]); err != nil {
				return err
			}
			parts = parts[1:]
		}
		if len(parts) != 1 {
			return c.invalid("no coordinates")
		}
		if x.layer, x.at, err = c.coordinates(&parts[0], x.geometry, coord); err != nil {
			return err
		}
		x.site = uint32(c.prog.sites)
		c.prog.sites++
		c.emit(inst{op: func(w *warp, in *inst) {
			if x.run(w, in) && resident.class != noReg {
				w.setPred(resident.index, w.mask, full)
			}
		}, run: 1}, c.costs().Memory+c.costs().Special)
		return nil
	}
}

// samplerOf returns a register with a sampler's value.
func (c *compiler) samplerOf(o *ptx.Operand) (operand, error) {
	if o.Kind == ptx.KindSymbol {
		return c.reference(o.Sym, o.Bits)
	}
	return c.src(o, ptx.B64)
}

// textureResults finds the registers of a read's results.
func (c *compiler) textureResults(x *textureOp, dst *ptx.Operand, vector int, t ptx.Type) error {
	class := reg32
	switch {
	case vector == 4 && (t == ptx.F32 || t == ptx.U32 || t == ptx.S32):
		x.out = (*warp).textureWords
	case vector == 4 && t == ptx.F16:
		class, x.out = reg16, (*warp).textureHalves
	case vector == 2 && t == ptx.F16x2:
		x.out = (*warp).texturePairs
	default:
		return c.unsupported("results of type .v%d.%s", vector, t)
	}
	list := elements(dst)
	if len(list) != vector {
		return c.invalid("%d results, expected %d", len(list), vector)
	}
	for _, o := range list {
		r, err := c.anyDst(o)
		if err != nil {
			return err
		}
		if r.class != noReg && r.class != class {
			return c.invalid("result %s is not of the type's width", o.Name)
		}
		x.dst = append(x.dst, r)
	}
	return nil
}

func (w *warp) textureWords(x *textureOp, lane int, v *texture.Value) {
	for k, d := range x.dst {
		if d.class != noReg {
			w.r32[d.index][lane] = v[k]
		}
	}
}

func (w *warp) textureHalves(x *textureOp, lane int, v *texture.Value) {
	for k, d := range x.dst {
		if d.class != noReg {
			w.r32[d.index][lane] = uint32(arith.CvtF16F32(math.Float32frombits(v[k])))
		}
	}
}

func (w *warp) texturePairs(x *textureOp, lane int, v *texture.Value) {
	for k, d := range x.dst {
		if d.class != noReg {
			low, high := arith.CvtF16F32(math.Float32frombits(v[2*k])), arith.CvtF16F32(math.Float32frombits(v[2*k+1]))
			w.r32[d.index][lane] = uint32(low) | uint32(high)<<16
		}
	}
}

// run reads the texture of each lane. It returns false after a fault.
func (x *textureOp) run(w *warp, in *inst) bool {
	var t *texture.Texture
	var data []byte
	var sampled texture.Texture
	handle, sampler := ^uint64(0), ^uint64(0)
	v := &w.grid.texel
	for m := w.mask; m != 0; m &= m - 1 {
		i := first(m)
		if h := w.r64[x.object.index][i]; t == nil || h != handle {
			var ok bool
			if t, data, ok = w.texture(in, x.site, i, h, false); !ok {
				return false
			}
			handle, sampler = h, ^uint64(0)
		}
		how := t
		if x.sampler.class != noReg {
			if s := w.r64[x.sampler.index][i]; s != 0 { // else the texture's own
				if s != sampler {
					var ok bool
					if sampled, ok = withSampler(t, s); !ok {
						w.textureFault(in, gpu.FaultAddress, i, s, false)
						return false
					}
					sampler = s
				}
				how = &sampled
			}
		}
		x.read(w, i, how, data, v)
		x.out(w, x, i, v)
	}
	if t != nil {
		w.chargeSectors(uint32(popcount(w.mask)*t.Texel.Bytes()+sectorBytes-1) / sectorBytes)
	}
	return true
}

// read reads one lane's place in a texture.
func (x *textureOp) read(w *warp, i int, t *texture.Texture, data []byte, v *texture.Value) {
	var layer int64
	if x.layer.class != noReg {
		layer = int64(w.r32[x.layer.index][i])
	}
	if x.ints {
		var at [3]int32
		for d := range x.geometry.dims {
			at[d] = int32(w.r32[x.at[d].index][i])
		}
		t.Fetch(data, at, layer, v)
		return
	}
	var at [3]float32
	for d := range x.geometry.dims {
		at[d] = math.Float32frombits(w.r32[x.at[d].index][i])
	}
	if x.geometry.cube {
		face, s, r := texture.Face(at)
		layer, at = 6*layer+face, [3]float32{s, r}
	}
	if x.gather >= 0 {
		t.Gather(data, x.gather, at, layer, v)
		return
	}
	t.Sample(data, at, layer, v)
}

// txq compiles txq and suq.
func txq(c *compiler, in *ptx.Instr, m *mods) error {
	extra := 0
	if m.has("level") {
		extra = 1
	}
	var query func(t *texture.Texture) uint32
	for name, f := range textureQueries {
		if m.has(name) {
			query = f
		}
	}
	t := m.typ()
	if query == nil || t.Bits() != 32 {
		return c.unsupported("this query")
	}
	if err := c.arity(in, 2, 2+extra); err != nil {
		return err
	}
	d, err := c.dst(&in.Operands[0], ptx.B32)
	if err != nil {
		return err
	}
	a, err := c.object(&in.Operands[1])
	if err != nil {
		return err
	}
	c.emit(inst{op: func(w *warp, in *inst) {
		for m := w.mask; m != 0; m &= m - 1 {
			i := first(m)
			t := w.grid.launch.Memory.Texture(w.r64[a.index][i])
			if t == nil {
				w.textureFault(in, gpu.FaultAddress, i, w.r64[a.index][i], false)
				return
			}
			w.r32[d.index][i] = query(t)
		}
	}, run: 1}, c.costs().Memory)
	return nil
}

// istypep compiles istypep, which tests what a handle names.
func istypep(c *compiler, in *ptx.Instr, m *mods) error {
	kind := m.any("texref", "samplerref", "surfref")
	if kind == "" {
		return c.unsupported("this form of istypep")
	}
	if err := c.arity(in, 2, 2); err != nil {
		return err
	}
	d, err := c.dstPred(&in.Operands[0])
	if err != nil {
		return err
	}
	var a operand
	if o := &in.Operands[1]; o.Kind == ptx.KindAddr {
		a, err = c.object(o)
	} else {
		a, err = c.samplerOf(o)
	}
	if err != nil {
		return err
	}
	c.emit(inst{op: func(w *warp, in *inst) {
		var yes uint32
		for m := w.mask; m != 0; m &= m - 1 {
			i := first(m)
			h := w.r64[a.index][i]
			t := w.grid.launch.Memory.Texture(h)
			is := t != nil && t.Surface == (kind == "surfref")
			if kind == "samplerref" {
				is = h&^uint64(0xff) == samplerMark
			}
			yes |= bit(is) << i
		}
		w.setPred(d.index, w.mask, yes)
	}, run: 1}, c.costs().Simple)
	return nil
}
