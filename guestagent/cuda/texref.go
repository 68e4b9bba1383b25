package cuda

import (
	"context"
	"errors"

	"vgpud/guestagent/driver"
)

// reference is a CUtexref or CUsurfref: a variable of a module that names a texture or surface. The
// texture or surface is made and bound at the next launch of one of the module's kernels.
type reference struct {
	m       *module // nil of one that the program made
	name    string
	handle  Handle
	surface bool

	// Guarded by Context.mu.
	resource         ResourceDesc
	set              bool // resource
	texture          TextureDesc
	format, channels uint32
	dirty            bool
	bound            *driver.Texture
}

// reference returns the reference of a module's variable.
func (c *Call) moduleReference(out *Handle, h Handle, name *byte, surface bool) Result {
	m := get[module](&c.d.objects, h)
	n, ok := text(name)
	switch {
	case m == nil:
		return ErrorInvalidHandle
	case out == nil, !ok:
		return ErrorInvalidValue
	case m.hasReference == nil || !m.hasReference(n, surface):
		return ErrorNotFound
	}
	m.x.mu.Lock()
	defer m.x.mu.Unlock()
	v := m.references[n]
	if v == nil {
		v = newReference()
		v.m, v.name, v.surface = m, n, surface
		if v.handle = c.d.objects.add(v); v.handle == 0 {
			return ErrorOutOfMemory
		}
		if m.references == nil {
			m.references = map[string]*reference{}
		}
		m.references[n] = v
	}
	put(out, v.handle)
	return Success
}

func newReference() *reference {
	return &reference{texture: TextureDesc{MaxAnisotropy: 0}, format: formatFloat, channels: 1}
}

// ModuleGetTexRef is cuModuleGetTexRef.
func (c *Call) ModuleGetTexRef(out *Handle, m Handle, name *byte) Result {
	return c.moduleReference(out, m, name, false)
}

// ModuleGetSurfRef is cuModuleGetSurfRef.
func (c *Call) ModuleGetSurfRef(out *Handle, m Handle, name *byte) Result {
	return c.moduleReference(out, m, name, true)
}

// changeReference changes a reference.
func (c *Call) changeReference(h Handle, surface bool, f func(*reference) Result) Result {
	v := get[reference](&c.d.objects, h)
	if v == nil || v.surface != surface {
		return ErrorInvalidHandle
	}
	if v.m == nil {
		return f(v)
	}
	v.m.x.mu.Lock()
	defer v.m.x.mu.Unlock()
	r := f(v)
	if r == Success && v.set {
		v.dirty = true
		v.m.unbound.Store(true)
	}
	return r
}

// askReference reads a reference.
func (c *Call) askReference(h Handle, valid bool, f func(*reference) Result) Result {
	v := get[reference](&c.d.objects, h)
	if v == nil {
		return ErrorInvalidHandle
	}
	if !valid {
		return ErrorInvalidValue
	}
	if v.m != nil {
		v.m.x.mu.Lock()
		defer v.m.x.mu.Unlock()
	}
	return f(v)
}

// bind makes the textures that a module's variables name, and has the variables name them in what
// follows in a channel. x.mu is not held.
func (c *Call) bind(s *stream, m *module) Result {
	x, ctx := m.x, context.Background()
	type job struct {
		v *reference
		reference
	}
	var due []job
	x.mu.Lock()
	m.unbound.Store(false)
	for _, v := range m.references {
		if v.dirty {
			v.dirty = false
			due = append(due, job{v, *v})
		}
	}
	x.mu.Unlock()
	for i, j := range due {
		t, r := c.named(x, &j.reference)
		if r == Success {
			if err := s.ch.ch.Bind(ctx, m.m, j.name, t); err != nil {
				r = x.fail(errors.Join(err, t.Close(ctx)))
			}
		}
		x.mu.Lock()
		if r != Success { // the next launch tries again
			for _, j := range due[i:] {
				j.v.dirty = true
			}
			m.unbound.Store(true)
			x.mu.Unlock()
			return r
		}
		if j.v.bound != nil { // launches that have not ended may use it
			x.stale = append(x.stale, j.v.bound)
		}
		j.v.bound = t
		x.mu.Unlock()
	}
	return Success
}

// named makes the texture or surface that a reference is to name.
func (c *Call) named(x *Context, v *reference) (*driver.Texture, Result) {
	ctx := context.Background()
	if v.surface {
		a, r := c.arrayOf(Handle(v.resource.Of[0]))
		if r != Success {
			return nil, r
		}
		t, err := x.gpu.NewSurface(ctx, a.a)
		if err != nil {
			return nil, x.fail(err)
		}
		return t, Success
	}
	m, r := c.memory(x, &v.resource)
	if r != Success {
		return nil, r
	}
	s, r := v.texture.sampling()
	if r != Success {
		return nil, r
	}
	t, err := x.gpu.NewTexture(ctx, m, s)
	if err != nil {
		return nil, x.fail(err)
	}
	return t, Success
}

