package abi

// BAR0Size is the size of the trapped register region in bytes.
const BAR0Size = 64 << 10

// Registers of BAR0. Every register is 32 bits wide, little-endian, and is accessed aligned by 4
// bytes; an aligned access of 8 bytes is two of 4, the lower first. Any other access reads as ones,
// writes nothing, and is counted. A register that is not listed reads as zero and ignores writes.
const (
	RegMagic            = 0x000 // Magic
	RegVersion          = 0x004 // newest version offered
	RegOldestVersion    = 0x008 // oldest version accepted
	RegSelectVersion    = 0x00c // version chosen by the driver; 0 until a good one was written
	RegFeaturesLo       = 0x010 // features offered, bits 31:0
	RegFeaturesHi       = 0x014 // features offered, bits 63:32
	RegAcceptFeaturesLo = 0x018 // features accepted by the driver, bits 31:0
	RegAcceptFeaturesHi = 0x01c // features accepted by the driver, bits 63:32
	RegStatus           = 0x020 // DeviceStatus bits
	RegError            = 0x024 // ErrorCode of the last register write that was refused; a write clears it
	RegErrorOffset      = 0x028 // offset of that register
	RegReset            = 0x02c // writing ResetMagic resets the device
	RegGeneration       = 0x030 // resets since the device was plugged
	RegContexts         = 0x034 // number of context slots
	RegChannels         = 0x038 // number of channel slots
	RegMinRingEntries   = 0x03c // least entries of a ring
	RegMaxRingEntries   = 0x040 // most entries of a ring
	RegEntryBytes       = 0x044 // size of a ring entry, EntrySize
	RegSharedBytesLo    = 0x048 // size of BAR2, bits 31:0
	RegSharedBytesHi    = 0x04c // size of BAR2, bits 63:32
	RegHeaderBytes      = 0x050 // bytes at the start of BAR2 that are neither for rings nor for windows
	RegVectors          = 0x054 // number of MSI vectors
	RegStateVector      = 0x058 // vector raised on a change of state, NoVector for none
	RegMemoryBytesLo    = 0x05c // GPU memory that this guest may use, bits 31:0
	RegMemoryBytesHi    = 0x060 // GPU memory that this guest may use, bits 63:32
	RegPollWindowNanos  = 0x064 // how long the host polls a ring before it asks for a doorbell
	RegEventDoorbells   = 0x068 // number of event kernel doorbells, 0 without FeatureEventDoorbells
	RegRingsBytes       = 0x06c // bytes after the header for rings, not for windows; since version 1.1
	RegUUID             = 0x070 // four registers: UUIDBytes of the virtual GPU, 0: not told; since version 1.2
	RegLatencyNanos     = 0x080 // within what time a kernel should leave the GPU when told to, 0: it is not told to for other guests; since version 1.3
	RegSuspensionNanos  = 0x084 // within what time the hardware takes a kernel off the GPU by itself, in the midst of its blocks, 0: it does not; since version 1.3
)

// Regions of BAR0 that hold one slot a context or a channel.
const (
	ContextTable    = 0x1000
	ContextSlotSize = 32
	MaxContexts     = 64

	ChannelTable    = 0x2000
	ChannelSlotSize = 64
	MaxChannels     = 256

	// TaskTable has one row for each context: what a context that floats asks for, and where it was
	// placed; since version 1.3.
	TaskTable   = 0x6000
	TaskRowSize = 64

	// DoorbellTable has one register for each channel, in a page of its own.
	DoorbellTable = 0x8000
	DoorbellSize  = 4

	// EventDoorbellTable has one register for each event kernel, by number (EDGE §III.C). A write wakes
	// whoever is to look at the doorbell word in the event area, where nobody polls that; what is
	// written does not matter.
	EventDoorbellTable = 0x9000
	MaxEventDoorbells  = 1024
)

// Registers of a context's slot, relative to it.
const (
	ContextControl    = 0x00 // write a Control: create, destroy, reset
	ContextStatus     = 0x04 // ContextState
	ContextError      = 0x08 // ErrorCode of the last refused control or of the fault
	ContextFlags      = 0x0c // taken at create: ContextFlags bits
	ContextTag        = 0x10 // taken at create: a number of the guest's choosing (a process id), shown to operators
	ContextChannels   = 0x14 // channels open in this context
	ContextGeneration = 0x18 // how often this slot was created or reset
)

