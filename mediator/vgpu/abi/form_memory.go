package abi

// Empty is the payload of commands without one: [OpNop], [OpFence], [OpMemInfo], [OpEventCreate],
// [OpTimestamp].
type Empty struct {
}

func (x *Empty) fields(c payloadCodec) bool {
	return c.rest(16)
}

// Encode writes the payload and zeroes the rest of the entry.
func (x Empty) Encode(e *Entry) { x.fields(payloadCodec{e, true}) }

// DecodeEmpty reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeEmpty(e *Entry) (x Empty, err error) {
	err = reserved(x.fields(payloadCodec{e, false}))
	return x, err
}

// Handle is the payload of commands about one thing: [OpMemFree] and [OpMemRange] (an address),
// [OpModuleUnload], the event commands, [OpEventKernelUnregister],
// [OpEventKernelQuery].
type Handle struct {
	Handle uint64
}

func (x *Handle) fields(c payloadCodec) bool {
	codeU64(c, 16, &x.Handle)
	return c.rest(24)
}

// Encode writes the payload and zeroes the rest of the entry.
func (x Handle) Encode(e *Entry) { x.fields(payloadCodec{e, true}) }

// DecodeHandle reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeHandle(e *Entry) (x Handle, err error) {
	err = reserved(x.fields(payloadCodec{e, false}))
	return x, err
}

// Query is the payload of commands that read or set one number: [OpFunctionAttribute],
// [OpFunctionSetAttribute], [OpFunctionParam] (Key is the parameter's index), [OpLimit],
// [OpSetLimit], [OpDeviceAttribute].
type Query struct {
	Handle uint64 // the function; zero where there is none
	Value  uint64 // what to set; zero when reading
	Key    uint32 // which number
}

func (x *Query) fields(c payloadCodec) bool {
	codeU64(c, 16, &x.Handle)
	codeU64(c, 24, &x.Value)
	codeU32(c, 32, &x.Key)
	return c.rest(36)
}

// Encode writes the payload and zeroes the rest of the entry.
func (x Query) Encode(e *Entry) { x.fields(payloadCodec{e, true}) }

// DecodeQuery reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeQuery(e *Entry) (x Query, err error) {
	err = reserved(x.fields(payloadCodec{e, false}))
	return x, err
}

// Point is the payload of [OpEventTrigger] and [OpEventAwait]: a value of a triggered event.
type Point struct {
	Handle uint64 // the event
	Value  uint64
}

func (x *Point) fields(c payloadCodec) bool {
	codeU64(c, 16, &x.Handle)
	codeU64(c, 24, &x.Value)
	return c.rest(32)
}

// Encode writes the payload and zeroes the rest of the entry.
func (x Point) Encode(e *Entry) { x.fields(payloadCodec{e, true}) }

// DecodePoint reads the payload of an entry; errors wrap [StatusMalformed].
func DecodePoint(e *Entry) (x Point, err error) {
	err = reserved(x.fields(payloadCodec{e, false}))
	return x, err
}

// WindowArg is the payload of commands that answer with bytes: [OpPrintfDrain], [OpLastFault],
// [OpDeviceName], [OpDeviceAttributes].
type WindowArg struct {
	Window Window // where the bytes go
}

func (x *WindowArg) fields(c payloadCodec) bool {
	codeU64(c, 16, &x.Window.Offset)
	codeU64(c, 24, &x.Window.Size)
	return c.rest(32)
}

// Encode writes the payload and zeroes the rest of the entry.
func (x WindowArg) Encode(e *Entry) { x.fields(payloadCodec{e, true}) }

// DecodeWindowArg reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeWindowArg(e *Entry) (x WindowArg, err error) {
	err = reserved(x.fields(payloadCodec{e, false}))
	return x, err
}

// Mapping is the payload of [OpWindowAddress].
type Mapping struct {
	Window Window
	// Address is where the window's first byte is to be; 0: the device's choice, or where it is.
	Address uint64
}

func (x *Mapping) fields(c payloadCodec) bool {
	codeU64(c, 16, &x.Window.Offset)
	codeU64(c, 24, &x.Window.Size)
	codeU64(c, 32, &x.Address)
	return c.rest(40)
}

// Encode writes the payload and zeroes the rest of the entry.
func (x Mapping) Encode(e *Entry) { x.fields(payloadCodec{e, true}) }

// DecodeMapping reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeMapping(e *Entry) (x Mapping, err error) {
	err = reserved(x.fields(payloadCodec{e, false}))
	return x, err
}

