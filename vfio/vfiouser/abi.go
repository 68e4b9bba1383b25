package vfiouser

// Command numbers of a message header (enum vfio_user_command).
const (
	CmdVersion              = 1
	CmdDMAMap               = 2
	CmdDMAUnmap             = 3
	CmdDeviceGetInfo        = 4
	CmdDeviceGetRegionInfo  = 5
	CmdDeviceGetRegionIOFDs = 6
	CmdDeviceGetIRQInfo     = 7
	CmdDeviceSetIRQs        = 8
	CmdRegionRead           = 9
	CmdRegionWrite          = 10
	CmdDMARead              = 11
	CmdDMAWrite             = 12
	CmdDeviceReset          = 13
	CmdRegionWriteMulti     = 15
	CmdDeviceFeature        = 16
	CmdMigDataRead          = 17
	CmdMigDataWrite         = 18
)

// Flags of a message header.
const (
	FlagTypeMask    = 0xf
	FlagTypeCommand = 0
	FlagTypeReply   = 1
	FlagNoReply     = 0x10
	FlagError       = 0x20
)

// The protocol version that this package speaks.
const (
	VersionMajor = 0
	VersionMinor = 0
)

// Region numbers of a PCI device (enum in linux/vfio.h, VFIO_PCI_*_REGION_INDEX).
const (
	RegionBAR0   = 0
	RegionBAR1   = 1
	RegionBAR2   = 2
	RegionBAR3   = 3
	RegionBAR4   = 4
	RegionBAR5   = 5
	RegionROM    = 6
	RegionConfig = 7
	RegionVGA    = 8
	NumRegions   = 9
)

// Interrupt numbers of a PCI device (VFIO_PCI_*_IRQ_INDEX).
const (
	IRQINTx = 0
	IRQMSI  = 1
	IRQMSIX = 2
	IRQErr  = 3
	IRQReq  = 4
	NumIRQs = 5
)

// Flags of [DeviceInfo] (VFIO_DEVICE_FLAGS_*).
const (
	DeviceFlagReset = 1 << 0
	DeviceFlagPCI   = 1 << 1
)

// Flags of [RegionInfo] (VFIO_REGION_INFO_FLAG_*).
const (
	RegionFlagRead  = 1 << 0
	RegionFlagWrite = 1 << 1
	RegionFlagMmap  = 1 << 2
	RegionFlagCaps  = 1 << 3
)

// Flags of [IRQInfo] (VFIO_IRQ_INFO_*).
const (
	IRQFlagEventfd    = 1 << 0
	IRQFlagMaskable   = 1 << 1
	IRQFlagAutomasked = 1 << 2
	IRQFlagNoResize   = 1 << 3
)

// Flags of [IRQSet] (VFIO_IRQ_SET_*): one of the data forms and one of the actions.
const (
	IRQSetDataNone    = 1 << 0
	IRQSetDataBool    = 1 << 1
	IRQSetDataEventfd = 1 << 2
	IRQSetMask        = 1 << 3
	IRQSetUnmask      = 1 << 4
	IRQSetTrigger     = 1 << 5

	irqSetDataMask   = IRQSetDataNone | IRQSetDataBool | IRQSetDataEventfd
	irqSetActionMask = IRQSetMask | IRQSetUnmask | IRQSetTrigger
)

// Flags of [DMAMap] (VFIO_USER_F_DMA_REGION_*) and [DMAUnmap] (VFIO_DMA_UNMAP_FLAG_*).
// DMAMapFlagMmap is libvfio-user's VFIO_USER_F_DMA_REGION_MAPPABLE.
const (
	DMAMapFlagRead         = 1 << 0
	DMAMapFlagWrite        = 1 << 1
	DMAMapFlagMmap         = 1 << 2 // the device shall map the file
	DMAMapFlagFileIO       = 1 << 3 // the device shall read and write the file; excludes DMAMapFlagMmap
	DMAUnmapFlagGetDirty   = 1 << 0
	DMAUnmapFlagAll        = 1 << 1
	dmaMapFlagMask         = DMAMapFlagRead | DMAMapFlagWrite | DMAMapFlagMmap | DMAMapFlagFileIO
	regionCapIDSparseMmap  = 1
	regionCapSparseVersion = 1
)

