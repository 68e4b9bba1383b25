package cuda

// Array is a CUarray.
type Array uintptr

// Array3D is CUDA_ARRAY3D_DESCRIPTOR_v2.
type Array3D struct {
	Width, Height, Depth uintptr
	Format               int32
	NumChannels          uint32
	Flags                uint32
	_                    uint32
}

// Flags of an [Array3D].
const (
	ArrayLayered       = 0x01
	ArraySurfaceLdst   = 0x02
	ArrayCubemap       = 0x04
	ArrayTextureGather = 0x08
)

// Types of a [ResourceDesc].
const (
	ResourceArray   = 0
	ResourceLinear  = 2
	ResourcePitch2D = 3
)

// ResourceDesc is CUDA_RESOURCE_DESC_v1. Its union is laid out as words: of an array its handle; of
// linear memory the address, format and channels, and size; of pitched memory the address, format
// and channels, width, height and pitch.
type ResourceDesc struct {
	Type  int32
	_     uint32
	union [16]uint64
	Flags uint32
	_     uint32
}

// OfArray returns the description of an array.
func OfArray(a Array) *ResourceDesc {
	return &ResourceDesc{Type: ResourceArray, union: [16]uint64{uint64(a)}}
}

// OfLinear returns the description of linear memory.
func OfLinear(p DevicePtr, format int32, channels uint32, bytes uint64) *ResourceDesc {
	return &ResourceDesc{Type: ResourceLinear, union: [16]uint64{uint64(p), texel(format, channels), bytes}}
}

// OfPitched returns the description of rows in memory.
func OfPitched(p DevicePtr, format int32, channels uint32, width, height, pitch uint64) *ResourceDesc {
	return &ResourceDesc{Type: ResourcePitch2D, union: [16]uint64{uint64(p), texel(format, channels), width, height, pitch}}
}

// texel is a CUarray_format and a number of channels, adjacent 32-bit words.
func texel(format int32, channels uint32) uint64 {
	return uint64(uint32(format)) | uint64(channels)<<32
}

// Array returns the array of a description of one.
func (r *ResourceDesc) Array() Array { return Array(r.union[0]) }

// Memory returns the memory of a description of some; height and pitch are 0 for linear memory, and
// size is its bytes or the width.
func (r *ResourceDesc) Memory() (p DevicePtr, format int32, channels uint32, size, height, pitch uint64) {
	return DevicePtr(r.union[0]), int32(uint32(r.union[1])), uint32(r.union[1] >> 32), r.union[2], r.union[3], r.union[4]
}

// Flags of a [TextureDesc].
const (
	TextureReadAsInteger         = 0x01
	TextureNormalizedCoordinates = 0x02
)

// TextureDesc is CUDA_TEXTURE_DESC_v1.
type TextureDesc struct {
	AddressMode         [3]int32
	FilterMode          int32
	Flags               uint32
	MaxAnisotropy       uint32
	MipmapFilterMode    int32
	MipmapLevelBias     float32
	MinMipmapLevelClamp float32
	MaxMipmapLevelClamp float32
	BorderColor         [4]float32
	_                   [12]int32
}

// ArrayDestroy frees an array. No command may use it any more.
func (l *Library) ArrayDestroy(a Array) error { return l.call(cuArrayDestroy, uintptr(a)) }

// TexObjectDestroy ends a texture.
func (l *Library) TexObjectDestroy(t uint64) error {
	return l.call(cuTexObjectDestroy, uintptr(t))
}

// SurfObjectDestroy ends a surface.
func (l *Library) SurfObjectDestroy(s uint64) error {
	return l.call(cuSurfObjectDestroy, uintptr(s))
}

// ModuleReference reports whether a module's reference of that name is one of a surface:
// cuModuleGetTexRef or, if that finds nothing, cuModuleGetSurfRef.
func (l *Library) ModuleReference(m Module, name string) (surface bool, err error) {
	if _, err = l.reference(cuModuleGetTexRef, m, name); err == ErrNotFound {
		_, err = l.reference(cuModuleGetSurfRef, m, name)
		return err == nil, err
	}
	return false, err
}

// overrideFormat has a texture reference take the format of its array: CU_TRSA_OVERRIDE_FORMAT.
const overrideFormat = 1

// BindTexture has a module's texture reference read as described: cuModuleGetTexRef and the
// functions that set its parts. Launches from then on see it.
func (l *Library) BindTexture(m Module, name string, r *ResourceDesc, t *TextureDesc) error {
	ref, err := l.reference(cuModuleGetTexRef, m, name)
	if err != nil {
		return err
	}
	for dim, mode := range t.AddressMode {
		if err := l.call(cuTexRefSetAddressMode, ref, uintptr(dim), uintptr(mode)); err != nil {
			return err
		}
	}
	if err := l.call(cuTexRefSetFilterMode, ref, uintptr(t.FilterMode)); err != nil {
		return err
	}
	if err := l.call(cuTexRefSetFlags, ref, uintptr(t.Flags)); err != nil {
		return err
	}
	if err := l.setBorder(ref, t); err != nil {
		return err
	}
	if r.Type == ResourceArray {
		return l.call(cuTexRefSetArray, ref, uintptr(r.Array()), overrideFormat)
	}
	p, format, channels, size, height, pitch := r.Memory()
	if err := l.call(cuTexRefSetFormat, ref, uintptr(format), uintptr(channels)); err != nil {
		return err
	}
	if r.Type == ResourceLinear {
		_, _, err := answers(func(s *scratch) error { return l.call(cuTexRefSetAddress, s.at(0), ref, uintptr(p), uintptr(size)) })
		return err
	}
	return l.setAddress2D(ref, &Array2D{Width: uintptr(size), Height: uintptr(height), Format: format, NumChannels: channels}, p, pitch)
}

// Array2D is CUDA_ARRAY_DESCRIPTOR_v2.
type Array2D struct {
	Width, Height uintptr
	Format        int32
	NumChannels   uint32
}

// BindSurface has a module's surface reference access an array.
func (l *Library) BindSurface(m Module, name string, a Array) error {
	ref, err := l.reference(cuModuleGetSurfRef, m, name)
	if err != nil {
		return err
	}
	return l.call(cuSurfRefSetArray, ref, uintptr(a), 0)
}

// SetSrcArray and SetDstArray make an array a side of a copy.
func (c *Memcpy3D) SetSrcArray(a Array) { c.SrcMemoryType, c.SrcArray = MemoryArray, uintptr(a) }

// SetDstArray makes an array the destination.
func (c *Memcpy3D) SetDstArray(a Array) { c.DstMemoryType, c.DstArray = MemoryArray, uintptr(a) }
