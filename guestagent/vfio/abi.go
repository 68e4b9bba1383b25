package vfio

import "encoding/binary"

// The names, numbers and layouts are those of include/uapi/linux/vfio.h.

// Requests: _IO(VFIO_TYPE, VFIO_BASE + n).
const (
	requestBase = ';'<<8 + 100

	GetAPIVersion       = requestBase + 0  // VFIO_GET_API_VERSION
	CheckExtension      = requestBase + 1  // VFIO_CHECK_EXTENSION
	SetIOMMU            = requestBase + 2  // VFIO_SET_IOMMU
	GroupGetStatus      = requestBase + 3  // VFIO_GROUP_GET_STATUS
	GroupSetContainer   = requestBase + 4  // VFIO_GROUP_SET_CONTAINER
	GroupGetDeviceFD    = requestBase + 6  // VFIO_GROUP_GET_DEVICE_FD
	DeviceGetInfo       = requestBase + 7  // VFIO_DEVICE_GET_INFO
	DeviceGetRegionInfo = requestBase + 8  // VFIO_DEVICE_GET_REGION_INFO
	DeviceGetIRQInfo    = requestBase + 9  // VFIO_DEVICE_GET_IRQ_INFO
	DeviceSetIRQs       = requestBase + 10 // VFIO_DEVICE_SET_IRQS
	DeviceReset         = requestBase + 11 // VFIO_DEVICE_RESET
)

// APIVersion is VFIO_API_VERSION.
const APIVersion = 0

// Kinds of IOMMU.
const (
	Type1v2IOMMU = 3 // VFIO_TYPE1v2_IOMMU
	NoIOMMU      = 8 // VFIO_NOIOMMU_IOMMU
)

// GroupViable is VFIO_GROUP_FLAGS_VIABLE.
const GroupViable = 1 << 0

// DevicePCI is VFIO_DEVICE_FLAGS_PCI.
const DevicePCI = 1 << 1

// RegionMmap is VFIO_REGION_INFO_FLAG_MMAP.
const RegionMmap = 1 << 2

// Regions of a PCI device.
const (
	RegionBAR0   = 0 // VFIO_PCI_BAR0_REGION_INDEX
	RegionBAR2   = 2 // VFIO_PCI_BAR2_REGION_INDEX
	RegionConfig = 7 // VFIO_PCI_CONFIG_REGION_INDEX
)

// Interrupts of a PCI device.
const (
	IRQMSI = 1 // VFIO_PCI_MSI_IRQ_INDEX
	IRQErr = 3 // VFIO_PCI_ERR_IRQ_INDEX
	IRQReq = 4 // VFIO_PCI_REQ_IRQ_INDEX
)

// IRQEventfd is VFIO_IRQ_INFO_EVENTFD.
const IRQEventfd = 1 << 0

// Flags of IRQSet.
const (
	IRQSetDataNone      = 1 << 0 // VFIO_IRQ_SET_DATA_NONE
	IRQSetDataEventfd   = 1 << 2 // VFIO_IRQ_SET_DATA_EVENTFD
	IRQSetActionTrigger = 1 << 5 // VFIO_IRQ_SET_ACTION_TRIGGER
)

// Sizes of the structures, for their argsz.
const (
	GroupStatusBytes = 8
	DeviceInfoBytes  = 20
	RegionInfoBytes  = 32
	IRQInfoBytes     = 16
	IRQSetBytes      = 20 // before the data
)

// The kernel's byte order, and that of all machines with QEMU's vfio-user.
var ne = binary.NativeEndian

// GroupStatus is struct vfio_group_status.
type GroupStatus struct{ Flags uint32 }

// Encode encodes s in the kernel's form.
func (s GroupStatus) Encode() []byte {
	b := ne.AppendUint32(make([]byte, 0, GroupStatusBytes), GroupStatusBytes)
	return ne.AppendUint32(b, s.Flags)
}

