package vfiouser

import "encoding/binary"

// Every struct of abi.go has two methods. MarshalBytes writes it to the start of dst and
// UnmarshalBytes reads it from the start of src, little endian. Both panic if the slice is shorter
// than the struct, so a length that a peer chose must be checked before.

var le = binary.LittleEndian

// marshal writes v, a pointer to a struct, to the start of dst. The structs of register accesses
// have faster code of their own below, which does not allocate.
func marshal(dst []byte, v any) {
	if _, err := binary.Encode(dst, le, v); err != nil {
		panic("vfiouser: " + err.Error())
	}
}

// unmarshal reads v, a pointer to a struct, from the start of src.
func unmarshal(src []byte, v any) {
	if _, err := binary.Decode(src, le, v); err != nil {
		panic("vfiouser: " + err.Error())
	}
}

// MarshalBytes writes h to dst.
func (h *Header) MarshalBytes(dst []byte) {
	_ = dst[SizeofHeader-1]
	le.PutUint16(dst[0:], h.ID)
	le.PutUint16(dst[2:], h.Cmd)
	le.PutUint32(dst[4:], h.Size)
	le.PutUint32(dst[8:], h.Flags)
	le.PutUint32(dst[12:], h.Errno)
}

// UnmarshalBytes reads h from src.
func (h *Header) UnmarshalBytes(src []byte) {
	_ = src[SizeofHeader-1]
	h.ID = le.Uint16(src[0:])
	h.Cmd = le.Uint16(src[2:])
	h.Size = le.Uint32(src[4:])
	h.Flags = le.Uint32(src[8:])
	h.Errno = le.Uint32(src[12:])
}

// MarshalBytes writes a to dst.
func (a *RegionAccess) MarshalBytes(dst []byte) {
	_ = dst[SizeofRegionAccess-1]
	le.PutUint64(dst[0:], a.Offset)
	le.PutUint32(dst[8:], a.Region)
	le.PutUint32(dst[12:], a.Count)
}

// UnmarshalBytes reads a from src.
func (a *RegionAccess) UnmarshalBytes(src []byte) {
	_ = src[SizeofRegionAccess-1]
	a.Offset = le.Uint64(src[0:])
	a.Region = le.Uint32(src[8:])
	a.Count = le.Uint32(src[12:])
}

// MarshalBytes writes e to dst.
func (e *WriteMultiEntry) MarshalBytes(dst []byte) {
	_ = dst[SizeofWriteMultiEntry-1]
	le.PutUint64(dst[0:], e.Offset)
	le.PutUint32(dst[8:], e.Region)
	le.PutUint32(dst[12:], e.Count)
	copy(dst[16:24], e.Data[:])
}

// UnmarshalBytes reads e from src.
func (e *WriteMultiEntry) UnmarshalBytes(src []byte) {
	_ = src[SizeofWriteMultiEntry-1]
	e.Offset = le.Uint64(src[0:])
	e.Region = le.Uint32(src[8:])
	e.Count = le.Uint32(src[12:])
	copy(e.Data[:], src[16:24])
}

// MarshalBytes writes v to dst.
func (v *Version) MarshalBytes(dst []byte) { marshal(dst, v) }

// UnmarshalBytes reads v from src.
func (v *Version) UnmarshalBytes(src []byte) { unmarshal(src, v) }

// MarshalBytes writes m to dst.
func (m *DMAMap) MarshalBytes(dst []byte) { marshal(dst, m) }

// UnmarshalBytes reads m from src.
func (m *DMAMap) UnmarshalBytes(src []byte) { unmarshal(src, m) }

// MarshalBytes writes m to dst.
func (m *DMAUnmap) MarshalBytes(dst []byte) { marshal(dst, m) }

// UnmarshalBytes reads m from src.
func (m *DMAUnmap) UnmarshalBytes(src []byte) { unmarshal(src, m) }

// MarshalBytes writes d to dst.
func (d *DeviceInfo) MarshalBytes(dst []byte) { marshal(dst, d) }

// UnmarshalBytes reads d from src.
func (d *DeviceInfo) UnmarshalBytes(src []byte) { unmarshal(src, d) }

// MarshalBytes writes r to dst.
func (r *RegionInfo) MarshalBytes(dst []byte) { marshal(dst, r) }

// UnmarshalBytes reads r from src.
func (r *RegionInfo) UnmarshalBytes(src []byte) { unmarshal(src, r) }

// MarshalBytes writes c to dst.
func (c *CapHeader) MarshalBytes(dst []byte) { marshal(dst, c) }

// UnmarshalBytes reads c from src.
func (c *CapHeader) UnmarshalBytes(src []byte) { unmarshal(src, c) }

// MarshalBytes writes s to dst.
func (s *SparseMmap) MarshalBytes(dst []byte) { marshal(dst, s) }

// UnmarshalBytes reads s from src.
func (s *SparseMmap) UnmarshalBytes(src []byte) { unmarshal(src, s) }

// MarshalBytes writes a to dst.
func (a *SparseMmapArea) MarshalBytes(dst []byte) { marshal(dst, a) }

// UnmarshalBytes reads a from src.
func (a *SparseMmapArea) UnmarshalBytes(src []byte) { unmarshal(src, a) }

// MarshalBytes writes i to dst.
func (i *IRQInfo) MarshalBytes(dst []byte) { marshal(dst, i) }

// UnmarshalBytes reads i from src.
func (i *IRQInfo) UnmarshalBytes(src []byte) { unmarshal(src, i) }

// MarshalBytes writes i to dst.
func (i *IRQSet) MarshalBytes(dst []byte) { marshal(dst, i) }

// UnmarshalBytes reads i from src.
func (i *IRQSet) UnmarshalBytes(src []byte) { unmarshal(src, i) }

// MarshalBytes writes a to dst.
func (a *DMARegionAccess) MarshalBytes(dst []byte) { marshal(dst, a) }

// UnmarshalBytes reads a from src.
func (a *DMARegionAccess) UnmarshalBytes(src []byte) { unmarshal(src, a) }

// MarshalBytes writes f to dst.
func (f *DeviceFeature) MarshalBytes(dst []byte) { marshal(dst, f) }

// UnmarshalBytes reads f from src.
func (f *DeviceFeature) UnmarshalBytes(src []byte) { unmarshal(src, f) }
