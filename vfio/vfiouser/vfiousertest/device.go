package vfiousertest

import (
	"os"
	"sync"
	"syscall"

	"vgpud/vfio/vfiouser"
)

// Device is a device in memory. Its regions are byte slices, or mappings of their files. It records
// its calls. Only Desc must be set.
type Device struct {
	// Desc is the result of Describe.
	Desc vfiouser.Description

	// Hooks, if not nil, are called instead of the memory or in addition to the record.
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

// Write is one write that a [Device] received.
type Write struct {
	Region uint32
	Offset uint64
	Data   []byte
}

// Describe returns Desc.
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

// Reset counts the call.
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

// bytes returns the memory of a region, allocated at its first use.
func (d *Device) bytes(region uint32) []byte {
	if d.memory[region] == nil {
		d.memory[region] = make([]byte, d.Desc.Regions[region].Size)
	}
	return d.memory[region]
}

// Session returns the session of the attached client, or nil.
func (d *Device) Session() *vfiouser.Session {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.session
}

// Counts returns how often Attach, Detach and Reset were called.
func (d *Device) Counts() (attached, detached, resets int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.attached, d.detached, d.resets
}

// Writes returns the writes since the client attached.
func (d *Device) Writes() []Write {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]Write(nil), d.writes...)
}

// MappedDevice is a Device that also keeps its client's DMA mappings, like a device that does DMA.
type MappedDevice struct {
	Device
	// Refuse, if not 0, is the result of DMAMap.
	Refuse syscall.Errno

	dmaMu sync.Mutex
	maps  []DMA
}

// DMA is a mapping of a [MappedDevice].
type DMA struct {
	vfiouser.DMAMap
	File *os.File // nil if the client sent none
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

// Mappings returns the current mappings.
func (d *MappedDevice) Mappings() []DMA {
	d.dmaMu.Lock()
	defer d.dmaMu.Unlock()
	return append([]DMA(nil), d.maps...)
}
