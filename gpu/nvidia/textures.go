package nvidia

import (
	"errors"
	"fmt"
	"slices"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
)

// Arrays are the driver's. The driver does not order their end after the commands that use them, so
// arrays, textures and surfaces are destroyed once all that was on the GPU before has ended.

// array implements [gpu.Array].
type array struct {
	c      *Context
	a      cuda.Array
	shape  gpu.ArrayShape
	charge uint64
	zeroed uint64 // see allocation
}

// zeroBytes is the size of the memory from which a new array is filled.
const zeroBytes = 4 << 20

// NewArray returns an array of zeros. It does not wait for the zeroing.
func (c *Context) NewArray(s gpu.ArrayShape) (gpu.Array, error) {
	if err := errors.Join(s.Check(), c.usable()); err != nil {
		return nil, err
	}
	if s.Bytes() > c.d.info.Properties.MemoryBytes {
		return nil, fmt.Errorf("array of %d bytes: %w", s.Bytes(), gpu.ErrOutOfMemory)
	}
	a := &array{c: c, shape: s, charge: charged(s.Bytes())}
	c.settleFrees()
	c.destroyEnded()
	if err := c.memory.take(a.charge, "an array"); err != nil {
		return nil, err
	}
	d := cuda.Array3D{
		Width: uintptr(s.Width), Height: uintptr(s.Height), Depth: uintptr(s.Depth),
		Format: int32(s.Texel.Format), NumChannels: uint32(s.Texel.Channels), Flags: arrayFlags(&s),
	}
	var before, after uint64 // free memory
	err := c.do("make an array", func() (err error) {
		if before, _, err = c.drv.MemGetInfo(); err != nil {
			return err
		}
		if a.a, err = c.drv.ArrayCreate(&d); err != nil {
			return textureError(err)
		}
		after, _, err = c.drv.MemGetInfo()
		return err
	})
	if more := before - min(before, after); err == nil && more > a.charge {
		// It includes what others took meanwhile, which is better than no charge.
		if err = c.memory.take(more-a.charge, "an array's padding"); err == nil {
			a.charge = more
		}
	}
	if err == nil {
		err = a.fill()
	}
	switch {
	case err != nil && a.a != 0:
		return nil, errors.Join(err, a.Free())
	case err != nil:
		c.memory.give(a.charge)
		return nil, err
	}
	return a, nil
}

func arrayFlags(s *gpu.ArrayShape) (flags uint32) {
	for _, f := range []struct {
		set bool
		bit uint32
	}{{s.Layered, cuda.ArrayLayered}, {s.Surface, cuda.ArraySurfaceLdst}, {s.Cube, cuda.ArrayCubemap}, {s.Gather, cuda.ArrayTextureGather}} {
		if f.set {
			flags |= f.bit
		}
	}
	return flags
}

// textureError is an error of the driver about a description that package gpu has let pass.
func textureError(err error) error {
	if err == cuda.ErrInvalidValue {
		return fmt.Errorf("%w: %w", err, gpu.ErrInvalidTexture)
	}
	return err
}

// fill queues the copies that zero the array.
func (a *array) fill() error {
	c, s := a.c, &a.shape
	row := s.RowBytes()
	rows := min(max(zeroBytes/row, 1), uint64(s.Rows()))
	n := row * rows
	c.zeroes.Lock()
	defer c.zeroes.Unlock()
	i, err := c.zero.begin(0)
	if err == nil {
		var zeros cuda.DevicePtr
		if zeros, err = c.drv.MemAllocAsync(n, c.zero.stream); err == nil {
			err = errors.Join(a.fillFrom(zeros, rows), c.drv.MemFreeAsync(zeros, c.zero.stream))
		}
	}
	f, err := c.zero.end("zero an array", i, err)
	a.zeroed = uint64(f)
	return err
}

