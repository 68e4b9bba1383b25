package cuda

import (
	"context"
	"math"
	"sync"

	"vgpud/guestagent/driver"
	"vgpud/mediator/vgpu/abi"
)

// ResourceDesc is CUDA_RESOURCE_DESC: Of has an array's handle, or the address, the format and the
// number of channels, and the size in bytes; or, of two dimensions, texels, rows and pitch.
type ResourceDesc struct {
	Type  uint32
	_     uint32
	Of    [16]uint64
	Flags uint32
	_     uint32
}

// Values of CUresourcetype.
const (
	resourceArray = iota
	resourceMipmapped
	resourceLinear
	resourcePitch2D
)

// TextureDesc is CUDA_TEXTURE_DESC.
type TextureDesc struct {
	Address       [3]uint32
	Filter        uint32
	Flags         uint32
	MaxAnisotropy uint32
	MipmapFilter  uint32
	MipmapBias    float32
	MinMipmap     float32
	MaxMipmap     float32
	Border        [4]float32
	_             [12]int32
}

// ResourceViewDesc is CUDA_RESOURCE_VIEW_DESC.
type ResourceViewDesc struct {
	Format                  uint32
	_                       uint32
	Width, Height, Depth    uint64
	FirstMipmap, LastMipmap uint32
	FirstLayer, LastLayer   uint32
	_                       [16]uint32
}

// Flags of textures.
const (
	textureReadAsInteger        = 1
	textureNormalized           = 2
	textureNoTrilinear          = 0x20 // which changes nothing without mipmaps
	textureFlags         uint32 = textureReadAsInteger | textureNormalized | textureNoTrilinear
)

// memory returns the driver's form of what a texture reads.
func (c *Call) memory(x *Context, d *ResourceDesc) (m driver.TextureMemory, r Result) {
	switch d.Type {
	case resourceArray:
		a, r := c.arrayOf(Handle(d.Of[0]))
		if r == Success && a.x != x {
			r = ErrorInvalidValue
		}
		if r == Success {
			m.Array = a.a
		}
		return m, r
	case resourceLinear, resourcePitch2D:
	case resourceMipmapped:
		return m, ErrorNotSupported
	default:
		return m, ErrorInvalidValue
	}
	m.Ptr = driver.Ptr(d.Of[0])
	format, channels := uint32(d.Of[1]), uint32(d.Of[1]>>32)
	size := uint64(texel(format, channels))
	if size == 0 {
		return m, ErrorInvalidValue
	}
	m.Format, m.Channels = uint16(format), uint16(channels)
	width, height, pitch := d.Of[2]/size, uint64(0), uint64(0)
	if d.Type == resourcePitch2D {
		width, height, pitch = d.Of[2], d.Of[3], d.Of[4]
	}
	if width == 0 || width > math.MaxUint32 || height > math.MaxUint32 || pitch > math.MaxUint32 || d.Type == resourcePitch2D && (height == 0 || pitch < width*size) {
		return m, ErrorInvalidValue
	}
	m.Width, m.Height, m.Pitch = uint32(width), uint32(height), uint32(pitch)
	return m, x.deviceRange(d.Of[0], max(height, 1)*max(pitch, 1))
}

// sampling returns the driver's form of how a texture is read.
func (t *TextureDesc) sampling() (s driver.Sampling, r Result) {
	const addressModes, filters = 4, 2
	for i, a := range t.Address {
		if a >= addressModes {
			return s, ErrorInvalidValue
		}
		s.Address[i] = uint16(a)
	}
	if t.Filter >= filters {
		return s, ErrorInvalidValue
	}
	if t.Flags&^textureFlags != 0 {
		return s, ErrorNotSupported
	}
	s.Filter, s.Border = uint16(t.Filter), t.Border
	s.Normalized, s.ReadAsInteger = t.Flags&textureNormalized != 0, t.Flags&textureReadAsInteger != 0
	return s, Success
}

// textureObject is a CUtexObject or CUsurfObject.
type textureObject struct {
	t        *driver.Texture
	resource ResourceDesc
	texture  TextureDesc
	surface  bool
}

// textures are a context's texture and surface objects by what kernels name them by.
type textures struct {
	mu  sync.Mutex
	all map[uint64]*textureObject
}

func (t *textures) add(o *textureObject) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[uint64]*textureObject{}
	}
	t.all[o.t.Handle()] = o
}