// closeStale ends the textures that no reference names any more, when all commands have ended.
func (x *Context) closeStale() {
	x.mu.Lock()
	stale := x.stale
	x.stale = nil
	x.mu.Unlock()
	for _, t := range stale {
		_ = t.Close(context.Background()) // or the context has ended
	}
}

// TexRefCreate is cuTexRefCreate. No kernel sees the reference.
func (c *Call) TexRefCreate(out *Handle) Result {
	if out == nil {
		return ErrorInvalidValue
	}
	v := newReference()
	if v.handle = c.d.objects.add(v); v.handle == 0 {
		return ErrorOutOfMemory
	}
	put(out, v.handle)
	return Success
}

// TexRefDestroy is cuTexRefDestroy.
func (c *Call) TexRefDestroy(h Handle) Result {
	v := get[reference](&c.d.objects, h)
	if v == nil || v.m != nil || !c.d.objects.remove(h) {
		return ErrorInvalidHandle
	}
	return Success
}

// ParamSetTexRef is cuParamSetTexRef. A kernel sees the references of its own module as it is.
func (c *Call) ParamSetTexRef(fh Handle, unit int32, h Handle) Result {
	const byName = -1 // CU_PARAM_TR_DEFAULT
	f, r := c.function(fh)
	if r != Success {
		return r
	}
	v := get[reference](&c.d.objects, h)
	switch {
	case v == nil || v.surface:
		return ErrorInvalidHandle
	case unit != byName || v.m != f.m:
		return ErrorInvalidValue
	}
	return Success
}

// overrideFormat is the flag that TexRefSetArray and SurfRefSetArray need and allow.
const overrideFormat = 1

// TexRefSetArray is cuTexRefSetArray.
func (c *Call) TexRefSetArray(h, array Handle, flags uint32) Result {
	a, r := c.arrayOf(array)
	if r != Success {
		return r
	}
	if flags&^overrideFormat != 0 {
		return ErrorInvalidValue
	}
	return c.changeReference(h, false, func(v *reference) Result {
		v.resource, v.set = ResourceDesc{Type: resourceArray, Of: [16]uint64{uint64(array)}}, true
		v.format, v.channels = a.d.Format, a.d.Channels
		return Success
	})
}

// SurfRefSetArray is cuSurfRefSetArray.
func (c *Call) SurfRefSetArray(h, array Handle, flags uint32) Result {
	if _, r := c.arrayOf(array); r != Success {
		return r
	}
	if flags != 0 {
		return ErrorInvalidValue
	}
	return c.changeReference(h, true, func(v *reference) Result {
		v.resource, v.set = ResourceDesc{Type: resourceArray, Of: [16]uint64{uint64(array)}}, true
		return Success
	})
}

// arrayNamed stores the array that a reference names.
func (c *Call) arrayNamed(out *Handle, h Handle) Result {
	return c.askReference(h, out != nil, func(v *reference) Result {
		if !v.set || v.resource.Type != resourceArray {
			return ErrorInvalidValue
		}
		put(out, Handle(v.resource.Of[0]))
		return Success
	})
}

// TexRefGetArray is cuTexRefGetArray.
func (c *Call) TexRefGetArray(out *Handle, h Handle) Result { return c.arrayNamed(out, h) }

// SurfRefGetArray is cuSurfRefGetArray.
func (c *Call) SurfRefGetArray(out *Handle, h Handle) Result { return c.arrayNamed(out, h) }

// TexRefSetAddressV2 is cuTexRefSetAddress_v2. Any address may begin a texture here, so that the
// offset is 0. Without an address and a size it takes back what is not yet bound: launches that
// follow need no memory that the program may have freed.
func (c *Call) TexRefSetAddressV2(at *uint64, h Handle, p, n uint64) Result {
	if (p == 0) != (n == 0) {
		return ErrorInvalidValue
	}
	return c.changeReference(h, false, func(v *reference) Result {
		if n == 0 {
			v.resource, v.set, v.dirty = ResourceDesc{}, false, false
			return Success
		}
		v.resource = ResourceDesc{Type: resourceLinear, Of: [16]uint64{p, uint64(v.format) | uint64(v.channels)<<32, n}}
		v.set = true
		if at != nil {
			put(at, 0)
		}
		return Success
	})
}

// TexRefSetAddress2DV3 is cuTexRefSetAddress2D_v3.
func (c *Call) TexRefSetAddress2DV3(h Handle, d *ArrayDescriptor, p, pitch uint64) Result {
	if d == nil || p == 0 {
		return ErrorInvalidValue
	}
	return c.changeReference(h, false, func(v *reference) Result {
		v.format, v.channels = d.Format, d.Channels
		v.resource = ResourceDesc{Type: resourcePitch2D, Of: [16]uint64{p, uint64(d.Format) | uint64(d.Channels)<<32, d.Width, d.Height, pitch}}
		v.set = true
		return Success
	})
}

