package vfiousertest

import (
	"os"
	"sync"
	"syscall"

	"vgpud/vfio/vfiouser"
)

// Device is a device in memory: its regions are byte slices, or mappings of their files. It records what it is told. The zero
// value of all but Desc will do.
type Device struct {
	// Desc is what Describe answers.
	Desc vfiouser.Description

	// Hooks, each used when not nil in place of the memory or in addition to the record.
	OnAttach func(*vfiouser.Session) error
	OnDetach func(*vfiouser.Session)
	OnReset  func() error
	OnRead   func(region uint32, offset uint64, p []byte) error
	OnWrite  func(region uint32, offset uint64, p []byte) error

	mu       sync.Mutex
	session  *vfiouser.Session
	memory   [vfiouser.NumRegions][]byte
	attached int
	detached int
	resets   int
	writes   []Write
}

// Write is one write that a [Device] has seen.
type Write struct {
	Region uint32
	Offset uint64
	Data   []byte
}

// Describe answers Desc.
func (d *Device) Describe() vfiouser.Description { return d.Desc }

// Attach records the session.
func (d *Device) Attach(s *vfiouser.Session) error {
	d.mu.Lock()
	d.attached++
	d.session = s
	d.mu.Unlock()
	if d.OnAttach != nil {
		return d.OnAttach(s)
	}
	return nil
}

// Detach forgets the session and the contents of the regions without a file.
func (d *Device) Detach(s *vfiouser.Session) {
	if d.OnDetach != nil {
		d.OnDetach(s)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.detached++
	d.session = nil
	d.memory = [vfiouser.NumRegions][]byte{}
	d.writes = nil
}

// Reset counts.
func (d *Device) Reset() error {
	d.mu.Lock()
	d.resets++
	d.mu.Unlock()
	if d.OnReset != nil {
		return d.OnReset()
	}
	return nil
}

// RegionRead reads the region's memory or file.
func (d *Device) RegionRead(region uint32, offset uint64, p []byte) error {
	if d.OnRead != nil {
		return d.OnRead(region, offset, p)
	}
	if f := d.file(region); f != nil {
		_, err := f.ReadAt(p, int64(d.Desc.Regions[region].FileOffset+offset))
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	copy(p, d.bytes(region)[offset:])
	return nil
}

// RegionWrite writes the region's memory or file and records the write.
func (d *Device) RegionWrite(region uint32, offset uint64, p []byte) error {
	if d.OnWrite != nil {
		return d.OnWrite(region, offset, p)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.writes) < 1<<16 {
		d.writes = append(d.writes, Write{region, offset, append([]byte(nil), p...)})
	}
	if f := d.file(region); f != nil {
		_, err := f.WriteAt(p, int64(d.Desc.Regions[region].FileOffset+offset))
		return err
	}
	copy(d.bytes(region)[offset:], p)
	return nil
}

func (d *Device) file(region uint32) *os.File { return d.Desc.Regions[region].File }

// bytes is the memory of a region, allocated at its first use.
func (d *Device) bytes(region uint32) []byte {
	if d.memory[region] == nil {
		d.memory[region] = make([]byte, d.Desc.Regions[region].Size)
	}
	return d.memory[region]
}

// Session is the session of the client that is attached, nil if none is.
func (d *Device) Session() *vfiouser.Session {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.session
}

// Counts says how often Attach, Detach and Reset were called.
func (d *Device) Counts() (attached, detached, resets int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.attached, d.detached, d.resets
}

// Writes are the writes since the client came.
func (d *Device) Writes() []Write {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]Write(nil), d.writes...)
}

// MappedDevice is a Device that also keeps its client's DMA mappings, as a device that means to use them does.
type MappedDevice struct {
	Device
	// Refuse, when not 0, is what DMAMap answers.
	Refuse syscall.Errno

	dmaMu sync.Mutex
	maps  []DMA
}

// DMA is a mapping that a [MappedDevice] was told of.
type DMA struct {
	vfiouser.DMAMap
	File *os.File // nil if none came
}

// DMAMap records the mapping and keeps its file.
func (d *MappedDevice) DMAMap(m vfiouser.DMAMap, f *os.File) error {
	if d.Refuse != 0 {
		if f != nil {
			f.Close()
		}
		return d.Refuse
	}
	d.dmaMu.Lock()
	defer d.dmaMu.Unlock()
	d.maps = append(d.maps, DMA{m, f})
	return nil
}

// DMAUnmap drops the mappings within the range.
func (d *MappedDevice) DMAUnmap(addr, size uint64, all bool) error {
	d.dmaMu.Lock()
	defer d.dmaMu.Unlock()
	kept := d.maps[:0]
	for _, m := range d.maps {
		if all || m.Addr >= addr && m.Addr-addr < size {
			if m.File != nil {
				m.File.Close()
			}
			continue
		}
		kept = append(kept, m)
	}
	d.maps = kept
	return nil
}

// Detach drops all mappings too.
func (d *MappedDevice) Detach(s *vfiouser.Session) {
	_ = d.DMAUnmap(0, 0, true)
	d.Device.Detach(s)
}

// Mappings are the mappings there are.
func (d *MappedDevice) Mappings() []DMA {
	d.dmaMu.Lock()
	defer d.dmaMu.Unlock()
	return append([]DMA(nil), d.maps...)
}
