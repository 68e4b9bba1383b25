package vfiouser

import "os"

// Device is a device that a [Server] serves.
//
// Calls of Attach, Detach, Reset, RegionRead and RegionWrite for one client never overlap, and none
// comes before its Attach or after its Detach. An error that is, or wraps, a syscall.Errno reaches
// the client as that number, any other as EIO.
//
// Optional methods are in [DMAMapper] and [IRQStater].
type Device interface {
	// Describe returns the device's regions and interrupts. It is called once for each client,
	// before Attach. The result must not change while that client is attached.
	Describe() Description

	// Attach is called when a client has connected and been accepted. The session is valid until
	// Detach; it triggers interrupts. An error refuses the client.
	Attach(s *Session) error

	// Detach is called when the client of the last successful Attach is gone. Its interrupts are
	// already disabled. The device drops that client's state: the next client must find a device
	// after reset.
	Detach(s *Session)

	// Reset brings the device to its state at power-on. The client's interrupt settings stay.
	Reset() error

	// RegionRead fills p from the region at offset. Region and range are within the description,
	// and the region is readable. p may have any length and alignment, and is valid during the call
	// only.
	RegionRead(region uint32, offset uint64, p []byte) error

	// RegionWrite writes p to the region at offset, under the conditions of RegionRead.
	RegionWrite(region uint32, offset uint64, p []byte) error
}

// Description lists a device's regions and interrupts. Regions are numbered from RegionBAR0,
// interrupts from IRQINTx. Those missing at the end are absent, like those with size or count 0.
type Description struct {
	Regions []Region
	IRQs    []IRQ
}

// Region is one region of a device: a BAR, the ROM or the configuration space. The zero value is an
// absent region.
type Region struct {
	// Size in bytes. The size of a BAR is a power of two.
	Size uint64
	// Flags are the accesses that the device answers: RegionFlagRead, RegionFlagWrite. The server
	// derives the other flags.
	Flags uint32
	// File, if not nil, is passed to the client for mapping. The region starts FileOffset bytes
	// into it. The device keeps it open while it is served.
	File       *os.File
	FileOffset uint64
	// Areas limits the mapping to parts of the region; RegionRead and RegionWrite serve the rest.
	// Empty means the whole region. Areas are page-aligned, don't overlap, and are within the
	// region.
	Areas []SparseMmapArea
}

// IRQ is one interrupt of a device, with Count vectors. IRQFlagEventfd is always set. An interrupt
// with IRQFlagAutomasked (INTx) is masked by every trigger until the client unmasks it.
type IRQ struct {
	Count uint32
	Flags uint32
}

// DMAMapper is a device that accesses its client's memory. For a device without it, every mapping
// is acknowledged and its descriptor closed at once, so the device cannot reach the client's
// memory.
//
// Not every mapping is memory with a file behind it: QEMU also announces ROMs and the device's own
// mapped regions, without a file.
type DMAMapper interface {
	// DMAMap is called when the client announces memory. The device takes over file, even if it
	// returns an error; file is nil if none came. The device limits the number of mappings and
	// handles overlaps.
	DMAMap(m DMAMap, file *os.File) error
	// DMAUnmap is called when addresses from addr on are no longer memory. all means every mapping;
	// addr and size are then 0. Ranges that were never mapped are no error.
	DMAUnmap(addr, size uint64, all bool) error
}

// IRQStater is a device that is notified when its client changes interrupt vectors.
type IRQStater interface {
	// IRQsChanged is called after the client changed vectors start to start+count-1 of an
	// interrupt.
	IRQsChanged(index, start, count uint32)
}
