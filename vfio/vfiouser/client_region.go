package vfiouser

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// RegionInfo requests the description of a region. info.Flags has RegionFlagMmap if it can be
// mapped. areas are the parts that can be mapped; nil means the whole region.
func (c *Client) RegionInfo(index uint32) (info RegionInfo, areas []SparseMmapArea, err error) {
	info, areas, fd, err := c.regionInfo(index)
	closeFDs([]int{fd})
	return info, areas, err
}

// maxRegionInfo limits the size of a region info with its capabilities.
const maxRegionInfo = 64 << 10

// regionInfo requests the info, and again with more room if the first reply says that the info is
// longer. The descriptor belongs to the caller; it is -1 if there is none.
func (c *Client) regionInfo(index uint32) (info RegionInfo, areas []SparseMmapArea, fd int, err error) {
	room := uint32(SizeofRegionInfo)
	for {
		info, areas, fd, err = c.askRegionInfo(index, room)
		if err != nil || info.Argsz <= room {
			return info, areas, fd, err
		}
		closeFDs([]int{fd})
		if room != SizeofRegionInfo || info.Argsz > maxRegionInfo {
			err := protocolErrorf("region %d: info of %d bytes where %d were offered", index, info.Argsz, room)
			return info, nil, -1, c.broken(err)
		}
		room = info.Argsz
	}
}

func (c *Client) askRegionInfo(index, room uint32) (info RegionInfo, areas []SparseMmapArea, fd int, err error) {
	fd = -1
	var b [SizeofRegionInfo]byte
	(&RegionInfo{Argsz: room, Index: index}).MarshalBytes(b[:])
	err = c.do(CmdDeviceGetRegionInfo, b[:], nil, int(room), func(p []byte, fds *[]int) error {
		if err := wantReply(CmdDeviceGetRegionInfo, p, SizeofRegionInfo); err != nil {
			return err
		}
		info.UnmarshalBytes(p)
		if areas, err = unmarshalAreas(&info, p); err != nil {
			return err
		}
		if len(*fds) > 0 {
			fd = (*fds)[0]
			(*fds)[0] = -1
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("region %d: %w", index, err)
	}
	return info, areas, fd, err
}

// MappedArea is a part of a region in memory. Bytes begins at Offset in the region.
type MappedArea struct {
	Offset uint64
	Bytes  []byte
}

// Mapping holds a region's mapped areas, in order of their offsets. Unmap must be called to free
// them.
type Mapping struct {
	Size  uint64 // of the whole region
	Areas []MappedArea
}

// Map maps the parts of a region that can be mapped, shared with the device. A server may shrink
// its file later, and touching the mapping then faults, unless the file is sealed against
// shrinking.
func (c *Client) Map(index uint32) (*Mapping, error) {
	info, areas, fd, err := c.regionInfo(index)
	defer func() { closeFDs([]int{fd}) }()
	if err != nil {
		return nil, err
	}
	if info.Flags&RegionFlagMmap == 0 || fd < 0 {
		return nil, fmt.Errorf("region %d cannot be mapped", index)
	}
	if areas == nil {
		areas = []SparseMmapArea{{Offset: 0, Size: info.Size}}
	}
	prot := 0
	if info.Flags&RegionFlagRead != 0 {
		prot |= unix.PROT_READ
	}
	if info.Flags&RegionFlagWrite != 0 {
		prot |= unix.PROT_WRITE
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("region %d: stat its file: %w", index, err)
	}
	m := &Mapping{Size: info.Size}
	for _, a := range areas {
		end := info.Offset + a.Offset + a.Size
		if end < info.Offset || st.Mode&unix.S_IFMT == unix.S_IFREG && end > uint64(st.Size) {
			return nil, errors.Join(m.Unmap(), fmt.Errorf("region %d: area %#x+%#x is not in its file of %#x bytes",
				index, a.Offset, a.Size, st.Size))
		}
		b, err := unix.Mmap(fd, int64(info.Offset+a.Offset), int(a.Size), prot, unix.MAP_SHARED)
		if err != nil {
			return nil, errors.Join(m.Unmap(), fmt.Errorf("region %d: map %#x+%#x: %w", index, a.Offset, a.Size, err))
		}
		m.Areas = append(m.Areas, MappedArea{Offset: a.Offset, Bytes: b})
	}
	return m, nil
}

// Bytes returns n bytes of the region from offset on, or nil if they are not all in one mapped
// area.
func (m *Mapping) Bytes(offset, n uint64) []byte {
	for i := range m.Areas {
		a := &m.Areas[i]
		size := uint64(len(a.Bytes))
		if offset >= a.Offset && offset-a.Offset <= size && n <= size-(offset-a.Offset) {
			return a.Bytes[offset-a.Offset:][:n:n]
		}
	}
	return nil
}

// Unmap unmaps the areas. Their bytes must not be touched afterwards.
func (m *Mapping) Unmap() error {
	var err error
	for _, a := range m.Areas {
		err = errors.Join(err, unix.Munmap(a.Bytes))
	}
	m.Areas = nil
	return err
}
