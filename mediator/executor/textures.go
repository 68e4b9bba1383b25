package executor

import (
	"errors"
	"fmt"
	"math"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

// textures holds a context's arrays, textures and surfaces. Textures and surfaces are known by the
// handles that the guest's kernels name them by.
type textures struct {
	arrays   handles[gpu.Array]
	textures map[uint64]gpu.Texture
	surfaces map[uint64]gpu.Texture
	refused  refusal // the newest array for which there was no memory
}

func newTextures() textures {
	return textures{arrays: newHandles[gpu.Array](maxArrays), textures: map[uint64]gpu.Texture{}, surfaces: map[uint64]gpu.Texture{}}
}

// texturing returns the context's ability, or an error if it has none.
func (x *Executor) texturing() (gpu.Texturing, error) {
	if t, ok := x.o.Context.(gpu.Texturing); ok {
		return t, nil
	}
	return nil, fmt.Errorf("textures: %w", abi.StatusNotSupported)
}

// texel returns the format of a texel, whose numbers may be anything.
func texel(format, channels uint16) (gpu.Texel, error) {
	t := gpu.Texel{Format: gpu.ChannelFormat(format), Channels: uint8(channels)}
	if format > math.MaxUint8 || channels > math.MaxUint8 || t.Bytes() == 0 {
		return t, fmt.Errorf("texels of format %#x with %d channels: %w", format, channels, abi.StatusInvalidValue)
	}
	return t, nil
}

func arrayCreate(c *command, p *pending) error {
	x := c.ch.x
	a, err := abi.DecodeArray(c.entry)
	if err != nil {
		return err
	}
	ability, err := x.texturing()
	if err != nil {
		return err
	}
	s := gpu.ArrayShape{
		Width: a.Width, Height: a.Height, Depth: a.Depth, Layered: a.Flags&abi.ArrayLayered != 0, Cube: a.Flags&abi.ArrayCubemap != 0,
		Surface: a.Flags&abi.ArraySurface != 0, Gather: a.Flags&abi.ArrayGather != 0,
	}
	if s.Texel, err = texel(a.Format, a.Channels); err != nil {
		return err
	}
	if err := s.Check(); err != nil {
		return err
	}
	if len(x.textures.arrays.byID) >= maxArrays {
		return abi.StatusTooMany
	}
	asking, err := x.attempt(&x.textures.refused, s.Bytes())
	if err != nil {
		return err
	}
	array, err := ability.NewArray(s)
	if err = x.grows(s.Bytes(), x.attempted(asking, err)); err != nil {
		return err
	}
	p.com.Value[1] = array.Bytes()
	p.com.Value[0], err = x.textures.arrays.add(array)
	return err
}

func arrayDestroy(c *command, _ *pending) error {
	x := c.ch.x
	h, err := abi.DecodeHandle(c.entry)
	if err != nil {
		return err
	}
	a, err := x.textures.arrays.get(h.Handle)
	if err != nil {
		return err
	}
	if err := a.Free(); err != nil {
		return err
	}
	delete(x.textures.arrays.byID, h.Handle)
	x.forgetRefusals()
	return nil
}

func arrayCopy(c *command, p *pending) error {
	x := c.ch.x
	a, err := abi.DecodeArrayCopy(c.entry)
	if err != nil {
		return err
	}
	if c.h.Aux&^(abi.ArrayCopyOut|abi.ArrayCopyWindow) != 0 {
		return fmt.Errorf("copy of an array with flags %#x: %w", c.h.Aux, abi.StatusInvalidValue)
	}
	copier, ok := c.ch.gpu.(gpu.ArrayCopier)
	if !ok {
		return fmt.Errorf("copy of an array: %w", abi.StatusNotSupported)
	}
	b := gpu.ArrayBox{
		X: uint64(a.X), Y: uint64(a.Y), Z: uint64(a.Z), Width: uint64(a.Width), Height: uint64(a.Height), Depth: uint64(a.Depth),
		Memory: gpu.Side{Ptr: gpu.Ptr(a.Address), Pitch: uint64(a.Pitch), Rows: uint64(a.Rows)}, Out: c.h.Aux&abi.ArrayCopyOut != 0,
	}
	if b.Array, err = x.textures.arrays.get(a.Array); err != nil {
		return err
	}
	if err := b.Check(); err != nil {
		return err
	}
	box := gpu.Copy3D{Dst: b.Memory, Src: b.Memory, Width: b.Width, Height: b.Height, Depth: b.Depth}
	if err := box.Check(); err != nil {
		return err
	}
	p.copied = box.Bytes()
	if c.h.Aux&abi.ArrayCopyWindow != 0 {
		if b.Memory.Host, err = c.window(a.Address, box.Extent(&b.Memory)); err != nil {
			return err
		}
		return p.onGPU(copier.CopyArray(&b))
	}
	return c.fill(p, fillTime(2*b.Width, b.Height*b.Depth), func() (gpu.Fence, error) { return copier.CopyArray(&b) })
}

func textureCreate(c *command, p *pending) error {
	x := c.ch.x
	t, err := abi.DecodeTexture(c.entry)
	if err != nil {
		return err
	}
	ability, err := x.texturing()
	if err != nil {
		return err
	}
	bad := func(what string) error { return fmt.Errorf("texture with %s: %w", what, abi.StatusInvalidValue) }
	flags := c.h.Aux
	if flags&^(abi.TextureReadAsInteger|abi.TextureNormalized|abi.TextureLinear) != 0 {
		return bad(fmt.Sprintf("flags %#x", flags))
	}
	s := gpu.Sampling{Normalized: flags&abi.TextureNormalized != 0, AsInteger: flags&abi.TextureReadAsInteger != 0}
	for i, m := range []uint16{t.AddressX, t.AddressY, t.AddressZ} {
		if m > uint16(gpu.AddressBorder) {
			return bad(fmt.Sprintf("address mode %d", m))
		}
		s.Address[i] = gpu.AddressMode(m)
	}
	if t.Filter > uint16(gpu.FilterLinear) {
		return bad(fmt.Sprintf("filter %d", t.Filter))
	}
	s.Filter = gpu.Filter(t.Filter)
	for i, b := range []uint32{t.Border0, t.Border1, t.Border2, t.Border3} {
		s.Border[i] = math.Float32frombits(b)
	}
	var m gpu.TextureMemory
	if flags&abi.TextureLinear != 0 {
		m = gpu.TextureMemory{Ptr: gpu.Ptr(t.Resource), Width: t.Width, Height: t.Height, Pitch: uint64(t.Pitch)}
		if m.Texel, err = texel(t.Format, t.Channels); err == nil {
			err = m.CheckLinear()
		}
	} else if m.Array, err = x.textures.arrays.get(t.Resource); err == nil {
		m.Texel = m.Array.Shape().Texel
		if t.Width|t.Height|t.Pitch|uint32(t.Format)|uint32(t.Channels) != 0 {
			err = bad("an array's shape")
		}
	}
	if err != nil {
		return err
	}
	if err := s.Check(m.Texel); err != nil {
		return err
	}
	return x.textures.add(x.textures.textures, p, func() (gpu.Texture, error) { return ability.NewTexture(m, s) })
}

// add makes a texture or surface, unless there are as many as there may be.
func (t *textures) add(to map[uint64]gpu.Texture, p *pending, create func() (gpu.Texture, error)) error {
	if len(t.textures)+len(t.surfaces) >= maxTextures {
		return abi.StatusTooMany
	}
	object, err := create()
	if err != nil {
		return err
	}
	if _, twice := to[object.Handle()]; twice {
		return errors.Join(fmt.Errorf("handle %#x twice: %w", object.Handle(), abi.StatusInternal), object.Free())
	}
	to[object.Handle()] = object
	p.com.Value[0] = object.Handle()
	return nil
}

func surfaceCreate(c *command, p *pending) error {
	x := c.ch.x
	h, err := abi.DecodeHandle(c.entry)
	if err != nil {
		return err
	}
	ability, err := x.texturing()
	if err != nil {
		return err
	}
	a, err := x.textures.arrays.get(h.Handle)
	if err != nil {
		return err
	}
	return x.textures.add(x.textures.surfaces, p, func() (gpu.Texture, error) { return ability.NewSurface(a) })
}

func textureDestroy(c *command, _ *pending) error {
	return c.destroyTexture(c.ch.x.textures.textures)
}

func surfaceDestroy(c *command, _ *pending) error {
	return c.destroyTexture(c.ch.x.textures.surfaces)
}

func (c *command) destroyTexture(from map[uint64]gpu.Texture) error {
	h, err := abi.DecodeHandle(c.entry)
	if err != nil {
		return err
	}
	t, ok := from[h.Handle]
	if !ok {
		return abi.StatusInvalidHandle
	}
	if err := t.Free(); err != nil {
		return err
	}
	delete(from, h.Handle)
	return nil
}

// textureBind binds a module's variable or, without a texture, says which kind it is.
func textureBind(c *command, p *pending) error {
	x := c.ch.x
	b, err := abi.DecodeBinding(c.entry)
	if err != nil {
		return err
	}
	ability, err := x.texturing()
	if err != nil {
		return err
	}
	m, err := x.modules.get(b.Module)
	if err != nil {
		return err
	}
	name, err := c.data(b.Name, uint64(b.NameBytes), maxName)
	if err != nil {
		return err
	}
	if b.Texture == 0 {
		if b.Surface != 0 {
			return abi.StatusInvalidValue
		}
		surface, err := ability.Reference(m.gpu, string(name))
		if surface {
			p.com.Value[0] = 1
		}
		return err
	}
	from := x.textures.textures
	if b.Surface != 0 {
		from = x.textures.surfaces
	}
	t, ok := from[b.Texture]
	if !ok {
		return abi.StatusInvalidHandle
	}
	return ability.BindReference(m.gpu, string(name), t)
}