// TexRefSetAddress2DV2 is cuTexRefSetAddress2D_v2.
func (c *Call) TexRefSetAddress2DV2(h Handle, d *ArrayDescriptor, p, pitch uint64) Result {
	return c.TexRefSetAddress2DV3(h, d, p, pitch)
}

// TexRefGetAddressV2 is cuTexRefGetAddress_v2.
func (c *Call) TexRefGetAddressV2(out *uint64, h Handle) Result {
	return c.askReference(h, out != nil, func(v *reference) Result {
		if !v.set || v.resource.Type == resourceArray {
			return ErrorInvalidValue
		}
		put(out, v.resource.Of[0])
		return Success
	})
}

// TexRefSetFormat is cuTexRefSetFormat.
func (c *Call) TexRefSetFormat(h Handle, format uint32, channels int32) Result {
	if texel(format, uint32(channels)) == 0 {
		return ErrorInvalidValue
	}
	return c.changeReference(h, false, func(v *reference) Result {
		v.format, v.channels = format, uint32(channels)
		if v.resource.Type == resourceLinear {
			v.resource.Of[1] = uint64(format) | uint64(channels)<<32
		}
		return Success
	})
}

// TexRefGetFormat is cuTexRefGetFormat.
func (c *Call) TexRefGetFormat(format *uint32, channels *int32, h Handle) Result {
	return c.askReference(h, format != nil && channels != nil, func(v *reference) Result {
		put(format, v.format)
		put(channels, int32(v.channels))
		return Success
	})
}

// TexRefSetAddressMode is cuTexRefSetAddressMode.
func (c *Call) TexRefSetAddressMode(h Handle, dim int32, mode uint32) Result {
	if dim < 0 || dim > 2 || mode > 3 {
		return ErrorInvalidValue
	}
	return c.changeReference(h, false, func(v *reference) Result {
		v.texture.Address[dim] = mode
		return Success
	})
}

// TexRefGetAddressMode is cuTexRefGetAddressMode.
func (c *Call) TexRefGetAddressMode(out *uint32, h Handle, dim int32) Result {
	return c.askReference(h, out != nil && dim >= 0 && dim <= 2, func(v *reference) Result {
		put(out, v.texture.Address[dim])
		return Success
	})
}

// TexRefSetFilterMode is cuTexRefSetFilterMode.
func (c *Call) TexRefSetFilterMode(h Handle, mode uint32) Result {
	if mode > 1 {
		return ErrorInvalidValue
	}
	return c.changeReference(h, false, func(v *reference) Result {
		v.texture.Filter = mode
		return Success
	})
}

// TexRefGetFilterMode is cuTexRefGetFilterMode.
func (c *Call) TexRefGetFilterMode(out *uint32, h Handle) Result {
	return c.askReference(h, out != nil, func(v *reference) Result {
		put(out, v.texture.Filter)
		return Success
	})
}

// TexRefSetFlags is cuTexRefSetFlags.
func (c *Call) TexRefSetFlags(h Handle, flags uint32) Result {
	if flags&^textureFlags != 0 {
		return ErrorInvalidValue
	}
	return c.changeReference(h, false, func(v *reference) Result {
		v.texture.Flags = flags
		return Success
	})
}

// TexRefGetFlags is cuTexRefGetFlags.
func (c *Call) TexRefGetFlags(out *uint32, h Handle) Result {
	return c.askReference(h, out != nil, func(v *reference) Result {
		put(out, v.texture.Flags)
		return Success
	})
}

// TexRefSetBorderColor is cuTexRefSetBorderColor.
func (c *Call) TexRefSetBorderColor(h Handle, color *float32) Result {
	if color == nil {
		return ErrorInvalidValue
	}
	return c.changeReference(h, false, func(v *reference) Result {
		copy(v.texture.Border[:], array(color, 4))
		return Success
	})
}

// TexRefGetBorderColor is cuTexRefGetBorderColor.
func (c *Call) TexRefGetBorderColor(out *float32, h Handle) Result {
	return c.askReference(h, out != nil, func(v *reference) Result {
		copy(array(out, 4), v.texture.Border[:])
		return Success
	})
}

// TexRefSetMaxAnisotropy is cuTexRefSetMaxAnisotropy. Without mipmaps it changes nothing.
func (c *Call) TexRefSetMaxAnisotropy(h Handle, n uint32) Result {
	return c.changeReference(h, false, func(v *reference) Result {
		v.texture.MaxAnisotropy = n
		return Success
	})
}

// TexRefGetMaxAnisotropy is cuTexRefGetMaxAnisotropy.
func (c *Call) TexRefGetMaxAnisotropy(out *int32, h Handle) Result {
	return c.askReference(h, out != nil, func(v *reference) Result {
		put(out, int32(v.texture.MaxAnisotropy))
		return Success
	})
}
