package cuda

import (
	"context"
	"math"

	"vgpud/guestagent/driver"
	"vgpud/mediator/vgpu/abi"
)

// ArrayDescriptor is CUDA_ARRAY_DESCRIPTOR.
type ArrayDescriptor struct {
	Width, Height    uint64
	Format, Channels uint32
}

// Array3DDescriptor is CUDA_ARRAY3D_DESCRIPTOR.
type Array3DDescriptor struct {
	Width, Height, Depth    uint64
	Format, Channels, Flags uint32
}

// cuArray is a CUarray.
type cuArray struct {
	x      *Context
	handle Handle
	a      *driver.Array
	d      Array3DDescriptor
}

// formatBytes are the sizes of the values of a CUarray_format.
var formatBytes = map[uint32]uint32{
	formatUnsignedInt8: 1, formatUnsignedInt16: 2, formatUnsignedInt32: 4,
	formatSignedInt8: 1, formatSignedInt16: 2, formatSignedInt32: 4, formatHalf: 2, formatFloat: 4,
}

// Values of CUarray_format. The virtual GPU has no others.
const (
	formatUnsignedInt8  = 0x01
	formatUnsignedInt16 = 0x02
	formatUnsignedInt32 = 0x03
	formatSignedInt8    = 0x08
	formatSignedInt16   = 0x09
	formatSignedInt32   = 0x0a
	formatHalf          = 0x10
	formatFloat         = 0x20
)

// texel returns the size of a texel, or 0 if there is none of that kind.
func texel(format, channels uint32) uint32 {
	switch channels {
	case 1, 2, 4:
		return formatBytes[format] * channels
	}
	return 0
}

// arrayFlags are those that arrays may have.
const arrayFlags = abi.ArrayLayered | abi.ArraySurface | abi.ArrayCubemap | abi.ArrayGather

// Array3DCreateV2 is cuArray3DCreate_v2.
func (c *Call) Array3DCreateV2(out *Handle, d *Array3DDescriptor) Result {
	x, r := c.context()
	if r == Success {
		r = c.unsafe()
	}
	if r != Success {
		return r
	}
	if out == nil || d == nil || d.Width == 0 || d.Width > math.MaxUint32 || d.Height > math.MaxUint32 || d.Depth > math.MaxUint32 {
		return ErrorInvalidValue
	}
	if texel(d.Format, d.Channels) == 0 || d.Flags&^arrayFlags != 0 {
		return ErrorNotSupported
	}
	a, err := x.gpu.NewArray(context.Background(), driver.ArrayShape{
		Width: uint32(d.Width), Height: uint32(d.Height), Depth: uint32(d.Depth),
		Format: uint16(d.Format), Channels: uint16(d.Channels), Flags: d.Flags,
	})
	if err != nil {
		return x.fail(err)
	}
	o := &cuArray{x: x, a: a, d: *d}
	if o.handle = c.d.objects.add(o); o.handle == 0 {
		_ = a.Close(context.Background())
		return ErrorOutOfMemory
	}
	put(out, o.handle)
	return Success
}

// ArrayCreateV2 is cuArrayCreate_v2.
func (c *Call) ArrayCreateV2(out *Handle, d *ArrayDescriptor) Result {
	if d == nil {
		return ErrorInvalidValue
	}
	return c.Array3DCreateV2(out, &Array3DDescriptor{Width: d.Width, Height: d.Height, Format: d.Format, Channels: d.Channels})
}

// arrayOf returns an array by its handle.
func (c *Call) arrayOf(h Handle) (*cuArray, Result) {
	a := get[cuArray](&c.d.objects, h)
	switch {
	case a == nil:
		return nil, ErrorInvalidHandle
	case a.x.gone.Load():
		return nil, ErrorContextIsDestroyed
	}
	return a, Success
}

// ArrayDestroy is cuArrayDestroy. It waits for all commands before it.
func (c *Call) ArrayDestroy(h Handle) Result {
	a, r := c.arrayOf(h)
	if r != Success {
		return r
	}
	if !c.d.objects.remove(h) {
		return ErrorInvalidHandle
	}
	return c.waitFor(a.x.everything(), func() Result {
		if err := a.a.Close(context.Background()); err != nil {
			return a.x.fail(err)
		}
		return Success
	})
}

// Array3DGetDescriptorV2 is cuArray3DGetDescriptor_v2.
func (c *Call) Array3DGetDescriptorV2(out *Array3DDescriptor, h Handle) Result {
	a, r := c.arrayOf(h)
	if r == Success && out == nil {
		r = ErrorInvalidValue
	}
	if r == Success {
		*out = a.d
	}
	return r
}