// Registers of a channel's slot, relative to it. All but the first three and the last are taken
// when create is written, and may not be changed while the channel is open.
const (
	ChannelControl           = 0x00 // write a Control: create, destroy
	ChannelStatus            = 0x04 // ChannelState
	ChannelError             = 0x08 // ErrorCode of the last refused control or of the failure
	ChannelContext           = 0x0c // the context that the channel belongs to
	ChannelSubmissionLo      = 0x10 // offset of the submission ring in BAR2, bits 31:0
	ChannelSubmissionHi      = 0x14 // offset of the submission ring in BAR2, bits 63:32
	ChannelSubmissionEntries = 0x18 // entries of the submission ring, a power of two
	ChannelVector            = 0x1c // MSI vector for completions, NoVector for none
	ChannelCompletionLo      = 0x20 // offset of the completion ring in BAR2, bits 31:0
	ChannelCompletionHi      = 0x24 // offset of the completion ring in BAR2, bits 63:32
	ChannelCompletionEntries = 0x28 // entries of the completion ring, a power of two
	ChannelPriority          = 0x2c // signed; lower is more urgent, as CUDA's stream priorities
	ChannelFlags             = 0x30 // 0 in this version
	ChannelDoorbells         = 0x34 // doorbells received since create
)

// Registers of a context's row of the task table, relative to it. Those of the request are taken
// when create is written for a context that floats, and may be changed only while the context is
// free.
const (
	TaskMemoryLo  = 0x00 // bytes of GPU memory asked for, bits 31:0
	TaskMemoryHi  = 0x04 // bytes of GPU memory asked for, bits 63:32
	TaskBlocks    = 0x08 // most thread blocks of a launch, 0: not told
	TaskThreads   = 0x0c // most threads of a block, 0: not told
	TaskFlags     = 0x10 // 0 in this version
	TaskStatus    = 0x14 // TaskState
	TaskReason    = 0x18 // WaitReason: why it waits, or waited last
	TaskGPU       = 0x1c // the GPU's number on the host plus 1, 0: it has none
	TaskGrantedLo = 0x20 // bytes of GPU memory granted, bits 31:0
	TaskGrantedHi = 0x24 // bytes of GPU memory granted, bits 63:32
	TaskWaitedLo  = 0x28 // ns from create until it was placed, bits 31:0
	TaskWaitedHi  = 0x2c // ns from create until it was placed, bits 63:32
)

// Values of registers.
const (
	Magic      = 0x55504756 // "VGPU" in memory order
	ResetMagic = 0x54534552 // "REST" in memory order
	NoVector   = 0xffffffff
)

// UUIDBytes is the size of the virtual GPU's UUID, whose bytes are in [RegUUID] in their order.
const UUIDBytes = 16

// ContextSlot returns the offset in BAR0 of register reg of context i.
func ContextSlot(i, reg int) int { return ContextTable + i*ContextSlotSize + reg }

// ChannelSlot returns the offset in BAR0 of register reg of channel i.
func ChannelSlot(i, reg int) int { return ChannelTable + i*ChannelSlotSize + reg }

// TaskRow returns the offset in BAR0 of register reg of the task table's row of context i.
func TaskRow(i, reg int) int { return TaskTable + i*TaskRowSize + reg }

// Doorbell returns the offset in BAR0 of the doorbell of channel i.
func Doorbell(i int) int { return DoorbellTable + i*DoorbellSize }

// A Register describes one register for documentation, traces and tests.
type Register struct {
	Name   string
	Offset int    // in BAR0, or within the slot
	Access string // "ro", "rw" or "wo"
}

