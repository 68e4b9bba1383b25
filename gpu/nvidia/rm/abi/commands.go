package abi

// Command is what a [Control] asks; its upper half is the class that knows it.
type Command uint32

// Commands, with the header of each.
const (
	CmdGetAttachedIDs Command = 0x201      // NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS, ctrl0000gpu.h: AttachedIDs
	CmdGetIDInfo      Command = 0x205      // NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2: IDInfo
	CmdGetProbedIDs   Command = 0x214      // NV0000_CTRL_CMD_GPU_GET_PROBED_IDS: ProbedIDs
	CmdAttachIDs      Command = 0x215      // NV0000_CTRL_CMD_GPU_ATTACH_IDS: AttachIDs
	CmdGetPCIInfo     Command = 0x21b      // NV0000_CTRL_CMD_GPU_GET_PCI_INFO: PCIInfo
	CmdGetHandleInfo  Command = 0xd02      // NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO, ctrl0000client.h: HandleInfo
	CmdGetTime        Command = 0x20800403 // NV2080_CTRL_CMD_TIMER_GET_TIME, ctrl2080tmr.h: Time
	CmdDisable        Command = 0x2080110b // NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS, ctrl2080fifo.h: DisableChannels
	CmdBindEvents     Command = 0x20801238 // NV2080_CTRL_CMD_GR_FECS_BIND_EVTBUF_FOR_UID_V2, ctrl2080gr.h: BindEvents
	CmdEnableEvents   Command = 0x90cd0101 // NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS, ctrl90cd.h: EnableEvents
	CmdUpdateGet      Command = 0x90cd0102 // NV_EVENT_BUFFER_CTRL_CMD_UPDATE_GET: UpdateGet
	CmdFlush          Command = 0x90cd0104 // NV_EVENT_BUFFER_CTRL_CMD_FLUSH: no parameters
	CmdSetTimeslice   Command = 0xa06c0103 // NVA06C_CTRL_CMD_SET_TIMESLICE, ctrla06c.h: Timeslice
	CmdGetTimeslice   Command = 0xa06c0104 // NVA06C_CTRL_CMD_GET_TIMESLICE: Timeslice
	CmdPreempt        Command = 0xa06c0105 // NVA06C_CTRL_CMD_PREEMPT: Preempt
	CmdGetGroupInfo   Command = 0xa06c0106 // NVA06C_CTRL_CMD_GET_INFO: GroupInfo
)

// MaxGPUs is NV_MAX_DEVICES (nvlimits.h).
const MaxGPUs = 32

// IDs of GPUs that are none or all.
const (
	InvalidID   = 0xffffffff // NV0000_CTRL_GPU_INVALID_ID
	AllProbedID = 0xffff     // NV0000_CTRL_GPU_ATTACH_ALL_PROBED_IDS
)

// AttachedIDs is NV0000_CTRL_GPU_GET_ATTACHED_IDS_PARAMS: every client knows the
// command, so it tells whether a client is the caller's.
type AttachedIDs struct{ IDs [MaxGPUs]uint32 }

// ProbedIDs is NV0000_CTRL_GPU_GET_PROBED_IDS_PARAMS.
type ProbedIDs struct{ IDs, Excluded, Flags [MaxGPUs]uint32 }

// AttachIDs is NV0000_CTRL_GPU_ATTACH_IDS_PARAMS.
type AttachIDs struct {
	IDs    [MaxGPUs]uint32
	Failed uint32
}

// PCIInfo is NV0000_CTRL_GPU_GET_PCI_INFO_PARAMS.
type PCIInfo struct {
	ID, Domain uint32
	Bus, Slot  uint16
}

// IDInfo is NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS: Device is what [DeviceAlloc] wants.
type IDInfo struct {
	ID, Flags, Device, Subdevice, SLI, Board, Instance uint32
	NUMA                                               int32
}

// HandleInfo is NV0000_CTRL_CLIENT_GET_HANDLE_INFO_PARAMS.
type HandleInfo struct {
	Object Handle
	Index  uint32
	Result uint64
}

// What [HandleInfo] can ask for.
const (
	InfoParent = 1
	InfoClass  = 2
)

// Time is NV2080_CTRL_TIMER_GET_TIME_PARAMS.
type Time struct{ Nanoseconds uint64 }

// MaxDisable is NV2080_CTRL_FIFO_DISABLE_CHANNELS_MAX_ENTRIES.
const MaxDisable = 64

// DisableChannels is NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS. The driver counts
// disables for each channel and keeps them when the caller ends.
type DisableChannels struct {
	Disable        bool
	_              [3]byte
	Count          uint32
	OnlyScheduling bool // true leaves what runs on the GPU
	RewindGpPut    bool
	_              [6]byte
	Event          uint64 // must be 0 for user space
	Clients        [MaxDisable]Handle
	Channels       [MaxDisable]Handle
}

// BindEvents is NV2080_CTRL_GR_FECS_BIND_EVTBUF_FOR_UID_V2_PARAMS.
type BindEvents struct {
	Buffer     Handle
	RecordSize uint32
	Detail     uint32 // 0: all that the caller may see
	Filter     uint32
	AllUsers   bool
	_          [3]byte
	Reason     BindReason
}

// BindReason is why binding failed (NV2080_CTRL_GR_FECS_BIND_EVTBUF_REASON_CODE).
type BindReason uint32

var bindReasons = [...]string{
	1: "the GPU is too old",
	2: "not enabled on this GPU",
	3: "not enabled",
	4: "it needs an administrator",
	5: "it needs CAP_SYS_ADMIN",
}

// String is the reason in words, empty for none.
func (r BindReason) String() string {
	if int(r) < len(bindReasons) {
		return bindReasons[r]
	}
	return "unknown reason"
}

// EnableEvents is NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS_PARAMS.
type EnableEvents struct {
	Enable bool
	_      [3]byte
	Policy uint32
}

// KeepOldest is NV_EVENT_BUFFER_FLAG_OVERFLOW_POLICY_KEEP_OLDEST: a full buffer takes
// no more.
const KeepOldest = 1

// UpdateGet is NV_EVENT_BUFFER_CTRL_CMD_UPDATE_GET_PARAMS.
type UpdateGet struct{ Record, Vardata uint32 }

// Timeslice is NVA06C_CTRL_TIMESLICE_PARAMS.
type Timeslice struct{ Microseconds uint64 }

// Preempt is NVA06C_CTRL_PREEMPT_PARAMS.
type Preempt struct {
	Wait, ManualTimeout bool
	_                   [2]byte
	TimeoutMicros       uint32
}

// GroupInfo is NVA06C_CTRL_GET_INFO_PARAMS.
type GroupInfo struct{ ID uint32 }