// ArrayGetDescriptorV2 is cuArrayGetDescriptor_v2.
func (c *Call) ArrayGetDescriptorV2(out *ArrayDescriptor, h Handle) Result {
	a, r := c.arrayOf(h)
	if r == Success && out == nil {
		r = ErrorInvalidValue
	}
	if r == Success {
		*out = ArrayDescriptor{Width: a.d.Width, Height: a.d.Height, Format: a.d.Format, Channels: a.d.Channels}
	}
	return r
}

// ArrayRequirements is CUDA_ARRAY_MEMORY_REQUIREMENTS.
type ArrayRequirements struct {
	Bytes, Alignment uint64
	_                [4]uint32
}

// ArrayGetMemoryRequirements is cuArrayGetMemoryRequirements.
func (c *Call) ArrayGetMemoryRequirements(out *ArrayRequirements, h Handle, dev int32) Result {
	a, r := c.arrayOf(h)
	switch {
	case r != Success:
		return r
	case out == nil:
		return ErrorInvalidValue
	case dev != 0:
		return ErrorInvalidDevice
	}
	*out = ArrayRequirements{Bytes: a.a.Bytes(), Alignment: 512}
	return Success
}

// box returns the part of an array that a side of a copy is.
func (a *cuArray) box(s *side, b *box) (driver.ArrayBox, Result) {
	row := a.d.Width * uint64(texel(a.d.Format, a.d.Channels))
	if s.x+b.width > row || s.y+b.height > max(a.d.Height, 1) || s.z+b.depth > max(a.d.Depth, 1) || s.x+b.width < s.x {
		return driver.ArrayBox{}, ErrorInvalidValue
	}
	return driver.ArrayBox{
		Array: a.a, X: uint32(s.x), Y: uint32(s.y), Z: uint32(s.z),
		WidthBytes: uint32(b.width), HeightRows: uint32(b.height), DepthSlices: uint32(b.depth),
	}, Success
}

// copyArrayBox copies a box of which a side, or both, is an array. Copies between arrays and the
// program's memory wait for the stream.
func (c *Call) copyArrayBox(s *stream, b *box, _ bool) Result {
	sides := [2]*side{&b.src, &b.dst}
	var boxes [2]driver.ArrayBox
	for i, e := range sides {
		switch e.place {
		case placeArray:
			a, r := c.arrayOf(e.array)
			if r == Success && a.x != s.x {
				r = ErrorInvalidValue
			}
			if r == Success {
				boxes[i], r = a.box(e, b)
			}
			if r != Success {
				return r
			}
		case placeDevice:
			if r := s.x.deviceRange(e.at, b.span(e)); r != Success {
				return r
			}
		default:
			if access(pointerTo(e.at), b.span(e)) != nil {
				return ErrorInvalidValue
			}
		}
	}
	src, dst, ctx := &b.src, &b.dst, context.Background()
	// blocking carries a copy out that waits for its own end.
	blocking := func(f func() error) Result {
		return c.drained(s, func() Result {
			if err := f(); err != nil {
				return s.x.fail(err)
			}
			return Success
		})
	}
	switch {
	case src.place == placeArray && dst.place == placeArray:
		return blocking(func() error { return s.ch.ch.CopyArray(ctx, boxes[1], boxes[0]) })
	case src.place == placeArray && dst.place == placeHost:
		return blocking(func() error { return s.ch.ch.CopyOutArray(ctx, hostSide(b, dst), dst.pitch, dst.rows, boxes[0]) })
	case src.place == placeHost:
		return blocking(func() error {
			p, err := s.ch.ch.CopyInArray(ctx, boxes[1], hostSide(b, src), src.pitch, src.rows)
			if err != nil {
				return err
			}
			return p.Wait(ctx)
		})
	case src.place == placeArray:
		return c.send(s, func(ctx context.Context, ch *driver.Channel) (*driver.Pending, error) {
			return ch.CopyFromArray(ctx, driver.Ptr(dst.at), uint32(dst.pitch), uint32(dst.rows), boxes[0])
		})
	}
	return c.send(s, func(ctx context.Context, ch *driver.Channel) (*driver.Pending, error) {
		return ch.CopyToArray(ctx, boxes[1], driver.Ptr(src.at), uint32(src.pitch), uint32(src.rows))
	})
}