// fillFrom zeroes the array from memory of so many rows.
func (a *array) fillFrom(zeros cuda.DevicePtr, rows uint64) error {
	c, s := a.c, &a.shape
	row := s.RowBytes()
	if err := c.drv.MemsetAsync(zeros, 0, 1, row*rows, c.zero.stream); err != nil {
		return err
	}
	for z := range uint64(s.Slices()) {
		for y := uint64(0); y < uint64(s.Rows()); y += rows {
			h := min(rows, uint64(s.Rows())-y)
			box := cuda.Memcpy3D{
				WidthInBytes: uintptr(row), Height: uintptr(h), Depth: 1, DstY: uintptr(y), DstZ: uintptr(z),
				SrcMemoryType: cuda.MemoryDevice, SrcDevice: zeros, SrcPitch: uintptr(row), SrcHeight: uintptr(h),
			}
			box.SetDstArray(a.a)
			if err := c.drv.Memcpy3DAsync(&box, c.zero.stream); err != nil {
				return err
			}
		}
	}
	return nil
}

// Shape returns the array's shape.
func (a *array) Shape() gpu.ArrayShape { return a.shape }

// Bytes returns the GPU memory that the array takes.
func (a *array) Bytes() uint64 { return a.charge }

// Free frees the array once all commands queued before are done.
func (a *array) Free() error {
	return a.c.destroyLater(a.charge, func() error { return a.c.drv.ArrayDestroy(a.a) })
}

// destroyLater has destroy called once all commands queued before are done.
func (c *Context) destroyLater(charge uint64, destroy func() error) error {
	if err := c.usable(); err != nil {
		return err
	}
	c.mu.Lock()
	channels := slices.Clone(c.channels)
	c.mu.Unlock()
	for _, ch := range channels {
		ch.signalAll()
	}
	d := pendingFree{charge: charge, destroy: destroy}
	c.busyLanes(&d)
	c.pendingFrees.add(d)
	c.settleFrees()
	c.destroyEnded()
	return nil
}

// destroyEnded destroys the objects that no command uses any more.
func (c *Context) destroyEnded() {
	o := &c.pendingFrees
	o.mu.Lock()
	ended := o.ended
	o.ended = nil
	o.mu.Unlock()
	for _, d := range ended {
		if err := c.parked(func() error { return c.do("free an array or texture", d.destroy) }); err != nil {
			c.d.o.Log.Debug("an array or texture was not freed", "label", c.o.Label, "err", err)
		}
		c.memory.give(d.charge)
		o.bytes.Add(-d.charge)
	}
}

// textureObject implements [gpu.Texture].
type textureObject struct {
	c        *Context
	handle   uint64
	surface  bool
	resource *cuda.ResourceDesc
	sampling *cuda.TextureDesc // nil of a surface
}

// textureCharge is the charge of a texture or surface: the GPU has room for so many.
const textureCharge = smallGrain

func (c *Context) own(a gpu.Array) (*array, error) {
	own, ok := a.(*array)
	if !ok || own.c != c {
		return nil, fmt.Errorf("array of another context: %w", gpu.ErrInvalidTexture)
	}
	return own, nil
}

// NewTexture returns a texture.
func (c *Context) NewTexture(m gpu.TextureMemory, s gpu.Sampling) (gpu.Texture, error) {
	t := &textureObject{c: c, sampling: &cuda.TextureDesc{FilterMode: int32(s.Filter), BorderColor: s.Border}}
	for i, mode := range s.Address {
		t.sampling.AddressMode[i] = int32(mode)
	}
	if s.Normalized {
		t.sampling.Flags |= cuda.TextureNormalizedCoordinates
	}
	texel := m.Texel
	if m.Array != nil {
		a, err := c.own(m.Array)
		if err != nil {
			return nil, err
		}
		texel = a.shape.Texel
		t.resource = cuda.OfArray(a.a)
	} else {
		if err := m.CheckLinear(); err != nil {
			return nil, err
		}
		if _, err := c.table.find(m.Ptr, m.LinearBytes()); err != nil {
			return nil, fmt.Errorf("texture: %w", err)
		}
		p, format, channels := cuda.DevicePtr(m.Ptr), int32(texel.Format), uint32(texel.Channels)
		t.resource = cuda.OfLinear(p, format, channels, m.LinearBytes())
		if m.Height > 0 {
			t.resource = cuda.OfPitched(p, format, channels, uint64(m.Width), uint64(m.Height), m.Pitch)
		}
	}
	if err := s.Check(texel); err != nil {
		return nil, err
	}
	if s.AsInteger && !texel.Format.Float() {
		t.sampling.Flags |= cuda.TextureReadAsInteger
	}
	return t.create(func() (uint64, error) { return c.drv.TexObjectCreate(t.resource, t.sampling) })
}

