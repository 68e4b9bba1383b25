package cudatest

import (
	"strings"

	"vgpud/gpu/nvidia/cuda"
)

// array is an array, whose rows follow one another.
type array struct {
	desc cuda.Array3D
	data []byte
}

// row is the size of a row in bytes.
func (a *array) row() uintptr {
	size := map[int32]uintptr{0x01: 1, 0x08: 1, 0x02: 2, 0x09: 2, 0x10: 2, 0x03: 4, 0x0a: 4, 0x20: 4}[a.desc.Format]
	return a.desc.Width * size * uintptr(a.desc.NumChannels)
}

// Bound is what a module's texture or surface reference was set to.
type Bound struct {
	Resource cuda.ResourceDesc
	Texture  cuda.TextureDesc
	Array    cuda.Array // of a surface
}

// ArrayCreate fills the array with garbage.
func (g *GPU) ArrayCreate(d *cuda.Array3D) (cuda.Array, error) {
	defer g.mu.Unlock()
	if err := g.inContext("ArrayCreate"); err != nil {
		return 0, err
	}
	a := &array{desc: *d}
	n := a.row() * max(d.Height, 1) * max(d.Depth, 1)
	if n == 0 {
		return 0, cuda.ErrInvalidValue
	}
	if uint64(n) > g.Memory-g.used {
		return 0, cuda.ErrOutOfMemory
	}
	a.data = make([]byte, n)
	for i := range a.data {
		a.data[i] = 0xee
	}
	g.used += uint64(n)
	h := cuda.Array(g.handle())
	g.arrays[h] = a
	return h, nil
}

// ArrayDestroy is [cuda.Library.ArrayDestroy].
func (g *GPU) ArrayDestroy(h cuda.Array) error {
	defer g.mu.Unlock()
	if err := g.inContext("ArrayDestroy"); err != nil {
		return err
	}
	a := g.arrays[h]
	if a == nil {
		return cuda.ErrInvalidHandle
	}
	g.used -= uint64(len(a.data))
	delete(g.arrays, h)
	return nil
}

// Array returns the contents of an array, or nil.
func (g *GPU) Array(h cuda.Array) []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a := g.arrays[h]; a != nil {
		return a.data
	}
	return nil
}

// Textures returns the number of texture and surface objects.
func (g *GPU) Textures() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.objects)
}

// Object returns what a texture or surface object was made of.
func (g *GPU) Object(h uint64) Bound {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.objects[h]
}

// Bound returns what the reference of that name was set to.
func (g *GPU) Bound(name string) Bound {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.bound[name]
}

// resource checks that a description names memory or an array.
func (g *GPU) resource(r *cuda.ResourceDesc) error {
	if r.Type == cuda.ResourceArray {
		if g.arrays[r.Array()] == nil {
			return cuda.ErrInvalidHandle
		}
		return nil
	}
	p, _, channels, size, height, pitch := r.Memory()
	if r.Type == cuda.ResourcePitch2D {
		size = (height - 1) * pitch
	}
	if channels == 0 || g.find(p, size) == nil {
		return cuda.ErrInvalidValue
	}
	return nil
}

func (g *GPU) object(method string, b Bound) (uint64, error) {
	defer g.mu.Unlock()
	if err := g.inContext(method); err != nil {
		return 0, err
	}
	if err := g.resource(&b.Resource); err != nil {
		return 0, err
	}
	h := g.handle()
	g.objects[h] = b
	return h, nil
}

// TexObjectCreate is [cuda.Library.TexObjectCreate].
func (g *GPU) TexObjectCreate(r *cuda.ResourceDesc, t *cuda.TextureDesc) (uint64, error) {
	return g.object("TexObjectCreate", Bound{Resource: *r, Texture: *t})
}

// SurfObjectCreate is [cuda.Library.SurfObjectCreate].
func (g *GPU) SurfObjectCreate(r *cuda.ResourceDesc) (uint64, error) {
	return g.object("SurfObjectCreate", Bound{Resource: *r, Array: r.Array()})
}

func (g *GPU) destroyObject(method string, h uint64) error {
	defer g.mu.Unlock()
	if err := g.inContext(method); err != nil {
		return err
	}
	if _, ok := g.objects[h]; !ok {
		return cuda.ErrInvalidHandle
	}
	delete(g.objects, h)
	return nil
}

// TexObjectDestroy is [cuda.Library.TexObjectDestroy].
func (g *GPU) TexObjectDestroy(h uint64) error { return g.destroyObject("TexObjectDestroy", h) }

// SurfObjectDestroy is [cuda.Library.SurfObjectDestroy].
func (g *GPU) SurfObjectDestroy(h uint64) error { return g.destroyObject("SurfObjectDestroy", h) }

func (g *GPU) bind(method string, m cuda.Module, name string, b Bound) error {
	defer g.mu.Unlock()
	if err := g.inContext(method); err != nil {
		return err
	}
	if g.modules[m] == nil {
		return cuda.ErrInvalidHandle
	}
	if name == "" || name[0] == '-' { // a module of this driver has any other
		return cuda.ErrNotFound
	}
	if err := g.resource(&b.Resource); err != nil {
		return err
	}
	g.bound[name] = b
	return nil
}

// ModuleReference takes names that begin with "canvas" for surfaces, and with "-" for none.
func (g *GPU) ModuleReference(m cuda.Module, name string) (surface bool, err error) {
	defer g.mu.Unlock()
	if err := g.inContext("ModuleReference"); err != nil {
		return false, err
	}
	if g.modules[m] == nil {
		return false, cuda.ErrInvalidHandle
	}
	if name == "" || name[0] == '-' {
		return false, cuda.ErrNotFound
	}
	return strings.HasPrefix(name, "canvas"), nil
}

// BindTexture is [cuda.Library.BindTexture].
func (g *GPU) BindTexture(m cuda.Module, name string, r *cuda.ResourceDesc, t *cuda.TextureDesc) error {
	return g.bind("BindTexture", m, name, Bound{Resource: *r, Texture: *t})
}

// BindSurface is [cuda.Library.BindSurface].
func (g *GPU) BindSurface(m cuda.Module, name string, a cuda.Array) error {
	return g.bind("BindSurface", m, name, Bound{Resource: *cuda.OfArray(a), Array: a})
}

// arrayRow returns a row of a box in an array.
func (g *GPU) arrayRow(h cuda.Array, x, y, z, n uintptr) ([]byte, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.arrays[h]
	if a == nil || x+n > a.row() || y >= max(a.desc.Height, 1) || z >= max(a.desc.Depth, 1) {
		return nil, cuda.ErrInvalidValue
	}
	at := (z*max(a.desc.Height, 1)+y)*a.row() + x
	return a.data[at:][:n], nil
}