// Alloc is the payload of [OpMemAlloc].
type Alloc struct {
	Size  uint64 // bytes
	Align uint64 // a power of two; 0: the device's choice, at least 256
	Flags uint32 // 0 in this version
	Zero  uint32
	// Address is where the memory is to be; 0: the device's choice. With [FeatureChosenAddresses].
	Address uint64
}

func (x *Alloc) fields(c payloadCodec) bool {
	codeU64(c, 16, &x.Size)
	codeU64(c, 24, &x.Align)
	codeU32(c, 32, &x.Flags)
	codeU32(c, 36, &x.Zero)
	codeU64(c, 40, &x.Address)
	return c.rest(48) && x.Zero == 0
}

// Encode writes the payload and zeroes the rest of the entry.
func (x Alloc) Encode(e *Entry) { x.fields(payloadCodec{e, true}) }

// DecodeAlloc reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeAlloc(e *Entry) (x Alloc, err error) {
	err = reserved(x.fields(payloadCodec{e, false}))
	return x, err
}

// Transfer is the payload of [OpCopyIn] (Dst is GPU memory, Src an offset in BAR2), [OpCopyOut]
// (the other way round) and [OpCopy] (both GPU memory).
type Transfer struct {
	Dst  uint64
	Src  uint64
	Size uint64 // bytes
}

func (x *Transfer) fields(c payloadCodec) bool {
	codeU64(c, 16, &x.Dst)
	codeU64(c, 24, &x.Src)
	codeU64(c, 32, &x.Size)
	return c.rest(40)
}

// Encode writes the payload and zeroes the rest of the entry.
func (x Transfer) Encode(e *Entry) { x.fields(payloadCodec{e, true}) }

// DecodeTransfer reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeTransfer(e *Entry) (x Transfer, err error) {
	err = reserved(x.fields(payloadCodec{e, false}))
	return x, err
}

// Copy3D is the payload of [OpCopy3D]: Depth slices of Height rows of Width bytes. A pitch is the
// distance between rows, rows times pitch that between slices; the box's own origin is folded into
// Dst and Src.
type Copy3D struct {
	Dst      uint64 // GPU address, or offset in BAR2
	Src      uint64 // GPU address, or offset in BAR2
	DstPitch uint32 // bytes
	SrcPitch uint32 // bytes
	DstRows  uint32 // rows from one slice to the next
	SrcRows  uint32 // rows from one slice to the next
	Width    uint32 // bytes of a row
	Height   uint32 // rows
	Depth    uint32 // slices
	DstPlace Place
	SrcPlace Place
}

func (x *Copy3D) fields(c payloadCodec) bool {
	codeU64(c, 16, &x.Dst)
	codeU64(c, 24, &x.Src)
	codeU32(c, 32, &x.DstPitch)
	codeU32(c, 36, &x.SrcPitch)
	codeU32(c, 40, &x.DstRows)
	codeU32(c, 44, &x.SrcRows)
	codeU32(c, 48, &x.Width)
	codeU32(c, 52, &x.Height)
	codeU32(c, 56, &x.Depth)
	codeU16(c, 60, &x.DstPlace)
	codeU16(c, 62, &x.SrcPlace)
	return x.DstPlace <= PlaceWindow && x.SrcPlace <= PlaceWindow
}

// Encode writes the payload and zeroes the rest of the entry.
func (x Copy3D) Encode(e *Entry) { x.fields(payloadCodec{e, true}) }

// DecodeCopy3D reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeCopy3D(e *Entry) (x Copy3D, err error) {
	err = reserved(x.fields(payloadCodec{e, false}))
	return x, err
}

// Set is the payload of [OpSet]: Rows rows of Count elements of Width bytes, all set to the low
// bits of Value.
type Set struct {
	Dst   uint64 // GPU address, a multiple of Width
	Count uint64 // elements in a row
	Pitch uint64 // bytes from row to row; of no account for one row
	Rows  uint64 // 1 for a plain fill
	Value uint32
	Width uint32 // 1, 2 or 4 bytes
}

func (x *Set) fields(c payloadCodec) bool {
	codeU64(c, 16, &x.Dst)
	codeU64(c, 24, &x.Count)
	codeU64(c, 32, &x.Pitch)
	codeU64(c, 40, &x.Rows)
	codeU32(c, 48, &x.Value)
	codeU32(c, 52, &x.Width)
	return c.rest(56) && (x.Width == 1 || x.Width == 2 || x.Width == 4)
}

// Encode writes the payload and zeroes the rest of the entry.
func (x Set) Encode(e *Entry) { x.fields(payloadCodec{e, true}) }

// DecodeSet reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeSet(e *Entry) (x Set, err error) {
	err = reserved(x.fields(payloadCodec{e, false}))
	return x, err
}