// inArray describes n bytes from an offset in an array, whose rows follow one another: a part of a
// row, or whole rows.
func (c *Call) inArray(p *Memcpy3D, h Handle, at, n uint64, x, y *uint64) Result {
	a, r := c.arrayOf(h)
	if r != Success {
		return r
	}
	row := a.d.Width * uint64(texel(a.d.Format, a.d.Channels))
	width, height := n, uint64(1)
	switch {
	case at%row+n <= row:
	case at%row == 0 && n%row == 0:
		width, height = row, n/row
	default:
		return ErrorInvalidValue
	}
	if p.Width != 0 && (p.Width != width || p.Height != height) { // the other side is an array, too
		return ErrorInvalidValue
	}
	*x, *y = at%row, at/row
	p.Width, p.Height, p.Depth = width, height, 1
	return Success
}

// copyLine copies n bytes, of which a side or both are in an array, as CUDA's functions for arrays
// of one dimension do.
func (c *Call) copyLine(s *stream, r Result, p *Memcpy3D, srcAt, dstAt, n uint64, async bool) Result {
	if r != Success || n == 0 {
		return r
	}
	if p.SrcMemoryType == placeArray {
		if r := c.inArray(p, p.SrcArray, srcAt, n, &p.SrcX, &p.SrcY); r != Success {
			return r
		}
	}
	if p.DstMemoryType == placeArray {
		if r := c.inArray(p, p.DstArray, dstAt, n, &p.DstX, &p.DstY); r != Success {
			return r
		}
	}
	return c.copyBox(s, p, async)
}

// MemcpyAtoAV2 is cuMemcpyAtoA_v2.
func (c *Call) MemcpyAtoAV2(dst Handle, dstAt uint64, src Handle, srcAt, n uint64) Result {
	s, r := c.defaultStream()
	return c.copyLine(s, r, &Memcpy3D{SrcMemoryType: placeArray, SrcArray: src, DstMemoryType: placeArray, DstArray: dst}, srcAt, dstAt, n, false)
}

// MemcpyAtoDV2 is cuMemcpyAtoD_v2.
func (c *Call) MemcpyAtoDV2(dst uint64, src Handle, at, n uint64) Result {
	s, r := c.defaultStream()
	return c.copyLine(s, r, &Memcpy3D{SrcMemoryType: placeArray, SrcArray: src, DstMemoryType: placeDevice, DstDevice: dst}, at, 0, n, false)
}

// MemcpyDtoAV2 is cuMemcpyDtoA_v2.
func (c *Call) MemcpyDtoAV2(dst Handle, at, src, n uint64) Result {
	s, r := c.defaultStream()
	return c.copyLine(s, r, &Memcpy3D{SrcMemoryType: placeDevice, SrcDevice: src, DstMemoryType: placeArray, DstArray: dst}, 0, at, n, false)
}

// MemcpyAtoHV2 is cuMemcpyAtoH_v2.
func (c *Call) MemcpyAtoHV2(dst Pointer, src Handle, at, n uint64) Result {
	s, r := c.defaultStream()
	return c.copyLine(s, r, &Memcpy3D{SrcMemoryType: placeArray, SrcArray: src, DstMemoryType: placeHost, DstHost: dst}, at, 0, n, false)
}

// MemcpyAtoHAsyncV2 is cuMemcpyAtoHAsync_v2.
func (c *Call) MemcpyAtoHAsyncV2(dst Pointer, src Handle, at, n uint64, h Handle) Result {
	s, r := c.stream(h)
	return c.copyLine(s, r, &Memcpy3D{SrcMemoryType: placeArray, SrcArray: src, DstMemoryType: placeHost, DstHost: dst}, at, 0, n, true)
}

// MemcpyHtoAV2 is cuMemcpyHtoA_v2.
func (c *Call) MemcpyHtoAV2(dst Handle, at uint64, src Pointer, n uint64) Result {
	s, r := c.defaultStream()
	return c.copyLine(s, r, &Memcpy3D{SrcMemoryType: placeHost, SrcHost: src, DstMemoryType: placeArray, DstArray: dst}, 0, at, n, false)
}

// MemcpyHtoAAsyncV2 is cuMemcpyHtoAAsync_v2.
func (c *Call) MemcpyHtoAAsyncV2(dst Handle, at uint64, src Pointer, n uint64, h Handle) Result {
	s, r := c.stream(h)
	return c.copyLine(s, r, &Memcpy3D{SrcMemoryType: placeHost, SrcHost: src, DstMemoryType: placeArray, DstArray: dst}, 0, at, n, true)
}
