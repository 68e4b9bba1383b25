package soft

import (
	"encoding/binary"
	"errors"
	"fmt"

	"vgpud/gpu"
	"vgpud/gpu/soft/texture"
)

// An array is an allocation of the context with its rows one after the other. A texture or surface
// is a descriptor that the engine keeps by handle. A module's variable that names one is a word of
// the module's image.

// array is a CUDA array.
type array struct {
	c     *deviceContext
	shape gpu.ArrayShape
	at    gpu.Ptr
}

// NewArray returns an array of zeros.
func (c *deviceContext) NewArray(s gpu.ArrayShape) (gpu.Array, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	p, err := c.Alloc(s.Bytes())
	if err != nil {
		return nil, err
	}
	return &array{c, s, p}, nil
}

// Shape returns the array's shape.
func (a *array) Shape() gpu.ArrayShape { return a.shape }

// Bytes returns the GPU memory that the array takes.
func (a *array) Bytes() uint64 { return a.shape.Bytes() }

// Free frees the array.
func (a *array) Free() error { return a.c.Free(a.at) }

// textureObject is a texture or surface.
type textureObject struct {
	c       *deviceContext
	handle  uint64
	surface bool
}

// own returns a as an array of this context.
func (c *deviceContext) own(a gpu.Array) (*array, error) {
	own, ok := a.(*array)
	if !ok || own.c != c {
		return nil, fmt.Errorf("array of another context: %w", gpu.ErrInvalidTexture)
	}
	return own, nil
}

// NewTexture returns a texture.
func (c *deviceContext) NewTexture(m gpu.TextureMemory, s gpu.Sampling) (gpu.Texture, error) {
	var t texture.Texture
	if m.Array != nil {
		a, err := c.own(m.Array)
		if err != nil {
			return nil, err
		}
		t = texture.OfArray(uint64(a.at), a.shape)
	} else {
		if err := m.CheckLinear(); err != nil {
			return nil, err
		}
		if _, err := c.bytes(m.Ptr, m.LinearBytes()); err != nil {
			return nil, fmt.Errorf("texture: %w", err)
		}
		t = texture.OfMemory(&m)
	}
	t.Sampling = s
	return c.addTexture(t)
}

// NewSurface returns a surface of an array.
func (c *deviceContext) NewSurface(a gpu.Array) (gpu.Texture, error) {
	own, err := c.own(a)
	if err != nil {
		return nil, err
	}
	if !own.shape.Surface {
		return nil, fmt.Errorf("surface of an array that was not made for it: %w", gpu.ErrInvalidTexture)
	}
	t := texture.OfArray(uint64(own.at), own.shape)
	t.Surface = true
	return c.addTexture(t)
}

func (c *deviceContext) addTexture(t texture.Texture) (gpu.Texture, error) {
	if err := errors.Join(c.check(), t.Check()); err != nil {
		return nil, err
	}
	h, err := c.cd.AddTexture(t)
	if err != nil {
		return nil, err
	}
	return &textureObject{c, h, t.Surface}, nil
}

// Handle is what a kernel names the texture by.
func (t *textureObject) Handle() uint64 { return t.handle }

// Free ends the texture or surface.
func (t *textureObject) Free() error {
	if err := t.c.check(); err != nil {
		return err
	}
	return t.c.cd.DropTexture(t.handle)
}

// Reference reports whether a variable of a module names a surface.
func (c *deviceContext) Reference(m gpu.Module, name string) (surface bool, err error) {
	own, ok := m.(*module)
	if !ok || own.c != c {
		return false, fmt.Errorf("module of another context: %w", gpu.ErrNotFound)
	}
	if err := c.check(); err != nil {
		return false, err
	}
	_, surface, err = c.cd.Reference(own.info.ID, name)
	return surface, err
}

// BindReference has a variable of a module name a texture or surface.
func (c *deviceContext) BindReference(m gpu.Module, name string, t gpu.Texture) error {
	own, ok := m.(*module)
	object, is := t.(*textureObject)
	if !ok || !is || own.c != c || object.c != c {
		return fmt.Errorf("bind a texture of another context: %w", gpu.ErrInvalidTexture)
	}
	if err := c.check(); err != nil {
		return err
	}
	p, surface, err := c.cd.Reference(own.info.ID, name)
	if err != nil {
		return err
	}
	if surface != object.surface {
		return fmt.Errorf("bind %q, of another kind: %w", name, gpu.ErrInvalidTexture)
	}
	word, err := c.bytes(p, 8)
	if err != nil {
		return err
	}
	binary.LittleEndian.PutUint64(word, object.handle)
	return nil
}

// CopyArray copies to or from an array.
func (ch *channel) CopyArray(b *gpu.ArrayBox) (gpu.Fence, error) {
	a, err := ch.c.own(b.Array)
	if err != nil {
		return 0, err
	}
	if err := b.Check(); err != nil {
		return 0, fmt.Errorf("copy an array: %w", err)
	}
	row, rows := a.shape.RowBytes(), uint64(a.shape.Rows())
	side := gpu.Side{Ptr: a.at + gpu.Ptr((b.Z*rows+b.Y)*row+b.X), Pitch: row, Rows: rows}
	box := gpu.Copy3D{Dst: side, Src: b.Memory, Width: b.Width, Height: b.Height, Depth: b.Depth}
	if b.Out {
		box.Dst, box.Src = b.Memory, side
	}
	return ch.Copy3D(&box)
}

// AddTexture keeps a texture's or surface's descriptor.
func (c *engineContext) AddTexture(t texture.Texture) (h uint64, err error) {
	if err := c.usable(); err != nil {
		return 0, err
	}
	if derr := c.e.do(func() { h, err = c.mem.AddTexture(t) }); derr != nil {
		err = derr
	}
	return h, err
}

// DropTexture forgets a descriptor.
func (c *engineContext) DropTexture(handle uint64) (err error) {
	if err := c.usable(); err != nil {
		return err
	}
	if derr := c.e.do(func() { err = c.mem.DropTexture(handle) }); derr != nil {
		err = derr
	}
	return err
}

// Reference returns the address of the handle in a module's variable that names a texture or
// surface.
func (c *engineContext) Reference(id uint32, name string) (p gpu.Ptr, surface bool, err error) {
	if err := c.usable(); err != nil {
		return 0, false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.modules[id]
	if m == nil {
		return 0, false, fmt.Errorf("module %d: %w", id, gpu.ErrNotFound)
	}
	r, ok := m.m.Reference(name)
	if !ok {
		return 0, false, fmt.Errorf("texture or surface %q: %w", name, gpu.ErrNotFound)
	}
	return gpu.Ptr(m.at + r.Offset), r.Surface, nil
}