// Registers lists the registers of the identity page by offset.
var Registers = []Register{
	{"MAGIC", RegMagic, "ro"},
	{"VERSION", RegVersion, "ro"},
	{"OLDEST_VERSION", RegOldestVersion, "ro"},
	{"SELECT_VERSION", RegSelectVersion, "rw"},
	{"FEATURES_LO", RegFeaturesLo, "ro"},
	{"FEATURES_HI", RegFeaturesHi, "ro"},
	{"ACCEPT_FEATURES_LO", RegAcceptFeaturesLo, "rw"},
	{"ACCEPT_FEATURES_HI", RegAcceptFeaturesHi, "rw"},
	{"STATUS", RegStatus, "ro"},
	{"ERROR", RegError, "rw"},
	{"ERROR_OFFSET", RegErrorOffset, "ro"},
	{"RESET", RegReset, "wo"},
	{"GENERATION", RegGeneration, "ro"},
	{"CONTEXTS", RegContexts, "ro"},
	{"CHANNELS", RegChannels, "ro"},
	{"MIN_RING_ENTRIES", RegMinRingEntries, "ro"},
	{"MAX_RING_ENTRIES", RegMaxRingEntries, "ro"},
	{"ENTRY_BYTES", RegEntryBytes, "ro"},
	{"SHARED_BYTES_LO", RegSharedBytesLo, "ro"},
	{"SHARED_BYTES_HI", RegSharedBytesHi, "ro"},
	{"HEADER_BYTES", RegHeaderBytes, "ro"},
	{"VECTORS", RegVectors, "ro"},
	{"STATE_VECTOR", RegStateVector, "rw"},
	{"MEMORY_BYTES_LO", RegMemoryBytesLo, "ro"},
	{"MEMORY_BYTES_HI", RegMemoryBytesHi, "ro"},
	{"POLL_WINDOW_NANOS", RegPollWindowNanos, "ro"},
	{"EVENT_DOORBELLS", RegEventDoorbells, "ro"},
	{"RINGS_BYTES", RegRingsBytes, "ro"},
	{"UUID", RegUUID, "ro"},
	{"LATENCY_NANOS", RegLatencyNanos, "ro"},
	{"SUSPENSION_NANOS", RegSuspensionNanos, "ro"},
}

// ContextRegisters lists the registers of a context's slot.
var ContextRegisters = []Register{
	{"CONTROL", ContextControl, "wo"},
	{"STATUS", ContextStatus, "ro"},
	{"ERROR", ContextError, "ro"},
	{"FLAGS", ContextFlags, "rw"},
	{"TAG", ContextTag, "rw"},
	{"CHANNELS", ContextChannels, "ro"},
	{"GENERATION", ContextGeneration, "ro"},
}

// ChannelRegisters lists the registers of a channel's slot.
var ChannelRegisters = []Register{
	{"CONTROL", ChannelControl, "wo"},
	{"STATUS", ChannelStatus, "ro"},
	{"ERROR", ChannelError, "ro"},
	{"CONTEXT", ChannelContext, "rw"},
	{"SUBMISSION_LO", ChannelSubmissionLo, "rw"},
	{"SUBMISSION_HI", ChannelSubmissionHi, "rw"},
	{"SUBMISSION_ENTRIES", ChannelSubmissionEntries, "rw"},
	{"VECTOR", ChannelVector, "rw"},
	{"COMPLETION_LO", ChannelCompletionLo, "rw"},
	{"COMPLETION_HI", ChannelCompletionHi, "rw"},
	{"COMPLETION_ENTRIES", ChannelCompletionEntries, "rw"},
	{"PRIORITY", ChannelPriority, "rw"},
	{"FLAGS", ChannelFlags, "rw"},
	{"DOORBELLS", ChannelDoorbells, "ro"},
}

// TaskRegisters lists the registers of a row of the task table.
var TaskRegisters = []Register{
	{"MEMORY_LO", TaskMemoryLo, "rw"},
	{"MEMORY_HI", TaskMemoryHi, "rw"},
	{"BLOCKS", TaskBlocks, "rw"},
	{"THREADS", TaskThreads, "rw"},
	{"FLAGS", TaskFlags, "rw"},
	{"STATUS", TaskStatus, "ro"},
	{"REASON", TaskReason, "ro"},
	{"GPU", TaskGPU, "ro"},
	{"GRANTED_LO", TaskGrantedLo, "ro"},
	{"GRANTED_HI", TaskGrantedHi, "ro"},
	{"WAITED_LO", TaskWaitedLo, "ro"},
	{"WAITED_HI", TaskWaitedHi, "ro"},
}
