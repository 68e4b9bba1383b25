package gpu

import "fmt"

// ChannelFormat is the type of each channel of a texel: CUDA's CUarray_format.
type ChannelFormat uint8

// The formats.
const (
	FormatUint8  ChannelFormat = 0x01
	FormatUint16 ChannelFormat = 0x02
	FormatUint32 ChannelFormat = 0x03
	FormatInt8   ChannelFormat = 0x08
	FormatInt16  ChannelFormat = 0x09
	FormatInt32  ChannelFormat = 0x0a
	FormatHalf   ChannelFormat = 0x10
	FormatFloat  ChannelFormat = 0x20
)

// Bytes returns the size of a channel, or 0 if there is no such format.
func (f ChannelFormat) Bytes() int {
	switch f {
	case FormatUint8, FormatInt8:
		return 1
	case FormatUint16, FormatInt16, FormatHalf:
		return 2
	case FormatUint32, FormatInt32, FormatFloat:
		return 4
	}
	return 0
}

// Float reports whether the channels are floating-point numbers.
func (f ChannelFormat) Float() bool { return f == FormatHalf || f == FormatFloat }

// Signed reports whether the channels are signed integers.
func (f ChannelFormat) Signed() bool {
	return f == FormatInt8 || f == FormatInt16 || f == FormatInt32
}

// Texel is the format of a texel.
type Texel struct {
	Format   ChannelFormat
	Channels uint8 // 1, 2 or 4
}

// Bytes returns the size of a texel, or 0 if the format is not valid.
func (t Texel) Bytes() int {
	switch t.Channels {
	case 1, 2, 4:
		return t.Format.Bytes() * int(t.Channels)
	}
	return 0
}

// ArrayShape describes a CUDA array: CUDA_ARRAY3D_DESCRIPTOR.
type ArrayShape struct {
	Width  uint32 // in texels
	Height uint32 // 0: one dimension
	Depth  uint32 // 0: at most two dimensions; of a layered array the number of layers
	Texel  Texel
	// Layered arrays consist of 1-D or 2-D layers. Cube arrays have six layers for each cube.
	Layered, Cube bool
	// Surface arrays can be stored to by kernels. Gather arrays can be read by tld4.
	Surface, Gather bool
}

// Limits of arrays, and of textures in linear memory, in texels. They are those of compute
// capability 8.0 (CUDA C++ Programming Guide, technical specifications).
const (
	maxArrayWidth    = 131072
	maxArrayHeight   = 65536
	maxArrayExtent3D = 16384
	maxLayeredExtent = 32768
	maxPitchedWidth  = 131072
	maxPitchedHeight = 65000
	maxPitchedBytes  = 2097120
	pitchAlignment   = 32 // bytes

	MaxArrayLayers  = 2048
	MaxLinearTexels = 1 << 28
)

// Dims returns the number of dimensions of the array, or of one of its layers.
func (s *ArrayShape) Dims() int {
	switch {
	case s.Height == 0:
		return 1
	case s.Depth == 0 || s.Layered || s.Cube:
		return 2
	}
	return 3
}

// Layers returns the number of layers, each face of a cube counted, or 1.
func (s *ArrayShape) Layers() uint32 {
	if s.Layered || s.Cube {
		return s.Depth
	}
	return 1
}

// Rows returns the number of rows of a slice, and Slices the number of slices or layers.
func (s *ArrayShape) Rows() uint32 { return max(s.Height, 1) }

// Slices returns the number of slices or layers.
func (s *ArrayShape) Slices() uint32 { return max(s.Depth, 1) }

// RowBytes returns the size of a row of texels.
func (s *ArrayShape) RowBytes() uint64 { return uint64(s.Width) * uint64(s.Texel.Bytes()) }

// Bytes returns the size of all texels.
func (s *ArrayShape) Bytes() uint64 {
	return s.RowBytes() * uint64(s.Rows()) * uint64(s.Slices())
}

// Check returns an error if no array can have this shape.
func (s *ArrayShape) Check() error {
	bad := func(what string) error {
		return fmt.Errorf("array of %d×%d×%d texels of format %#x with %d channels: %s: %w", s.Width, s.Height, s.Depth, s.Texel.Format, s.Texel.Channels, what, ErrInvalidTexture)
	}
	switch layers := s.Depth; {
	case s.Texel.Bytes() == 0:
		return bad("unknown format")
	case s.Width == 0:
		return bad("no width")
	case s.Cube && (s.Width != s.Height || layers%6 != 0 || layers == 0 || !s.Layered && layers != 6):
		return bad("not a cube")
	case s.Layered && layers == 0:
		return bad("no layers")
	case s.Gather && (s.Height == 0 || s.Dims() != 2):
		return bad("gathers need two dimensions")
	case s.Layered || s.Cube:
		if s.Width > maxLayeredExtent || s.Height > maxLayeredExtent || layers > MaxArrayLayers {
			return bad("too large")
		}
	case s.Height == 0 && s.Depth != 0:
		return bad("a depth without a height")
	case s.Depth != 0:
		if s.Width > maxArrayExtent3D || s.Height > maxArrayExtent3D || s.Depth > maxArrayExtent3D {
			return bad("too large")
		}
	case s.Width > maxArrayWidth || s.Height > maxArrayHeight:
		return bad("too large")
	}
	return nil
}

// AddressMode is what a texture returns outside its extent: CUDA's CUaddress_mode.
type AddressMode uint8

// The address modes. Wrap and mirror need normalized coordinates, and are clamp without them.
const (
	AddressWrap   AddressMode = 0
	AddressClamp  AddressMode = 1
	AddressMirror AddressMode = 2
	AddressBorder AddressMode = 3
)

