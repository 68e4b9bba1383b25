package vfiouser

import "encoding/binary"

// Every struct of abi.go has two methods. MarshalBytes writes it to the start of dst and UnmarshalBytes reads it from
// the start of src, little endian; both panic when the slice is shorter than the struct, so lengths that a peer
// chose are checked before.

var le = binary.LittleEndian

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

// MarshalBytes writes v to dst.
func (v *Version) MarshalBytes(dst []byte) {
	_ = dst[SizeofVersion-1]
	le.PutUint16(dst[0:], v.Major)
	le.PutUint16(dst[2:], v.Minor)
}

// UnmarshalBytes reads v from src.
func (v *Version) UnmarshalBytes(src []byte) {
	_ = src[SizeofVersion-1]
	v.Major = le.Uint16(src[0:])
	v.Minor = le.Uint16(src[2:])
}

// MarshalBytes writes m to dst.
func (m *DMAMap) MarshalBytes(dst []byte) {
	_ = dst[SizeofDMAMap-1]
	le.PutUint32(dst[0:], m.Argsz)
	le.PutUint32(dst[4:], m.Flags)
	le.PutUint64(dst[8:], m.Offset)
	le.PutUint64(dst[16:], m.Addr)
	le.PutUint64(dst[24:], m.Size)
}

// UnmarshalBytes reads m from src.
func (m *DMAMap) UnmarshalBytes(src []byte) {
	_ = src[SizeofDMAMap-1]
	m.Argsz = le.Uint32(src[0:])
	m.Flags = le.Uint32(src[4:])
	m.Offset = le.Uint64(src[8:])
	m.Addr = le.Uint64(src[16:])
	m.Size = le.Uint64(src[24:])
}

// MarshalBytes writes m to dst.
func (m *DMAUnmap) MarshalBytes(dst []byte) {
	_ = dst[SizeofDMAUnmap-1]
	le.PutUint32(dst[0:], m.Argsz)
	le.PutUint32(dst[4:], m.Flags)
	le.PutUint64(dst[8:], m.Addr)
	le.PutUint64(dst[16:], m.Size)
}

// UnmarshalBytes reads m from src.
func (m *DMAUnmap) UnmarshalBytes(src []byte) {
	_ = src[SizeofDMAUnmap-1]
	m.Argsz = le.Uint32(src[0:])
	m.Flags = le.Uint32(src[4:])
	m.Addr = le.Uint64(src[8:])
	m.Size = le.Uint64(src[16:])
}

// MarshalBytes writes d to dst.
func (d *DeviceInfo) MarshalBytes(dst []byte) {
	_ = dst[SizeofDeviceInfo-1]
	le.PutUint32(dst[0:], d.Argsz)
	le.PutUint32(dst[4:], d.Flags)
	le.PutUint32(dst[8:], d.NumRegions)
	le.PutUint32(dst[12:], d.NumIRQs)
}

// UnmarshalBytes reads d from src.
func (d *DeviceInfo) UnmarshalBytes(src []byte) {
	_ = src[SizeofDeviceInfo-1]
	d.Argsz = le.Uint32(src[0:])
	d.Flags = le.Uint32(src[4:])
	d.NumRegions = le.Uint32(src[8:])
	d.NumIRQs = le.Uint32(src[12:])
}

// MarshalBytes writes r to dst.
func (r *RegionInfo) MarshalBytes(dst []byte) {
	_ = dst[SizeofRegionInfo-1]
	le.PutUint32(dst[0:], r.Argsz)
	le.PutUint32(dst[4:], r.Flags)
	le.PutUint32(dst[8:], r.Index)
	le.PutUint32(dst[12:], r.CapOffset)
	le.PutUint64(dst[16:], r.Size)
	le.PutUint64(dst[24:], r.Offset)
}

// UnmarshalBytes reads r from src.
func (r *RegionInfo) UnmarshalBytes(src []byte) {
	_ = src[SizeofRegionInfo-1]
	r.Argsz = le.Uint32(src[0:])
	r.Flags = le.Uint32(src[4:])
	r.Index = le.Uint32(src[8:])
	r.CapOffset = le.Uint32(src[12:])
	r.Size = le.Uint64(src[16:])
	r.Offset = le.Uint64(src[24:])
}