// NewSurface returns a surface of an array.
func (c *Context) NewSurface(a gpu.Array) (gpu.Texture, error) {
	own, err := c.own(a)
	if err != nil {
		return nil, err
	}
	if !own.shape.Surface {
		return nil, fmt.Errorf("surface of an array that was not made for it: %w", gpu.ErrInvalidTexture)
	}
	t := &textureObject{c: c, surface: true, resource: cuda.OfArray(own.a)}
	return t.create(func() (uint64, error) { return c.drv.SurfObjectCreate(t.resource) })
}

// create makes the object in the driver.
func (t *textureObject) create(object func() (uint64, error)) (gpu.Texture, error) {
	if err := t.c.usable(); err != nil {
		return nil, err
	}
	if err := t.c.memory.take(textureCharge, "a texture"); err != nil {
		return nil, err
	}
	err := t.c.do("make a texture", func() (err error) {
		t.handle, err = object()
		return textureError(err)
	})
	if err != nil {
		t.c.memory.give(textureCharge)
		return nil, err
	}
	return t, nil
}

// Handle is what a kernel names the texture by.
func (t *textureObject) Handle() uint64 { return t.handle }

// Free ends the texture or surface once all commands queued before are done.
func (t *textureObject) Free() error {
	destroy := t.c.drv.TexObjectDestroy
	if t.surface {
		destroy = t.c.drv.SurfObjectDestroy
	}
	return t.c.destroyLater(textureCharge, func() error { return destroy(t.handle) })
}

// Reference reports whether a module's variable names a surface.
func (c *Context) Reference(m gpu.Module, name string) (surface bool, err error) {
	own, ok := m.(*Module)
	if !ok || own.c != c {
		return false, fmt.Errorf("module of another context: %w", gpu.ErrNotFound)
	}
	if err := own.usable(); err != nil {
		return false, err
	}
	err = c.do(fmt.Sprintf("look for %q", name), func() (err error) {
		surface, err = c.drv.ModuleReference(own.m, name)
		return err
	})
	return surface, err
}

// BindReference has a module's variable name a texture or surface in later launches.
func (c *Context) BindReference(m gpu.Module, name string, t gpu.Texture) error {
	own, ok := m.(*Module)
	object, is := t.(*textureObject)
	if !ok || !is || own.c != c || object.c != c {
		return fmt.Errorf("bind a texture of another context: %w", gpu.ErrInvalidTexture)
	}
	if err := own.usable(); err != nil {
		return err
	}
	return c.do(fmt.Sprintf("bind %q", name), func() error {
		if object.surface {
			return textureError(c.drv.BindSurface(own.m, name, object.resource.Array()))
		}
		return textureError(c.drv.BindTexture(own.m, name, object.resource, object.sampling))
	})
}

// CopyArray copies to or from an array.
func (ch *Channel) CopyArray(b *gpu.ArrayBox) (gpu.Fence, error) {
	if err := ch.usable(); err != nil {
		return 0, err
	}
	a, err := ch.c.own(b.Array)
	if err != nil {
		return 0, err
	}
	if err := b.Check(); err != nil {
		return 0, fmt.Errorf("copy an array: %w", err)
	}
	box := gpu.Copy3D{Dst: b.Memory, Src: b.Memory, Width: b.Width, Height: b.Height, Depth: b.Depth}
	if err := box.Check(); err != nil {
		return 0, fmt.Errorf("copy an array: %w", err)
	}
	zeroed := a.zeroed
	if box.Bytes() > 0 {
		z, err := ch.side(&box, &b.Memory)
		if err != nil {
			return 0, fmt.Errorf("copy an array: %w", err)
		}
		zeroed = max(zeroed, z)
	}
	i, err := ch.begin(zeroed)
	if err == nil && box.Bytes() > 0 {
		d := describe(&box)
		if b.Out {
			d.SetSrcArray(a.a)
			d.SrcXInBytes, d.SrcY, d.SrcZ = uintptr(b.X), uintptr(b.Y), uintptr(b.Z)
		} else {
			d.SetDstArray(a.a)
			d.DstXInBytes, d.DstY, d.DstZ = uintptr(b.X), uintptr(b.Y), uintptr(b.Z)
		}
		err = ch.c.drv.Memcpy3DAsync(&d, ch.stream)
	}
	return ch.endCopy("copy an array", i, err)
}
