package simt

import (
	"errors"
	"fmt"
	"math/bits"

	"vgpud/gpu"
	"vgpud/ptx"
)

// image is the layout of a module's variables in global and constant space, in one range of memory:
// first constants, then variables with initial values, then those that begin as zeros. A variable
// that names a texture, sampler or surface is a word with its handle.
type image struct {
	layout
	base       uint64 // the argument of Place
	constBytes uint64 // at the start; read-only for kernels
	initial    []byte // initial contents, before relocation
	relocs     []reloc
	names      map[string]placed
	references map[string]Reference
}

type placed struct{ offset, size uint64 }

// reloc is an address in the image that is known when the image is placed.
type reloc struct {
	at, size uint64
	addend   uint64
	absolute bool   // the addend is the value: the address of a function
	mask     uint64 // which byte of the address; 0 means all
}

// maxImage limits the size of a module's variables in bytes.
const maxImage = 64 << 30

// imageAlign is the alignment of the image and of its parts with different access.
const imageAlign = 256

// ImageBytes returns the global memory that the module's variables need, or 0. The memory must be
// aligned to 256 bytes.
func (m *Module) ImageBytes() uint64 { return m.vars.size }

// Global returns the offset in the image and the size in bytes of a variable.
func (m *Module) Global(name string) (offset, size uint64, ok bool) {
	p, ok := m.vars.names[name]
	return p.offset, p.size, ok
}

// layOut places the module's variables.
func (l *loader) layOut() error {
	im := l.image
	im.names, im.references = map[string]placed{}, map[string]Reference{}
	var vars []*ptx.Var
	for _, it := range l.prog.Module.Items {
		if v, ok := it.(*ptx.Var); ok && v.Linking != ptx.Extern {
			vars = append(vars, v)
		}
	}
	for _, c := range l.prog.Codes {
		for _, s := range c.Vars {
			if s.Var != nil && (s.Var.Space == ptx.GlobalSpace || s.Var.Space == ptx.ConstSpace) {
				vars = append(vars, s.Var)
			}
		}
	}
	group := func(want func(v *ptx.Var) bool) error {
		for _, v := range vars {
			if !want(v) {
				continue
			}
			n, ok := sizeOf(v, maxImage)
			if isReference(v) {
				n, ok = referenceBytes(v)
			}
			if !ok || im.size+n > maxImage {
				return fmt.Errorf("PTX line %d: variable %s: more than %d bytes: %w", v.Pos.Line, v.Name, uint64(maxImage), gpu.ErrUnsupported)
			}
			if isReference(v) {
				im.size = alignUp(im.size, 8)
				if at := im.add(v, n); v.Type != ptx.SamplerRef {
					im.references[v.Name] = Reference{at, v.Type == ptx.SurfRef}
				}
				continue
			}
			at := im.add(v, n)
			im.names[v.Name] = placed{at, n}
		}
		return nil
	}
	err := group(func(v *ptx.Var) bool { return v.Space == ptx.ConstSpace })
	im.size = alignUp(im.size, imageAlign)
	im.constBytes = im.size
	if err == nil {
		err = group(func(v *ptx.Var) bool { return v.Space == ptx.GlobalSpace && v.Init != nil })
	}
	filled := im.size
	if err == nil {
		err = group(func(v *ptx.Var) bool { return v.Space == ptx.GlobalSpace && v.Init == nil || v.Space == ptx.TexSpace })
	}
	if err != nil {
		return err
	}
	if filled > maxInitial {
		return fmt.Errorf("%d bytes of constants and initial values: %w", filled, gpu.ErrUnsupported)
	}
	im.initial = make([]byte, filled)
	return nil
}

// maxInitial limits the size of constants and variables with initial values in bytes.
const maxInitial = 32 << 20

// initialise decodes the initial values.
func (l *loader) initialise() error {
	for v, at := range l.image.at {
		if v.Init == nil {
			continue
		}
		if isReference(v) {
			if err := l.initialSampler(v, at); err != nil {
				return err
			}
			continue
		}
		size := uint64(v.Type.Size())
		for val, err := range v.Values() {
			if err == nil {
				err = l.initialValue(v, val, at+uint64(val.Index)*size, size)
			}
			if err != nil {
				return fmt.Errorf("PTX line %d: variable %s: %w", v.Pos.Line, v.Name, err)
			}
		}
	}
	return nil
}

// referenceBytes returns the size of a variable that names textures, samplers or surfaces.
func referenceBytes(v *ptx.Var) (uint64, bool) {
	n := v.Len()
	return 8 * uint64(max(n, 0)), n >= 0 && n <= maxReferences
}