// MarshalBytes writes c to dst.
func (c *CapHeader) MarshalBytes(dst []byte) {
	_ = dst[SizeofCapHeader-1]
	le.PutUint16(dst[0:], c.ID)
	le.PutUint16(dst[2:], c.Version)
	le.PutUint32(dst[4:], c.Next)
}

// UnmarshalBytes reads c from src.
func (c *CapHeader) UnmarshalBytes(src []byte) {
	_ = src[SizeofCapHeader-1]
	c.ID = le.Uint16(src[0:])
	c.Version = le.Uint16(src[2:])
	c.Next = le.Uint32(src[4:])
}

// MarshalBytes writes s to dst.
func (s *SparseMmap) MarshalBytes(dst []byte) {
	_ = dst[SizeofSparseMmap-1]
	s.Header.MarshalBytes(dst)
	le.PutUint32(dst[8:], s.NumAreas)
	le.PutUint32(dst[12:], s.Pad0)
}

// UnmarshalBytes reads s from src.
func (s *SparseMmap) UnmarshalBytes(src []byte) {
	_ = src[SizeofSparseMmap-1]
	s.Header.UnmarshalBytes(src)
	s.NumAreas = le.Uint32(src[8:])
	s.Pad0 = le.Uint32(src[12:])
}

// MarshalBytes writes a to dst.
func (a *SparseMmapArea) MarshalBytes(dst []byte) {
	_ = dst[SizeofSparseMmapArea-1]
	le.PutUint64(dst[0:], a.Offset)
	le.PutUint64(dst[8:], a.Size)
}

// UnmarshalBytes reads a from src.
func (a *SparseMmapArea) UnmarshalBytes(src []byte) {
	_ = src[SizeofSparseMmapArea-1]
	a.Offset = le.Uint64(src[0:])
	a.Size = le.Uint64(src[8:])
}

// MarshalBytes writes i to dst.
func (i *IRQInfo) MarshalBytes(dst []byte) {
	_ = dst[SizeofIRQInfo-1]
	le.PutUint32(dst[0:], i.Argsz)
	le.PutUint32(dst[4:], i.Flags)
	le.PutUint32(dst[8:], i.Index)
	le.PutUint32(dst[12:], i.Count)
}

// UnmarshalBytes reads i from src.
func (i *IRQInfo) UnmarshalBytes(src []byte) {
	_ = src[SizeofIRQInfo-1]
	i.Argsz = le.Uint32(src[0:])
	i.Flags = le.Uint32(src[4:])
	i.Index = le.Uint32(src[8:])
	i.Count = le.Uint32(src[12:])
}

// MarshalBytes writes i to dst.
func (i *IRQSet) MarshalBytes(dst []byte) {
	_ = dst[SizeofIRQSet-1]
	le.PutUint32(dst[0:], i.Argsz)
	le.PutUint32(dst[4:], i.Flags)
	le.PutUint32(dst[8:], i.Index)
	le.PutUint32(dst[12:], i.Start)
	le.PutUint32(dst[16:], i.Count)
}

// UnmarshalBytes reads i from src.
func (i *IRQSet) UnmarshalBytes(src []byte) {
	_ = src[SizeofIRQSet-1]
	i.Argsz = le.Uint32(src[0:])
	i.Flags = le.Uint32(src[4:])
	i.Index = le.Uint32(src[8:])
	i.Start = le.Uint32(src[12:])
	i.Count = le.Uint32(src[16:])
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

// MarshalBytes writes a to dst.
func (a *DMARegionAccess) MarshalBytes(dst []byte) {
	_ = dst[SizeofDMARegionAccess-1]
	le.PutUint64(dst[0:], a.Addr)
	le.PutUint64(dst[8:], a.Count)
}

// UnmarshalBytes reads a from src.
func (a *DMARegionAccess) UnmarshalBytes(src []byte) {
	_ = src[SizeofDMARegionAccess-1]
	a.Addr = le.Uint64(src[0:])
	a.Count = le.Uint64(src[8:])
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

// MarshalBytes writes f to dst.
func (f *DeviceFeature) MarshalBytes(dst []byte) {
	_ = dst[SizeofDeviceFeature-1]
	le.PutUint32(dst[0:], f.Argsz)
	le.PutUint32(dst[4:], f.Flags)
}

// UnmarshalBytes reads f from src.
func (f *DeviceFeature) UnmarshalBytes(src []byte) {
	_ = src[SizeofDeviceFeature-1]
	f.Argsz = le.Uint32(src[0:])
	f.Flags = le.Uint32(src[4:])
}
