package driver

import (
	"context"
	"errors"
	"fmt"
	"math"

	"vgpud/mediator/vgpu/abi"
)

// ArrayShape describes a CUDA array, as CUDA_ARRAY3D_DESCRIPTOR.
type ArrayShape struct {
	Width    uint32 // texels
	Height   uint32 // 0: one dimension
	Depth    uint32 // 0: at most two dimensions; of a layered array its layers
	Format   uint16 // CUarray_format
	Channels uint16 // 1, 2 or 4
	Flags    uint32 // abi.ArrayLayered and so on: CUDA's own
}

// Array is a CUDA array. It lives until Close or until its context ends.
type Array struct {
	ctx    *Context
	handle uint64
	shape  ArrayShape
	bytes  uint64
}

// NewArray makes an array of zeros. Without arrays and textures on the host, this and the other
// functions of this file return an error that wraps [abi.StatusNotSupported].
func (c *Context) NewArray(ctx context.Context, s ArrayShape) (*Array, error) {
	if err := c.dev.offers(abi.FeatureTextures); err != nil {
		return nil, err
	}
	v, err := c.Own().call(ctx, abi.OpArrayCreate, abi.Array{
		Width: s.Width, Height: s.Height, Depth: s.Depth, Format: s.Format, Channels: s.Channels, Flags: s.Flags,
	})
	if err != nil {
		return nil, fmt.Errorf("make an array of %d×%d×%d texels: %w", s.Width, s.Height, s.Depth, err)
	}
	return &Array{c, v[0], s, v[1]}, nil
}

// Shape returns the array's shape.
func (a *Array) Shape() ArrayShape { return a.shape }

// Bytes returns the GPU memory that the array takes.
func (a *Array) Bytes() uint64 { return a.bytes }

// Close frees the array. A kernel that uses a texture or surface of it afterwards may fault.
func (a *Array) Close(ctx context.Context) error {
	if _, err := a.ctx.Own().call(ctx, abi.OpArrayDestroy, abi.Handle{Handle: a.handle}); err != nil {
		return fmt.Errorf("free an array: %w", err)
	}
	return nil
}

// ArrayBox is a box in an array: DepthSlices slices, or layers, of HeightRows rows of WidthBytes
// bytes.
type ArrayBox struct {
	Array                               *Array
	X                                   uint32 // bytes
	Y                                   uint32 // rows
	Z                                   uint32 // slices, or layers
	WidthBytes, HeightRows, DepthSlices uint32
}

func (b *ArrayBox) args() abi.ArrayCopy {
	return abi.ArrayCopy{Array: b.Array.handle, X: b.X, Y: b.Y, Z: b.Z, Width: b.WidthBytes, Height: b.HeightRows, Depth: b.DepthSlices}
}

// fits reports whether a copy of the box stays within n bytes of host memory.
func (b *ArrayBox) fits(n int, pitch, sliceRows uint64) bool {
	if b.WidthBytes == 0 || b.HeightRows == 0 || b.DepthSlices == 0 {
		return true
	}
	if sliceRows > math.MaxUint32 {
		return false
	}
	last := (uint64(b.DepthSlices)-1)*sliceRows + uint64(b.HeightRows) - 1
	return last <= math.MaxInt64/max(pitch, 1) && uint64(n) >= uint64(b.WidthBytes) && last*pitch <= uint64(n)-uint64(b.WidthBytes)
}

// sendArray enqueues a copy between an array and GPU memory.
func (ch *Channel) sendArray(ctx context.Context, b ArrayBox, p Ptr, pitch, sliceRows uint32, aux uint16) (*Pending, error) {
	a := b.args()
	a.Address, a.Pitch, a.Rows = uint64(p), pitch, sliceRows
	pending := new(Pending)
	var e abi.Entry
	a.Encode(&e)
	if err := ch.enqueue(ctx, pending, &e, abi.Header{Op: abi.OpArrayCopy, Aux: aux}, nil); err != nil {
		return nil, fmt.Errorf("copy an array: %w", err)
	}
	return pending, nil
}