// object returns an object of the current context.
func (c *Call) object(h uint64, surface bool) (*Context, *textureObject, Result) {
	x, r := c.context()
	if r != Success {
		return nil, nil, r
	}
	x.textures.mu.Lock()
	defer x.textures.mu.Unlock()
	o := x.textures.all[h]
	if o == nil || o.surface != surface {
		return nil, nil, ErrorInvalidValue
	}
	return x, o, Success
}

// TexObjectCreate is cuTexObjectCreate.
func (c *Call) TexObjectCreate(out *uint64, d *ResourceDesc, t *TextureDesc, v *ResourceViewDesc) Result {
	x, r := c.context()
	switch {
	case r != Success:
		return r
	case out == nil, d == nil, t == nil, d.Flags != 0:
		return ErrorInvalidValue
	case v != nil && v.Format != 0:
		return ErrorNotSupported
	}
	m, r := c.memory(x, d)
	if r != Success {
		return r
	}
	s, r := t.sampling()
	if r != Success {
		return r
	}
	dt, err := x.gpu.NewTexture(context.Background(), m, s)
	if err != nil {
		return x.fail(err)
	}
	x.textures.add(&textureObject{t: dt, resource: *d, texture: *t})
	put(out, dt.Handle())
	return Success
}

// SurfObjectCreate is cuSurfObjectCreate.
func (c *Call) SurfObjectCreate(out *uint64, d *ResourceDesc) Result {
	x, r := c.context()
	switch {
	case r != Success:
		return r
	case out == nil, d == nil, d.Type != resourceArray, d.Flags != 0:
		return ErrorInvalidValue
	}
	a, r := c.arrayOf(Handle(d.Of[0]))
	if r != Success {
		return r
	}
	if a.x != x || a.d.Flags&abi.ArraySurface == 0 {
		return ErrorInvalidValue
	}
	t, err := x.gpu.NewSurface(context.Background(), a.a)
	if err != nil {
		return x.fail(err)
	}
	x.textures.add(&textureObject{t: t, resource: *d, surface: true})
	put(out, t.Handle())
	return Success
}

// destroyObject ends an object when all commands before have ended.
func (c *Call) destroyObject(h uint64, surface bool) Result {
	x, o, r := c.object(h, surface)
	if r != Success {
		return r
	}
	x.textures.mu.Lock()
	delete(x.textures.all, h)
	x.textures.mu.Unlock()
	return c.waitFor(x.everything(), func() Result {
		if err := o.t.Close(context.Background()); err != nil {
			return x.fail(err)
		}
		return Success
	})
}

// TexObjectDestroy is cuTexObjectDestroy.
func (c *Call) TexObjectDestroy(h uint64) Result { return c.destroyObject(h, false) }

// SurfObjectDestroy is cuSurfObjectDestroy.
func (c *Call) SurfObjectDestroy(h uint64) Result { return c.destroyObject(h, true) }

// describe stores a part of an object's description.
func describe[T any](c *Call, out *T, h uint64, surface bool, of func(*textureObject) T) Result {
	_, o, r := c.object(h, surface)
	if r == Success && out == nil {
		r = ErrorInvalidValue
	}
	if r == Success {
		*out = of(o)
	}
	return r
}

// TexObjectGetResourceDesc is cuTexObjectGetResourceDesc.
func (c *Call) TexObjectGetResourceDesc(out *ResourceDesc, h uint64) Result {
	return describe(c, out, h, false, func(o *textureObject) ResourceDesc { return o.resource })
}

// TexObjectGetTextureDesc is cuTexObjectGetTextureDesc.
func (c *Call) TexObjectGetTextureDesc(out *TextureDesc, h uint64) Result {
	return describe(c, out, h, false, func(o *textureObject) TextureDesc { return o.texture })
}

// TexObjectGetResourceViewDesc is cuTexObjectGetResourceViewDesc. No texture has a view.
func (c *Call) TexObjectGetResourceViewDesc(out *ResourceViewDesc, h uint64) Result {
	return describe(c, out, h, false, func(*textureObject) ResourceViewDesc { return ResourceViewDesc{} })
}

// SurfObjectGetResourceDesc is cuSurfObjectGetResourceDesc.
func (c *Call) SurfObjectGetResourceDesc(out *ResourceDesc, h uint64) Result {
	return describe(c, out, h, true, func(o *textureObject) ResourceDesc { return o.resource })
}