// Filter is how a texture is read between texels: CUDA's CUfilter_mode.
type Filter uint8

// The filters.
const (
	FilterPoint  Filter = 0
	FilterLinear Filter = 1
)

// Sampling is how a texture is read: CUDA_TEXTURE_DESC.
type Sampling struct {
	Address [3]AddressMode
	Filter  Filter
	// Normalized coordinates are from 0 to 1, others in texels.
	Normalized bool
	// AsInteger reads integer texels as integers. Otherwise those of 8 and 16 bits become floats
	// from 0 or -1 to 1.
	AsInteger bool
	Border    [4]float32 // what AddressBorder reads
}

// TextureMemory is what a texture reads: an array, or linear memory.
type TextureMemory struct {
	Array Array // nil for linear memory
	// Linear memory has Height rows that are Pitch bytes apart, or one dimension if Height is 0.
	Ptr           Ptr
	Width, Height uint32 // in texels
	Pitch         uint64
	Texel         Texel
}

// CheckLinear returns an error if no texture can be in this linear memory.
func (m *TextureMemory) CheckLinear() error {
	bad := func(what string) error {
		return fmt.Errorf("texture of %d×%d texels at %#x: %s: %w", m.Width, m.Height, uint64(m.Ptr), what, ErrInvalidTexture)
	}
	size := uint64(m.Texel.Bytes())
	switch {
	case size == 0:
		return bad("unknown format")
	case m.Width == 0:
		return bad("no width")
	case uint64(m.Ptr)%size != 0:
		return bad("not aligned")
	case m.Height == 0:
		if m.Width > MaxLinearTexels {
			return bad("too large")
		}
	case m.Width > maxPitchedWidth || m.Height > maxPitchedHeight || m.Pitch > maxPitchedBytes:
		return bad("too large")
	case m.Pitch < size*uint64(m.Width) || m.Pitch%pitchAlignment != 0:
		return bad(fmt.Sprintf("a pitch of %d bytes", m.Pitch))
	}
	return nil
}

// LinearBytes returns the bytes from the first texel to the last of linear memory.
func (m *TextureMemory) LinearBytes() uint64 {
	n := uint64(m.Width) * uint64(m.Texel.Bytes())
	if m.Height > 1 {
		n += uint64(m.Height-1) * m.Pitch
	}
	return n
}

// Check returns an error if a texture of the given format can't be sampled so.
func (s *Sampling) Check(t Texel) error {
	for _, a := range s.Address {
		if a > AddressBorder {
			return fmt.Errorf("address mode %d: %w", a, ErrInvalidTexture)
		}
	}
	floats := t.Format.Float() || !s.AsInteger
	switch {
	case s.Filter > FilterLinear:
		return fmt.Errorf("filter %d: %w", s.Filter, ErrInvalidTexture)
	case s.Filter == FilterLinear && (!floats || t.Format.Bytes() == 4 && !t.Format.Float()):
		return fmt.Errorf("linear filter of integers: %w", ErrInvalidTexture)
	}
	return nil
}

// Texturing is a [Context] with CUDA arrays, textures and surfaces. All of them end with the
// context.
type Texturing interface {
	// NewArray returns an array of zeros.
	NewArray(s ArrayShape) (Array, error)
	// NewTexture returns a texture. Its memory must outlive it: a kernel that reads a texture whose
	// memory was freed may fault.
	NewTexture(m TextureMemory, s Sampling) (Texture, error)
	// NewSurface returns a surface of an array made for that.
	NewSurface(a Array) (Texture, error)
	// Reference reports whether a module's variable names a surface rather than a texture. The
	// error wraps [ErrNotFound] if there is no such variable.
	Reference(m Module, name string) (surface bool, err error)
	// BindReference has a module's variable of type texref, or surfref, name a texture, or surface,
	// from the next launch on. The error wraps [ErrNotFound] if there is no such variable.
	BindReference(m Module, name string, t Texture) error
}

// Array is a CUDA array.
type Array interface {
	Shape() ArrayShape
	// Bytes returns the GPU memory that it takes.
	Bytes() uint64
	// Free frees the array. No texture or surface may refer to it.
	Free() error
}

// Texture is a texture or surface object.
type Texture interface {
	// Handle is what a kernel names it by.
	Handle() uint64
	// Free ends it.
	Free() error
}

// ArrayBox is a copy between a box in an array and memory.
type ArrayBox struct {
	Array   Array
	X, Y, Z uint64 // the first texel: X in bytes, Y in rows, Z in slices or layers
	// Memory is the other side. Its Host is nil for GPU memory.
	Memory               Side
	Out                  bool // from the array to memory
	Width, Height, Depth uint64
}

// Check returns an error unless the box lies in the array.
func (b *ArrayBox) Check() error {
	s := b.Array.Shape()
	within := func(at, n, size uint64) bool { return at <= size && n <= size-at }
	texel := uint64(s.Texel.Bytes())
	if !within(b.X, b.Width, s.RowBytes()) || !within(b.Y, b.Height, uint64(s.Rows())) || !within(b.Z, b.Depth, uint64(s.Slices())) ||
		b.X%texel != 0 || b.Width%texel != 0 {
		return fmt.Errorf("%d×%d×%d bytes at %d, %d, %d of an array of %d×%d×%d: %w", b.Width, b.Height, b.Depth, b.X, b.Y, b.Z,
			s.RowBytes(), s.Rows(), s.Slices(), ErrInvalidCopy)
	}
	return nil
}

// ArrayCopier is a [Channel] that copies to and from arrays.
type ArrayCopier interface {
	CopyArray(b *ArrayBox) (Fence, error)
}
