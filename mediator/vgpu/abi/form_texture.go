package abi

// Array flags: CUDA's own CUDA_ARRAY3D_ flags.
const (
	ArrayLayered = 0x01 // Depth layers of one or two dimensions
	ArraySurface = 0x02 // kernels may store to it
	ArrayCubemap = 0x04 // six layers each are the faces of a cube
	ArrayGather  = 0x08 // tld4 may read it

	arrayFlags = ArrayLayered | ArraySurface | ArrayCubemap | ArrayGather
)

// Array is the payload of [OpArrayCreate]: CUDA_ARRAY3D_DESCRIPTOR.
type Array struct {
	Width    uint32 // texels
	Height   uint32 // 0: one dimension
	Depth    uint32 // 0: at most two dimensions; of a layered array its layers
	Format   uint16 // CUarray_format
	Channels uint16 // 1, 2 or 4
	Flags    uint32
}

func (x *Array) fields(c payloadCodec) bool {
	codeU32(c, 16, &x.Width)
	codeU32(c, 20, &x.Height)
	codeU32(c, 24, &x.Depth)
	codeU16(c, 28, &x.Format)
	codeU16(c, 30, &x.Channels)
	codeU32(c, 32, &x.Flags)
	return c.rest(36) && x.Flags&^arrayFlags == 0
}

// Encode writes the payload and zeroes the rest of the entry.
func (x Array) Encode(e *Entry) { x.fields(payloadCodec{e, true}) }

// DecodeArray reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeArray(e *Entry) (x Array, err error) {
	err = reserved(x.fields(payloadCodec{e, false}))
	return x, err
}

// Aux bits of [OpArrayCopy].
const (
	ArrayCopyOut    = 1 // from the array; otherwise into it
	ArrayCopyWindow = 2 // the address is an offset in BAR2; otherwise it is a GPU address
)

// ArrayCopy is the payload of [OpArrayCopy]: Depth slices of Height rows of Width bytes, of which
// the first in the array is at X, Y, Z.
type ArrayCopy struct {
	Array   uint64
	Address uint64 // the other side's
	Pitch   uint32 // bytes from row to row on the other side
	Rows    uint32 // rows from slice to slice on the other side
	X       uint32 // bytes
	Y       uint32 // rows
	Z       uint32 // slices, or layers
	Width   uint32 // bytes
	Height  uint32 // rows
	Depth   uint32 // slices, or layers
}

func (x *ArrayCopy) fields(c payloadCodec) bool {
	codeU64(c, 16, &x.Array)
	codeU64(c, 24, &x.Address)
	codeU32(c, 32, &x.Pitch)
	codeU32(c, 36, &x.Rows)
	codeU32(c, 40, &x.X)
	codeU32(c, 44, &x.Y)
	codeU32(c, 48, &x.Z)
	codeU32(c, 52, &x.Width)
	codeU32(c, 56, &x.Height)
	codeU32(c, 60, &x.Depth)
	return true
}

// Encode writes the payload.
func (x ArrayCopy) Encode(e *Entry) { x.fields(payloadCodec{e, true}) }

// DecodeArrayCopy reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeArrayCopy(e *Entry) (x ArrayCopy, err error) {
	err = reserved(x.fields(payloadCodec{e, false}))
	return x, err
}

// Aux bits of [OpTextureCreate]. The first two are CUDA's own CU_TRSF_ flags.
const (
	TextureReadAsInteger = 0x01
	TextureNormalized    = 0x02 // coordinates
	TextureLinear        = 0x80 // Resource is GPU memory rather than an array
)

// Texture is the payload of [OpTextureCreate]. The fields from Width to Channels describe linear
// memory, and are zero for an array.
type Texture struct {
	Resource uint64 // an array, or a GPU address
	Width    uint32 // texels
	Height   uint32 // rows; 0: one dimension
	Pitch    uint32 // bytes from row to row
	Format   uint16 // CUarray_format
	Channels uint16 // 1, 2 or 4
	AddressX uint16 // CUaddress_mode
	AddressY uint16 // CUaddress_mode
	AddressZ uint16 // CUaddress_mode
	Filter   uint16 // CUfilter_mode
	// Border is the bits of four floats: what is read outside with the address mode border.
	Border0 uint32
	Border1 uint32
	Border2 uint32
	Border3 uint32
}

func (x *Texture) fields(c payloadCodec) bool {
	codeU64(c, 16, &x.Resource)
	codeU32(c, 24, &x.Width)
	codeU32(c, 28, &x.Height)
	codeU32(c, 32, &x.Pitch)
	codeU16(c, 36, &x.Format)
	codeU16(c, 38, &x.Channels)
	codeU16(c, 40, &x.AddressX)
	codeU16(c, 42, &x.AddressY)
	codeU16(c, 44, &x.AddressZ)
	codeU16(c, 46, &x.Filter)
	codeU32(c, 48, &x.Border0)
	codeU32(c, 52, &x.Border1)
	codeU32(c, 56, &x.Border2)
	codeU32(c, 60, &x.Border3)
	return true
}

// Encode writes the payload.
func (x Texture) Encode(e *Entry) { x.fields(payloadCodec{e, true}) }

// DecodeTexture reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeTexture(e *Entry) (x Texture, err error) {
	err = reserved(x.fields(payloadCodec{e, false}))
	return x, err
}

// Binding is the payload of [OpTextureBind]: a module's variable by its name, which lies in
// continuation entries if there are any, else in BAR2, and the texture or surface that it names.
type Binding struct {
	Module    uint64
	Name      uint64 // offset in BAR2
	NameBytes uint32
	Surface   uint32 // 1: Texture is a surface
	Texture   uint64 // 0: nothing is bound, and the answer says which kind the variable is
}

func (x *Binding) fields(c payloadCodec) bool {
	codeU64(c, 16, &x.Module)
	codeU64(c, 24, &x.Name)
	codeU32(c, 32, &x.NameBytes)
	codeU32(c, 36, &x.Surface)
	codeU64(c, 40, &x.Texture)
	return c.rest(48) && x.Surface <= 1
}

// Encode writes the payload and zeroes the rest of the entry.
func (x Binding) Encode(e *Entry) { x.fields(payloadCodec{e, true}) }

// DecodeBinding reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeBinding(e *Entry) (x Binding, err error) {
	err = reserved(x.fields(payloadCodec{e, false}))
	return x, err
}
