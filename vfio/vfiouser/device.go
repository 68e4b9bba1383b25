package vfiouser

import "os"

// Device is what a [Server] serves.
//
// Attach, Detach, Reset, RegionRead and RegionWrite of one client are called one after the other, never at once,
// and no call for a client comes before its Attach or after its Detach. An error that is, or wraps, a
// syscall.Errno reaches the client as that number, any other as EIO.
//
// What some devices need besides is in interfaces of their own: [DMAMapper], [IRQStater], [Featurer].
type Device interface {
	// Describe says what the device consists of. It is asked once for each client, before Attach; the answer
	// must not change while that client is there.
	Describe() Description

	// Attach tells that a client has come and been found acceptable. The session is valid until Detach; it raises
	// interrupts. An error refuses the client.
	Attach(s *Session) error

	// Detach tells that the client of the last successful Attach is gone. Its interrupts are already
	// disabled. The device drops what it keeps for that client: the next one must find a device after reset.
	Detach(s *Session)

	// Reset brings the device to its state at power-on. Interrupts stay as the client has set them.
	Reset() error

	// RegionRead fills p from the region at offset. Region and range are within what Describe said and the region
	// is readable; p may have any length and alignment, and is valid during the call only.
	RegionRead(region uint32, offset uint64, p []byte) error

	// RegionWrite writes p to the region at offset, under the conditions of RegionRead.
	RegionWrite(region uint32, offset uint64, p []byte) error
}

// Description is what a device consists of. Regions are numbered RegionBAR0 and on, interrupts IRQINTx and on;
// missing ones at the end are as absent as those with size or count 0.
type Description struct {
	Regions []Region
	IRQs    []IRQ
}

// Region is one region of a device: a BAR, the ROM or the configuration space. The zero value is an absent region.
type Region struct {
	// Size in bytes; a BAR's is a power of two.
	Size uint64
	// Flags says what accesses are answered: RegionFlagRead, RegionFlagWrite. The others follow from the rest.
	Flags uint32
	// File, when not nil, is given to the client for mapping; the region starts FileOffset bytes into it. The device
	// keeps it open as long as it is served.
	File       *os.File
	FileOffset uint64
	// Areas limits the mapping to parts of the region, all else is reached by RegionRead and RegionWrite. Empty means
	// the whole region. Areas are page-aligned, do not overlap and lie in the region.
	Areas []SparseMmapArea
}

// IRQ is one interrupt of a device, with Count vectors. IRQFlagEventfd is always set. An interrupt
// with IRQFlagAutomasked (INTx) is masked by every trigger until the client unmasks it.
type IRQ struct {
	Count uint32
	Flags uint32
}

// DMAMapper is a device that wants to reach its client's memory. With a device that lacks it every mapping is
// acknowledged and its descriptor closed at once: the client's memory is then out of the device's reach.
//
// Not every mapping is memory with a file behind it: QEMU also announces ROMs and the device's own mapped
// regions, with no file.
type DMAMapper interface {
	// DMAMap tells of memory of the client. The file, nil if none came, belongs to the device from here on, also
	// when it returns an error, and must be closed by it. Number and overlap of mappings are the device's to bound.
	DMAMap(m DMAMap, file *os.File) error
	// DMAUnmap tells that addresses from addr on are no longer memory. all means every mapping; addr and size are then 0.
	// Ranges that were never mapped are no error.
	DMAUnmap(addr, size uint64, all bool) error
}

// IRQStater is a device that wants to know which vectors its client listens to.
type IRQStater interface {
	// IRQsChanged is called after the client changed vectors start to start+count-1 of an interrupt.
	IRQsChanged(index, start, count uint32)
}

// Featurer is a device with features of DEVICE_FEATURE beyond asking: without it all are answered ENOTTY.
type Featurer interface {
	// DeviceFeature answers a request whose flags are FeatureGet, FeatureSet or FeatureProbe with one of these, and the
	// feature's number. The reply's data, at most MaxDataBytes, follows the echoed flags.
	DeviceFeature(flags uint32, data []byte) (reply []byte, err error)
}