// maxReferences is the maximum number of elements of an array of textures, samplers or surfaces.
const maxReferences = 1 << 16

// initialSampler sets the value of a sampler variable. A texture's initial value has its meaning only
// once a texture is bound to the variable.
func (l *loader) initialSampler(v *ptx.Var, at uint64) error {
	if v.Type != ptx.SamplerRef {
		return nil
	}
	fields, ok := v.Fields()
	value, known := sampler(fields)
	if !ok || !known {
		return fmt.Errorf("PTX line %d: the initial value of sampler %s: %w", v.Pos.Line, v.Name, gpu.ErrUnsupported)
	}
	put(l.image.initial[at:], 8, value)
	return nil
}

// Reference is a variable that names a texture or surface by a handle in the image.
type Reference struct {
	Offset  uint64 // of the handle
	Surface bool
}

// Reference returns the variable of that name.
func (m *Module) Reference(name string) (r Reference, ok bool) {
	r, ok = m.vars.references[name]
	return r, ok
}

func (l *loader) initialValue(v *ptx.Var, val ptx.Value, at, size uint64) error {
	im := l.image
	if val.Index < 0 || at+size > uint64(len(im.initial)) || size > 8 || bits.OnesCount64(size) != 1 {
		return fmt.Errorf("an initial value out of place: %w", gpu.ErrInvalidModule)
	}
	if val.Name == "" {
		o := ptx.Operand{Kind: ptx.KindImm, Imm: val.Imm, Bits: val.Bits}
		put(im.initial[at:], int(size), immediate(&o, v.Type))
		return nil
	}
	s := l.prog.Globals[val.Name]
	r := reloc{at: at, size: size, addend: val.Bits, mask: val.Mask}
	switch {
	case s == nil:
		return fmt.Errorf("%s is not declared: %w", val.Name, gpu.ErrInvalidModule)
	case s.Kind == ptx.SymFunc:
		f := l.addressOf(s.Func)
		if f == 0 {
			return fmt.Errorf("the address of %s: %w", val.Name, gpu.ErrUnsupported)
		}
		r.addend, r.absolute = r.addend+f, true
	case s.Var == nil:
		return fmt.Errorf("the address of %s: %w", val.Name, gpu.ErrInvalidModule)
	default:
		offset, ok := im.at[s.Var]
		if !ok {
			return fmt.Errorf("the address of %s, which is not in global memory: %w", val.Name, gpu.ErrUnsupported)
		}
		r.addend += offset
	}
	im.relocs = append(im.relocs, r)
	return nil
}

// Place sets the address of the module's variables in the context's memory, ImageBytes bytes from
// base on. It returns the initial contents of that memory, with the addresses of variables and
// functions filled in; the rest of the memory must be zero.
func (m *Module) Place(base uint64) []byte {
	im := &m.vars
	im.base = base
	out := append([]byte(nil), im.initial...)
	for _, r := range im.relocs {
		v := r.addend
		if !r.absolute {
			v += base
		}
		if r.mask != 0 {
			v = v & r.mask >> bits.TrailingZeros64(r.mask)
		}
		put(out[r.at:], int(r.size), v)
	}
	return out
}

// MapImage maps the module's placed variables, backed by data, into mem. Constants are read-only
// for kernels.
func (m *Module) MapImage(mem *Memory, data []byte) error {
	im := &m.vars
	if uint64(len(data)) != im.size {
		return fmt.Errorf("map a module's variables: %d bytes for %d", len(data), im.size)
	}
	c := im.constBytes
	if c > 0 {
		if err := mem.insert(mapping{lo: im.base, data: data[:c:c], readOnly: true}); err != nil {
			return err
		}
	}
	if c < im.size {
		if err := mem.Map(im.base+c, data[c:]); err != nil {
			if c > 0 {
				err = errors.Join(err, mem.Unmap(im.base))
			}
			return err
		}
	}
	return nil
}

// UnmapImage undoes MapImage and drops what mem caches of the module's kernels.
func (m *Module) UnmapImage(mem *Memory) error {
	for _, k := range m.kernels {
		mem.idle.forget(k.prog)
	}
	im := &m.vars
	if im.constBytes > 0 {
		if err := mem.Unmap(im.base); err != nil {
			return err
		}
	}
	if im.constBytes < im.size {
		return mem.Unmap(im.base + im.constBytes)
	}
	return nil
}
