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
	RegionBAR4   = 4 // VFIO_PCI_BAR4_REGION_INDEX
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

// The kernel's byte order, and that of all machines with QEMU's vfio-user.
var ne = binary.NativeEndian

// encode encodes the fields of a structure in the kernel's form. Its first field is argsz, its
// size.
func encode(fields ...any) []byte {
	b := make([]byte, 4)
	for _, f := range fields {
		b, _ = binary.Append(b, ne, f) // fails only for types without a fixed size
	}
	ne.PutUint32(b, uint32(len(b)))
	return b
}

// decode decodes the fields of a structure after argsz.
func decode(b []byte, fields any) { _, _ = binary.Decode(b[4:], ne, fields) }

// GroupStatus is struct vfio_group_status.
type GroupStatus struct{ Flags uint32 }

// Encode encodes s in the kernel's form.
func (s GroupStatus) Encode() []byte { return encode(s) }

// Decode decodes the kernel's form.
func (s *GroupStatus) Decode(b []byte) { decode(b, s) }

// DeviceInfo is struct vfio_device_info, without capabilities.
type DeviceInfo struct {
	Flags     uint32
	Regions   uint32 // num_regions
	IRQs      uint32 // num_irqs
	CapOffset uint32
}

// Encode encodes i in the kernel's form.
func (i DeviceInfo) Encode() []byte { return encode(i) }

// Decode decodes the kernel's form.
func (i *DeviceInfo) Decode(b []byte) { decode(b, i) }

// RegionInfo is struct vfio_region_info, without capabilities.
type RegionInfo struct {
	Flags     uint32
	Index     uint32
	CapOffset uint32
	Bytes     uint64 // size
	Offset    uint64 // of the region in the device's descriptor
}

// Encode encodes i in the kernel's form.
func (i RegionInfo) Encode() []byte { return encode(i) }

// Decode decodes the kernel's form.
func (i *RegionInfo) Decode(b []byte) { decode(b, i) }

// IRQInfo is struct vfio_irq_info.
type IRQInfo struct{ Flags, Index, Count uint32 }

// Encode encodes i in the kernel's form.
func (i IRQInfo) Encode() []byte { return encode(i) }

// Decode decodes the kernel's form.
func (i *IRQInfo) Decode(b []byte) { decode(b, i) }

// IRQSet is struct vfio_irq_set with descriptors as its data.
type IRQSet struct {
	Flags, Index, Start, Count uint32
	FDs                        []int32
}

// Encode encodes s in the kernel's form.
func (s IRQSet) Encode() []byte { return encode(s.Flags, s.Index, s.Start, s.Count, s.FDs) }

// Decode decodes the kernel's form.
func (s *IRQSet) Decode(b []byte) {
	var head [4]uint32
	decode(b, &head)
	*s = IRQSet{Flags: head[0], Index: head[1], Start: head[2], Count: head[3]}
	if b = b[4+4*len(head):]; len(b) >= 4 {
		s.FDs = make([]int32, len(b)/4)
		_, _ = binary.Decode(b, ne, s.FDs)
	}
}
