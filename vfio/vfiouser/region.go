package vfiouser

import (
	"fmt"
	"math"
	"os"
)

// maxSparseAreas limits a region's areas, and so the size of a region info.
const maxSparseAreas = 1024

// check returns an error for a description that a client could not handle.
func (d *Description) check() error {
	if len(d.Regions) > NumRegions || len(d.IRQs) > NumIRQs {
		return fmt.Errorf("device has %d regions and %d interrupts, at most %d and %d are possible",
			len(d.Regions), len(d.IRQs), NumRegions, NumIRQs)
	}
	for i := range d.Regions {
		if err := d.Regions[i].check(i); err != nil {
			return fmt.Errorf("region %d: %w", i, err)
		}
	}
	for i, irq := range d.IRQs {
		if irq.Count > maxVectors {
			return fmt.Errorf("interrupt %d has %d vectors, at most %d are possible", i, irq.Count, maxVectors)
		}
	}
	return nil
}

func (r *Region) check(index int) error {
	if index <= RegionBAR5 && r.Size&(r.Size-1) != 0 {
		return fmt.Errorf("BAR size %#x is no power of two", r.Size)
	}
	if r.File == nil {
		if len(r.Areas) > 0 {
			return fmt.Errorf("areas to map, but no file")
		}
		return nil
	}
	if r.FileOffset > math.MaxInt64 || r.Size > math.MaxInt64-r.FileOffset {
		return fmt.Errorf("size %#x at file offset %#x is out of range", r.Size, r.FileOffset)
	}
	if len(r.Areas) > maxSparseAreas {
		return fmt.Errorf("%d areas to map, at most %d are possible", len(r.Areas), maxSparseAreas)
	}
	page, end := uint64(os.Getpagesize()), uint64(0)
	for _, a := range r.Areas {
		if a.Size == 0 || (a.Offset|a.Size)%page != 0 || a.Offset < end || a.Offset > r.Size || a.Size > r.Size-a.Offset {
			return fmt.Errorf("area %#x+%#x is unaligned, out of order or outside the region", a.Offset, a.Size)
		}
		end = a.Offset + a.Size
	}
	return nil
}

// infoSize returns the size of the region's info including its capabilities.
func (r *Region) infoSize() int {
	if len(r.Areas) == 0 {
		return SizeofRegionInfo
	}
	return SizeofRegionInfo + SizeofSparseMmap + len(r.Areas)*SizeofSparseMmapArea
}

// marshalInfo writes the region's info to dst, whose length the client's argsz allows, and returns
// its length. If the capabilities don't fit, the info has the size needed in argsz and neither
// capabilities nor the file (fds is false). QEMU then asks again; a longer reply would be fatal to
// it.
func (r *Region) marshalInfo(index uint32, dst []byte) (n int, fds bool) {
	size := r.infoSize()
	info := RegionInfo{
		Argsz: uint32(size),
		Flags: r.Flags & (RegionFlagRead | RegionFlagWrite),
		Index: index,
		Size:  r.Size,
	}
	if r.Size == 0 {
		info.Flags = 0
	}
	mappable := r.File != nil && r.Size != 0
	if mappable {
		info.Flags |= RegionFlagMmap
		info.Offset = r.FileOffset
	}
	if !mappable || len(r.Areas) == 0 {
		info.MarshalBytes(dst)
		return SizeofRegionInfo, mappable
	}
	if len(dst) < size {
		info.MarshalBytes(dst)
		return SizeofRegionInfo, false
	}
	info.Flags |= RegionFlagCaps
	info.CapOffset = SizeofRegionInfo
	info.MarshalBytes(dst)
	sparse := SparseMmap{
		Header:   CapHeader{ID: regionCapIDSparseMmap, Version: regionCapSparseVersion},
		NumAreas: uint32(len(r.Areas)),
	}
	p := dst[SizeofRegionInfo:]
	sparse.MarshalBytes(p)
	p = p[SizeofSparseMmap:]
	for i := range r.Areas {
		r.Areas[i].MarshalBytes(p[i*SizeofSparseMmapArea:])
	}
	return size, true
}

// unmarshalAreas reads the mappable areas from a region info with its capabilities. It returns nil
// if the whole region is mappable.
func unmarshalAreas(info *RegionInfo, p []byte) ([]SparseMmapArea, error) {
	if info.Flags&RegionFlagCaps == 0 {
		return nil, nil
	}
	off := info.CapOffset
	// Each iteration moves to a higher offset, so a circular list ends in an error.
	for off != 0 {
		if uint64(off)+SizeofCapHeader > uint64(len(p)) {
			return nil, protocolErrorf("region %d: capability at %d of %d bytes", info.Index, off, len(p))
		}
		var c CapHeader
		c.UnmarshalBytes(p[off:])
		if c.ID == regionCapIDSparseMmap && c.Version == regionCapSparseVersion {
			return unmarshalSparse(info, p[off:])
		}
		if c.Next != 0 && c.Next <= off {
			return nil, protocolErrorf("region %d: capability list goes back from %d to %d", info.Index, off, c.Next)
		}
		off = c.Next
	}
	return nil, nil
}

func unmarshalSparse(info *RegionInfo, p []byte) ([]SparseMmapArea, error) {
	if len(p) < SizeofSparseMmap {
		return nil, protocolErrorf("region %d: sparse mmap capability cut short", info.Index)
	}
	var s SparseMmap
	s.UnmarshalBytes(p)
	p = p[SizeofSparseMmap:]
	if uint64(s.NumAreas)*SizeofSparseMmapArea > uint64(len(p)) {
		return nil, protocolErrorf("region %d: %d sparse areas in %d bytes", info.Index, s.NumAreas, len(p))
	}
	areas := make([]SparseMmapArea, s.NumAreas)
	for i := range areas {
		a := &areas[i]
		a.UnmarshalBytes(p[i*SizeofSparseMmapArea:])
		if a.Offset > info.Size || a.Size > info.Size-a.Offset {
			return nil, protocolErrorf("region %d: area %#x+%#x outside its %#x bytes", info.Index, a.Offset, a.Size, info.Size)
		}
	}
	return areas, nil
}
