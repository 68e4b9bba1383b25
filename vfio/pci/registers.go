package pci

// Offsets in the header of type 0, in bytes.
const (
	VendorID           = 0x00
	DeviceID           = 0x02
	Command            = 0x04
	Status             = 0x06
	RevisionID         = 0x08
	ClassProg          = 0x09 // three bytes: programming interface, subclass, class
	CacheLineSize      = 0x0c
	HeaderType         = 0x0e
	BaseAddress0       = 0x10
	SubsystemVendorID  = 0x2c
	SubsystemID        = 0x2e
	ROMAddress         = 0x30
	CapabilityList     = 0x34
	InterruptLine      = 0x3c
	InterruptPin       = 0x3d
	headerBytes        = 0x40
	extendedCapability = 0x100
)

// Sizes of a configuration space, in bytes: conventional, and with PCI Express's extended part.
const (
	SpaceBytes         = 256
	ExtendedSpaceBytes = 4096
)

// NumBARs is the number of base address registers in a header of type 0.
const NumBARs = 6

// Bits of Command.
const (
	CommandMemory      = 1 << 1
	CommandMaster      = 1 << 2
	CommandParity      = 1 << 6
	CommandSERR        = 1 << 8
	CommandINTxDisable = 1 << 10

	commandWritable = CommandMemory | CommandMaster | CommandParity | CommandSERR | CommandINTxDisable
)

// Bits of Status. All but the first are cleared by writing ones.
const (
	StatusCapList        = 1 << 4
	StatusParity         = 1 << 8
	StatusSigTargetAbort = 1 << 11
	StatusRecTargetAbort = 1 << 12
	StatusRecMasterAbort = 1 << 13
	StatusSigSystemError = 1 << 14
	StatusDetectedParity = 1 << 15

	statusClearable = StatusParity | StatusSigTargetAbort | StatusRecTargetAbort | StatusRecMasterAbort |
		StatusSigSystemError | StatusDetectedParity
)

// Low bits of a base address register of a memory BAR.
const (
	barMem64    = 0x4
	barPrefetch = 0x8
)

// Numbers of capabilities.
const (
	CapPM      = 0x01
	CapMSI     = 0x05
	CapExpress = 0x10
	CapMSIX    = 0x11
)

// The PM capability: offsets from its start, and bits.
const (
	pmCapabilities = 2
	pmControl      = 4
	pmBytes        = 8

	pmVersion3    = 3
	pmStateMask   = 0x3
	pmNoSoftReset = 1 << 3
)

// The MSI capability with a 64-bit address.
const (
	msiFlags     = 2
	msiAddressLo = 4
	msiAddressHi = 8
	msiData      = 12
	msiMask      = 16
	msiPending   = 20

	msiBytes        = 14
	msiMaskingBytes = 24

	msiEnable    = 1 << 0
	msiQueueMask = 7 << 1 // vectors that the function supports, as a power of two
	msiQueueSize = 7 << 4 // vectors that software allocated, as a power of two
	msi64        = 1 << 7
	msiMaskBit   = 1 << 8
)

// The MSI-X capability.
const (
	msixFlags = 2
	msixTable = 4
	msixPBA   = 8
	msixBytes = 12

	msixMaskAll = 1 << 14
	msixEnable  = 1 << 15

	msixEntryBytes = 16
)

// The PCI Express capability, version 2.
const (
	expFlags   = 0x02
	expDevCap  = 0x04
	expDevCtl  = 0x08
	expDevSta  = 0x0a
	expLnkCap  = 0x0c
	expLnkCtl  = 0x10
	expLnkSta  = 0x12
	expDevCap2 = 0x24
	expDevCtl2 = 0x28
	expLnkCap2 = 0x2c
	expLnkCtl2 = 0x30
	expBytes   = 0x3c

	expVersion2     = 2
	expDevCapFLR    = 1 << 28
	expDevCtlFLR    = 1 << 15
	expDevStaErrors = 0xf
)