// Decode decodes the kernel's form.
func (s *GroupStatus) Decode(b []byte) { s.Flags = ne.Uint32(b[4:]) }

// DeviceInfo is struct vfio_device_info, without capabilities.
type DeviceInfo struct {
	Flags     uint32
	Regions   uint32 // num_regions
	IRQs      uint32 // num_irqs
	CapOffset uint32
}

// Encode encodes i in the kernel's form.
func (i DeviceInfo) Encode() []byte {
	b := make([]byte, 0, DeviceInfoBytes)
	for _, v := range []uint32{DeviceInfoBytes, i.Flags, i.Regions, i.IRQs, i.CapOffset} {
		b = ne.AppendUint32(b, v)
	}
	return b
}

// Decode decodes the kernel's form.
func (i *DeviceInfo) Decode(b []byte) {
	i.Flags, i.Regions, i.IRQs, i.CapOffset = ne.Uint32(b[4:]), ne.Uint32(b[8:]), ne.Uint32(b[12:]), ne.Uint32(b[16:])
}

// RegionInfo is struct vfio_region_info, without capabilities.
type RegionInfo struct {
	Flags     uint32
	Index     uint32
	CapOffset uint32
	Bytes     uint64 // size
	Offset    uint64 // of the region in the device's descriptor
}

// Encode encodes i in the kernel's form.
func (i RegionInfo) Encode() []byte {
	b := make([]byte, 0, RegionInfoBytes)
	for _, v := range []uint32{RegionInfoBytes, i.Flags, i.Index, i.CapOffset} {
		b = ne.AppendUint32(b, v)
	}
	return ne.AppendUint64(ne.AppendUint64(b, i.Bytes), i.Offset)
}

// Decode decodes the kernel's form.
func (i *RegionInfo) Decode(b []byte) {
	i.Flags, i.Index, i.CapOffset = ne.Uint32(b[4:]), ne.Uint32(b[8:]), ne.Uint32(b[12:])
	i.Bytes, i.Offset = ne.Uint64(b[16:]), ne.Uint64(b[24:])
}

// IRQInfo is struct vfio_irq_info.
type IRQInfo struct{ Flags, Index, Count uint32 }

// Encode encodes i in the kernel's form.
func (i IRQInfo) Encode() []byte {
	b := make([]byte, 0, IRQInfoBytes)
	for _, v := range []uint32{IRQInfoBytes, i.Flags, i.Index, i.Count} {
		b = ne.AppendUint32(b, v)
	}
	return b
}

// Decode decodes the kernel's form.
func (i *IRQInfo) Decode(b []byte) {
	i.Flags, i.Index, i.Count = ne.Uint32(b[4:]), ne.Uint32(b[8:]), ne.Uint32(b[12:])
}

// IRQSet is struct vfio_irq_set with descriptors as its data.
type IRQSet struct {
	Flags, Index, Start, Count uint32
	FDs                        []int32
}

// Encode encodes s in the kernel's form.
func (s IRQSet) Encode() []byte {
	size := uint32(IRQSetBytes + 4*len(s.FDs))
	b := make([]byte, 0, size)
	for _, v := range []uint32{size, s.Flags, s.Index, s.Start, s.Count} {
		b = ne.AppendUint32(b, v)
	}
	for _, fd := range s.FDs {
		b = ne.AppendUint32(b, uint32(fd))
	}
	return b
}

// Decode reads the kernel's form.
func (s *IRQSet) Decode(b []byte) {
	s.Flags, s.Index, s.Start, s.Count = ne.Uint32(b[4:]), ne.Uint32(b[8:]), ne.Uint32(b[12:]), ne.Uint32(b[16:])
	s.FDs = nil
	for b = b[IRQSetBytes:]; len(b) >= 4; b = b[4:] {
		s.FDs = append(s.FDs, int32(ne.Uint32(b)))
	}
}