// CopyToArray copies GPU memory, whose rows are pitch bytes apart and whose slices sliceRows rows, to
// a box in an array.
func (ch *Channel) CopyToArray(ctx context.Context, dst ArrayBox, src Ptr, pitch, sliceRows uint32) (*Pending, error) {
	return ch.sendArray(ctx, dst, src, pitch, sliceRows, 0)
}

// CopyFromArray copies a box in an array to GPU memory.
func (ch *Channel) CopyFromArray(ctx context.Context, dst Ptr, pitch, sliceRows uint32, src ArrayBox) (*Pending, error) {
	return ch.sendArray(ctx, src, dst, pitch, sliceRows, abi.ArrayCopyOut)
}

// CopyArray copies a box of one array to one of the same size in another, by way of GPU memory that
// it allocates.
func (ch *Channel) CopyArray(ctx context.Context, dst, src ArrayBox) error {
	if dst.WidthBytes != src.WidthBytes || dst.HeightRows != src.HeightRows || dst.DepthSlices != src.DepthSlices {
		return fmt.Errorf("copy between boxes of two sizes: %w", abi.StatusInvalidValue)
	}
	n := uint64(src.WidthBytes) * uint64(src.HeightRows)
	if n == 0 || src.DepthSlices == 0 {
		return nil
	}
	if n > math.MaxUint64/uint64(src.DepthSlices) {
		return fmt.Errorf("copy an array: %w", abi.StatusInvalidValue)
	}
	c := src.Array.ctx
	p, err := c.Alloc(ctx, n*uint64(src.DepthSlices))
	if err != nil {
		return err
	}
	copyBoth := func() error {
		if _, err := ch.CopyFromArray(ctx, p, src.WidthBytes, src.HeightRows, src); err != nil {
			return err
		}
		done, err := ch.CopyToArray(ctx, dst, p, src.WidthBytes, src.HeightRows)
		if err != nil {
			return err
		}
		return done.Wait(ctx)
	}
	return errors.Join(copyBoth(), c.Free(ctx, p))
}

// CopyInArray copies host memory, whose rows are pitch bytes apart and whose slices sliceRows rows,
// to a box in an array. It returns when src can be used again.
func (ch *Channel) CopyInArray(ctx context.Context, dst ArrayBox, src []byte, pitch, sliceRows uint64) (*Pending, error) {
	if !dst.fits(len(src), pitch, sliceRows) {
		return nil, fmt.Errorf("copy %d bytes to an array, too few: %w", len(src), abi.StatusInvalidValue)
	}
	last := new(Pending)
	err := ch.eachPiece(dst, func(b ArrayBox, at uint64) error {
		width, rows := int(b.WidthBytes), int(b.HeightRows)
		w, err := ch.window(ctx, uint64(width*rows))
		if err != nil {
			return err
		}
		mem := ch.dev.bytes(w)
		for y := range rows {
			if err := ch.dev.copyShared(mem[y*width:(y+1)*width], src[at+uint64(y)*pitch:][:width]); err != nil {
				ch.dev.staging.release(w)
				return err
			}
		}
		a := b.args()
		a.Address, a.Pitch, a.Rows = w.Offset, b.WidthBytes, b.HeightRows
		var e abi.Entry
		a.Encode(&e)
		p := new(Pending)
		if err := ch.enqueueWindow(ctx, p, &e, abi.Header{Op: abi.OpArrayCopy, Aux: abi.ArrayCopyWindow}, w); err != nil {
			return err
		}
		// The error of an earlier piece must not be lost. Commands end in order.
		if err := last.Wait(ctx); err != nil {
			return err
		}
		last = p
		return nil
	}, pitch, sliceRows)
	if err != nil {
		return nil, fmt.Errorf("copy to an array: %w", err)
	}
	return last, nil
}

