package abi

// Empty is the payload of commands without one: [OpNop], [OpFence],
// [OpMemInfo], [OpEventCreate], [OpTimestamp].
type Empty struct {
}

// Encode writes the payload and zeroes the rest of the entry.
func (x Empty) Encode(e *Entry) {
	e.clearFrom(16)
}

// DecodeEmpty reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeEmpty(e *Entry) (Empty, error) {
	x := Empty{}
	if !e.zeroFrom(16) {
		return x, errReserved
	}
	return x, nil
}

// Handle is the payload of commands about one thing: [OpMemFree] and
// [OpMemRange] (an address), [OpModuleUnload], the event commands,
// [OpEventKernelUnregister].
type Handle struct {
	Handle uint64
}

// Encode writes the payload and zeroes the rest of the entry.
func (x Handle) Encode(e *Entry) {
	e.putU64(16, x.Handle)
	e.clearFrom(24)
}

// DecodeHandle reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeHandle(e *Entry) (Handle, error) {
	x := Handle{
		Handle: e.u64(16),
	}
	if !e.zeroFrom(24) {
		return x, errReserved
	}
	return x, nil
}

// Query is the payload of commands that read or set one number:
// [OpFunctionAttribute], [OpFunctionSetAttribute], [OpFunctionParam] (Key is the
// parameter's index), [OpLimit], [OpSetLimit], [OpDeviceAttribute].
type Query struct {
	Handle uint64 // the function; zero where there is none
	Value  uint64 // what to set; zero when reading
	Key    uint32 // which number
}

// Encode writes the payload and zeroes the rest of the entry.
func (x Query) Encode(e *Entry) {
	e.putU64(16, x.Handle)
	e.putU64(24, x.Value)
	e.putU32(32, x.Key)
	e.clearFrom(36)
}

// DecodeQuery reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeQuery(e *Entry) (Query, error) {
	x := Query{
		Handle: e.u64(16),
		Value:  e.u64(24),
		Key:    e.u32(32),
	}
	if !e.zeroFrom(36) {
		return x, errReserved
	}
	return x, nil
}

// WindowArg is the payload of commands that answer with bytes: [OpPrintfDrain],
// [OpLastFault], [OpDeviceName].
type WindowArg struct {
	Window Window // where the bytes go
}

// Encode writes the payload and zeroes the rest of the entry.
func (x WindowArg) Encode(e *Entry) {
	e.putU64(16, x.Window.Offset)
	e.putU64(24, x.Window.Size)
	e.clearFrom(32)
}

// DecodeWindowArg reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeWindowArg(e *Entry) (WindowArg, error) {
	x := WindowArg{
		Window: Window{e.u64(16), e.u64(24)},
	}
	if !e.zeroFrom(32) {
		return x, errReserved
	}
	return x, nil
}

// Alloc is the payload of [OpMemAlloc].
type Alloc struct {
	Size  uint64 // bytes
	Align uint64 // a power of two; 0: the device's choice, at least 256
	Flags uint32 // 0 in this version
}

// Encode writes the payload and zeroes the rest of the entry.
func (x Alloc) Encode(e *Entry) {
	e.putU64(16, x.Size)
	e.putU64(24, x.Align)
	e.putU32(32, x.Flags)
	e.clearFrom(36)
}

// DecodeAlloc reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeAlloc(e *Entry) (Alloc, error) {
	x := Alloc{
		Size:  e.u64(16),
		Align: e.u64(24),
		Flags: e.u32(32),
	}
	if !e.zeroFrom(36) {
		return x, errReserved
	}
	return x, nil
}

// Transfer is the payload of [OpCopyIn] (Dst is GPU memory, Src an offset in
// BAR2), [OpCopyOut] (the other way round) and [OpCopy] (both GPU memory).
type Transfer struct {
	Dst  uint64
	Src  uint64
	Size uint64 // bytes
}

// Encode writes the payload and zeroes the rest of the entry.
func (x Transfer) Encode(e *Entry) {
	e.putU64(16, x.Dst)
	e.putU64(24, x.Src)
	e.putU64(32, x.Size)
	e.clearFrom(40)
}

// DecodeTransfer reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeTransfer(e *Entry) (Transfer, error) {
	x := Transfer{
		Dst:  e.u64(16),
		Src:  e.u64(24),
		Size: e.u64(32),
	}
	if !e.zeroFrom(40) {
		return x, errReserved
	}
	return x, nil
}

// Copy3D is the payload of [OpCopy3D]: Depth slices of Height rows of Width
// bytes. A pitch is the distance between rows, rows times pitch that between
// slices; the box's own origin is folded into Dst and Src.
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

// Encode writes the payload and zeroes the rest of the entry.
func (x Copy3D) Encode(e *Entry) {
	e.putU64(16, x.Dst)
	e.putU64(24, x.Src)
	e.putU32(32, x.DstPitch)
	e.putU32(36, x.SrcPitch)
	e.putU32(40, x.DstRows)
	e.putU32(44, x.SrcRows)
	e.putU32(48, x.Width)
	e.putU32(52, x.Height)
	e.putU32(56, x.Depth)
	e.putU16(60, uint16(x.DstPlace))
	e.putU16(62, uint16(x.SrcPlace))
}

// DecodeCopy3D reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeCopy3D(e *Entry) (Copy3D, error) {
	x := Copy3D{
		Dst:      e.u64(16),
		Src:      e.u64(24),
		DstPitch: e.u32(32),
		SrcPitch: e.u32(36),
		DstRows:  e.u32(40),
		SrcRows:  e.u32(44),
		Width:    e.u32(48),
		Height:   e.u32(52),
		Depth:    e.u32(56),
		DstPlace: Place(e.u16(60)),
		SrcPlace: Place(e.u16(62)),
	}
	if x.DstPlace > PlaceWindow || x.SrcPlace > PlaceWindow {
		return x, errReserved
	}
	return x, nil
}

// Set is the payload of [OpSet]: Rows rows of Count elements of Width bytes, all
// set to the low bits of Value.
type Set struct {
	Dst   uint64 // GPU address, a multiple of Width
	Count uint64 // elements in a row
	Pitch uint64 // bytes from row to row; of no account for one row
	Rows  uint64 // 1 for a plain fill
	Value uint32
	Width uint32 // 1, 2 or 4 bytes
}

// Encode writes the payload and zeroes the rest of the entry.
func (x Set) Encode(e *Entry) {
	e.putU64(16, x.Dst)
	e.putU64(24, x.Count)
	e.putU64(32, x.Pitch)
	e.putU64(40, x.Rows)
	e.putU32(48, x.Value)
	e.putU32(52, x.Width)
	e.clearFrom(56)
}

// DecodeSet reads the payload of an entry; errors wrap [StatusMalformed].
func DecodeSet(e *Entry) (Set, error) {
	x := Set{
		Dst:   e.u64(16),
		Count: e.u64(24),
		Pitch: e.u64(32),
		Rows:  e.u64(40),
		Value: e.u32(48),
		Width: e.u32(52),
	}
	if !e.zeroFrom(56) {
		return x, errReserved
	}
	if x.Width != 1 && x.Width != 2 && x.Width != 4 {
		return x, errReserved
	}
	return x, nil
}