// Flags of [DeviceFeature] (VFIO_DEVICE_FEATURE_*); the low 16 bits are the feature's number.
const (
	FeatureMask  = 0xffff
	FeatureGet   = 1 << 16
	FeatureSet   = 1 << 17
	FeatureProbe = 1 << 18
)

// Sizes of the structs below in a message, in bytes.
const (
	SizeofHeader          = 16
	SizeofVersion         = 4
	SizeofDMAMap          = 32
	SizeofDMAUnmap        = 24
	SizeofDeviceInfo      = 16
	SizeofRegionInfo      = 32
	SizeofCapHeader       = 8
	SizeofSparseMmap      = 16 // struct vfio_region_info_cap_sparse_mmap without its areas
	SizeofSparseMmapArea  = 16
	SizeofIRQInfo         = 16
	SizeofIRQSet          = 20
	SizeofRegionAccess    = 16
	SizeofDMARegionAccess = 16
	SizeofWriteMulti      = 8 // struct vfio_user_write_multi without its writes
	SizeofWriteMultiEntry = 24
	SizeofDeviceFeature   = 8
)

// Header is struct vfio_user_header. Size is the size of the message including the header.
type Header struct {
	ID    uint16
	Cmd   uint16
	Size  uint32
	Flags uint32
	Errno uint32
}

// Version is struct vfio_user_version. The capabilities follow as JSON with a final NUL.
type Version struct {
	Major uint16
	Minor uint16
}

// DMAMap is struct vfio_user_dma_map. It maps Size bytes of the file that comes with it, from
// Offset on, at address Addr of the client's memory.
type DMAMap struct {
	Argsz  uint32
	Flags  uint32
	Offset uint64
	Addr   uint64
	Size   uint64
}

// DMAUnmap is struct vfio_user_dma_unmap.
type DMAUnmap struct {
	Argsz uint32
	Flags uint32
	Addr  uint64
	Size  uint64
}

// DeviceInfo is struct vfio_user_device_info.
type DeviceInfo struct {
	Argsz      uint32
	Flags      uint32
	NumRegions uint32
	NumIRQs    uint32
}

// RegionInfo is struct vfio_region_info. Offset is where the region begins in the file that comes
// with it.
type RegionInfo struct {
	Argsz     uint32
	Flags     uint32
	Index     uint32
	CapOffset uint32
	Size      uint64
	Offset    uint64
}

// CapHeader is struct vfio_info_cap_header. Next is an offset from the start of the [RegionInfo]; 0
// ends the list.
type CapHeader struct {
	ID      uint16
	Version uint16
	Next    uint32
}

// SparseMmap is struct vfio_region_info_cap_sparse_mmap. NumAreas areas follow.
type SparseMmap struct {
	Header   CapHeader
	NumAreas uint32
	Pad0     uint32
}

// SparseMmapArea is struct vfio_region_sparse_mmap_area. Size bytes of the region from Offset can
// be mapped.
type SparseMmapArea struct {
	Offset uint64
	Size   uint64
}

// IRQInfo is struct vfio_irq_info.
type IRQInfo struct {
	Argsz uint32
	Flags uint32
	Index uint32
	Count uint32
}

// IRQSet is struct vfio_irq_set. With IRQSetDataBool, Count bytes follow.
type IRQSet struct {
	Argsz uint32
	Flags uint32
	Index uint32
	Start uint32
	Count uint32
}

// RegionAccess is struct vfio_user_region_access. The data of a write or of a read's reply follows.
type RegionAccess struct {
	Offset uint64
	Region uint32
	Count  uint32
}

// DMARegionAccess is struct vfio_user_dma_region_access. The data of a write or of a read's reply
// follows.
type DMARegionAccess struct {
	Addr  uint64
	Count uint64
}

// WriteMultiEntry is one element of struct vfio_user_write_multi: a register write of at most 8
// bytes.
type WriteMultiEntry struct {
	Offset uint64
	Region uint32
	Count  uint32
	Data   [8]byte
}

// DeviceFeature is struct vfio_user_device_feature. The feature's own data follows.
type DeviceFeature struct {
	Argsz uint32
	Flags uint32
}