// CopyOutArray copies a box in an array to host memory, and returns when the copy is complete.
func (ch *Channel) CopyOutArray(ctx context.Context, dst []byte, pitch, sliceRows uint64, src ArrayBox) error {
	if !src.fits(len(dst), pitch, sliceRows) {
		return fmt.Errorf("copy an array to %d bytes, too few: %w", len(dst), abi.StatusInvalidValue)
	}
	err := ch.eachPiece(src, func(b ArrayBox, at uint64) error {
		width, rows := int(b.WidthBytes), int(b.HeightRows)
		return ch.withWindow(ctx, uint64(width*rows), func(p *Pending, w abi.Window) error {
			a := b.args()
			a.Address, a.Pitch, a.Rows = w.Offset, b.WidthBytes, b.HeightRows
			var e abi.Entry
			a.Encode(&e)
			if err := ch.enqueue(ctx, p, &e, abi.Header{Op: abi.OpArrayCopy, Aux: abi.ArrayCopyOut | abi.ArrayCopyWindow}, nil); err != nil {
				return err
			}
			if err := p.Wait(ctx); err != nil {
				return err
			}
			mem := ch.dev.bytes(w)
			for y := range rows {
				if err := ch.dev.copyShared(dst[at+uint64(y)*pitch:][:width], mem[y*width:(y+1)*width]); err != nil {
					return err
				}
			}
			return nil
		})
	}, pitch, sliceRows)
	if err != nil {
		return fmt.Errorf("copy from an array: %w", err)
	}
	return nil
}

// eachPiece calls do with the parts of a box, of up to copyChunk bytes and within one slice, and
// where each begins in host memory. Rows longer than that are parts of their own.
func (ch *Channel) eachPiece(b ArrayBox, do func(b ArrayBox, at uint64) error, pitch, sliceRows uint64) error {
	if b.WidthBytes == 0 {
		return nil
	}
	rows := max(copyChunk/b.WidthBytes, 1)
	for z := range b.DepthSlices {
		for y := uint32(0); y < b.HeightRows; y += rows {
			part := b
			part.Y, part.Z = b.Y+y, b.Z+z
			part.HeightRows, part.DepthSlices = min(rows, b.HeightRows-y), 1
			if err := do(part, (uint64(z)*sliceRows+uint64(y))*pitch); err != nil {
				return err
			}
		}
	}
	return nil
}

// TextureMemory is what a texture reads: an array, or GPU memory of one dimension if Height is 0,
// else of rows that are Pitch bytes apart.
type TextureMemory struct {
	Array    *Array
	Ptr      Ptr
	Width    uint32 // texels
	Height   uint32
	Pitch    uint32
	Format   uint16 // CUarray_format
	Channels uint16
}

// Sampling is how a texture is read.
type Sampling struct {
	Address       [3]uint16 // CUaddress_mode
	Filter        uint16    // CUfilter_mode
	Normalized    bool      // coordinates
	ReadAsInteger bool      // integers, which otherwise become floats up to 1
	Border        [4]float32
}

// Texture is a texture or surface. It lives until Close or until its context ends.
type Texture struct {
	ctx     *Context
	handle  uint64
	surface bool
}

// NewTexture makes a texture. Its memory must outlive it.
func (c *Context) NewTexture(ctx context.Context, m TextureMemory, s Sampling) (*Texture, error) {
	if err := c.dev.offers(abi.FeatureTextures); err != nil {
		return nil, err
	}
	bits := math.Float32bits
	t := abi.Texture{
		Resource: uint64(m.Ptr), Width: m.Width, Height: m.Height, Pitch: m.Pitch, Format: m.Format, Channels: m.Channels,
		AddressX: s.Address[0], AddressY: s.Address[1], AddressZ: s.Address[2], Filter: s.Filter,
		Border0: bits(s.Border[0]), Border1: bits(s.Border[1]), Border2: bits(s.Border[2]), Border3: bits(s.Border[3]),
	}
	aux := uint16(abi.TextureLinear)
	if m.Array != nil {
		t.Resource, t.Width, t.Height, t.Pitch, t.Format, t.Channels = m.Array.handle, 0, 0, 0, 0, 0
		aux = 0
	}
	if s.Normalized {
		aux |= abi.TextureNormalized
	}
	if s.ReadAsInteger {
		aux |= abi.TextureReadAsInteger
	}
	var p Pending
	var e abi.Entry
	t.Encode(&e)
	err := c.Own().enqueue(ctx, &p, &e, abi.Header{Op: abi.OpTextureCreate, Aux: aux}, nil)
	if err == nil {
		err = p.Wait(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("make a texture: %w", err)
	}
	return &Texture{c, p.value()[0], false}, nil
}

// NewSurface makes a surface of an array with the flag [abi.ArraySurface].
func (c *Context) NewSurface(ctx context.Context, a *Array) (*Texture, error) {
	if err := c.dev.offers(abi.FeatureTextures); err != nil {
		return nil, err
	}
	v, err := c.Own().call(ctx, abi.OpSurfaceCreate, abi.Handle{Handle: a.handle})
	if err != nil {
		return nil, fmt.Errorf("make a surface: %w", err)
	}
	return &Texture{c, v[0], true}, nil
}

// Handle returns what kernels name the texture or surface by: CUDA's CUtexObject or CUsurfObject.
func (t *Texture) Handle() uint64 { return t.handle }

// Close ends the texture or surface.
func (t *Texture) Close(ctx context.Context) error {
	op := abi.OpTextureDestroy
	if t.surface {
		op = abi.OpSurfaceDestroy
	}
	if _, err := t.ctx.Own().call(ctx, op, abi.Handle{Handle: t.handle}); err != nil {
		return fmt.Errorf("free a texture: %w", err)
	}
	return nil
}

// Reference reports whether a module's variable of type texref or surfref names a surface. The
// error wraps [abi.StatusNotFound] if there is no such variable.
func (m *Module) Reference(ctx context.Context, name string) (surface bool, err error) {
	ch := m.ctx.Own()
	if err := ch.dev.offers(abi.FeatureTextures); err != nil {
		return false, err
	}
	v, err := ch.bind(ctx, abi.Binding{Module: m.handle}, name)
	if err != nil {
		return false, fmt.Errorf("texture or surface %q: %w", name, err)
	}
	return v[0] != 0, nil
}

// Bind has a module's variable of type texref, or surfref, name a texture, or surface, in the
// launches that the channel enqueues later. Launches of other channels that have not ended may see
// it as well.
func (ch *Channel) Bind(ctx context.Context, m *Module, name string, t *Texture) error {
	if err := ch.dev.offers(abi.FeatureTextures); err != nil {
		return err
	}
	b := abi.Binding{Module: m.handle, Texture: t.handle}
	if t.surface {
		b.Surface = 1
	}
	if _, err := ch.bind(ctx, b, name); err != nil {
		return fmt.Errorf("bind %q: %w", name, err)
	}
	return nil
}

// bind runs a binding, with the name in the ring or, if it is too long, in a window.
func (ch *Channel) bind(ctx context.Context, b abi.Binding, name string) (v [3]uint64, err error) {
	b.NameBytes = uint32(len(name))
	if ch.inline(len(name)) {
		var p Pending
		if err := ch.run(ctx, &p, abi.OpTextureBind, b, []byte(name)); err != nil {
			return v, err
		}
		return p.value(), nil
	}
	err = ch.withWindow(ctx, uint64(len(name)), func(p *Pending, w abi.Window) error {
		if err := ch.dev.copyShared(ch.dev.bytes(w), []byte(name)); err != nil {
			return err
		}
		b.Name = w.Offset
		if err := ch.run(ctx, p, abi.OpTextureBind, b, nil); err != nil {
			return err
		}
		v = p.value()
		return nil
	})
	return v, err
}
