package abi

// Command is the command of a control call ([NVOS54_PARAMETERS]). Its upper half is the class that
// has the command.
type Command uint32

// Commands, with the header of each.
const (
	// ctrl0000gpu.h
	NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS Command = 0x201
	NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2   Command = 0x205
	NV0000_CTRL_CMD_GPU_GET_PROBED_IDS   Command = 0x214
	NV0000_CTRL_CMD_GPU_ATTACH_IDS       Command = 0x215
	NV0000_CTRL_CMD_GPU_GET_PCI_INFO     Command = 0x21b
	// ctrl0000client.h
	NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO Command = 0xd02
	// ctrl2080tmr.h
	NV2080_CTRL_CMD_TIMER_GET_TIME Command = 0x20800403
	// ctrl2080fifo.h
	NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS Command = 0x2080110b
	// ctrl2080gr.h
	NV2080_CTRL_CMD_GR_FECS_BIND_EVTBUF_FOR_UID_V2 Command = 0x20801238
	// ctrl90cd.h
	NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS Command = 0x90cd0101
	NV_EVENT_BUFFER_CTRL_CMD_UPDATE_GET    Command = 0x90cd0102
	NV_EVENT_BUFFER_CTRL_CMD_FLUSH         Command = 0x90cd0104 // without parameters
	// ctrla06c.h
	NVA06C_CTRL_CMD_SET_TIMESLICE Command = 0xa06c0103
	NVA06C_CTRL_CMD_GET_TIMESLICE Command = 0xa06c0104
	NVA06C_CTRL_CMD_PREEMPT       Command = 0xa06c0105
	NVA06C_CTRL_CMD_GET_INFO      Command = 0xa06c0106
)

// NV_MAX_DEVICES is the greatest number of GPUs (nvlimits.h).
const NV_MAX_DEVICES = 32

// Values for no GPU and for all GPUs (ctrl0000gpu.h).
const (
	NV0000_CTRL_GPU_INVALID_ID            = 0xffffffff
	NV0000_CTRL_GPU_ATTACH_ALL_PROBED_IDS = 0xffff
)

// NV0000_CTRL_GPU_GET_ATTACHED_IDS_PARAMS are the parameters of a command that every client has, so
// its status shows whether a client belongs to the caller.
type NV0000_CTRL_GPU_GET_ATTACHED_IDS_PARAMS struct{ IDs [NV_MAX_DEVICES]uint32 }

// NV0000_CTRL_GPU_GET_PROBED_IDS_PARAMS lists the GPUs that the driver found.
type NV0000_CTRL_GPU_GET_PROBED_IDS_PARAMS struct{ IDs, Excluded, Flags [NV_MAX_DEVICES]uint32 }

// NV0000_CTRL_GPU_ATTACH_IDS_PARAMS names GPUs to attach.
type NV0000_CTRL_GPU_ATTACH_IDS_PARAMS struct {
	IDs    [NV_MAX_DEVICES]uint32
	Failed uint32
}

// NV0000_CTRL_GPU_GET_PCI_INFO_PARAMS is the PCI address of a GPU.
type NV0000_CTRL_GPU_GET_PCI_INFO_PARAMS struct {
	ID, Domain uint32
	Bus, Slot  uint16
}

// NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS describes a GPU. Device is the number that
// [NV0080_ALLOC_PARAMETERS] takes.
type NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS struct {
	ID, Flags, Device, Subdevice, SLI, Board, Instance uint32
	NUMA                                               int32
}

// NV0000_CTRL_CLIENT_GET_HANDLE_INFO_PARAMS asks for the parent or the class of an object.
type NV0000_CTRL_CLIENT_GET_HANDLE_INFO_PARAMS struct {
	Object Handle
	Index  uint32
	Result uint64
}

// Values of Index in [NV0000_CTRL_CLIENT_GET_HANDLE_INFO_PARAMS].
const (
	NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO_INDEX_PARENT  = 1
	NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO_INDEX_CLASSID = 2
)

// NV2080_CTRL_TIMER_GET_TIME_PARAMS is the GPU's clock.
type NV2080_CTRL_TIMER_GET_TIME_PARAMS struct{ Nanoseconds uint64 }

// NV2080_CTRL_FIFO_DISABLE_CHANNELS_MAX_ENTRIES is the greatest number of channels in one call.
const NV2080_CTRL_FIFO_DISABLE_CHANNELS_MAX_ENTRIES = 64

// NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS names channels to take off the hardware or to put back.
// The driver counts disables for each channel and keeps them after the caller ends.
type NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS struct {
	Disable        bool
	_              [3]byte
	Count          uint32
	OnlyScheduling bool // true lets running work go on
	RewindGpPut    bool
	_              [6]byte
	Event          uint64 // must be 0 for user space
	Clients        [NV2080_CTRL_FIFO_DISABLE_CHANNELS_MAX_ENTRIES]Handle
	Channels       [NV2080_CTRL_FIFO_DISABLE_CHANNELS_MAX_ENTRIES]Handle
}

// NV2080_CTRL_GR_FECS_BIND_EVTBUF_FOR_UID_V2_PARAMS binds an event buffer to the record of context
// switches.
type NV2080_CTRL_GR_FECS_BIND_EVTBUF_FOR_UID_V2_PARAMS struct {
	Buffer     Handle
	RecordSize uint32
	Detail     uint32 // 0: everything that the caller may see
	Filter     uint32
	AllUsers   bool
	_          [3]byte
	Reason     NV2080_CTRL_GR_FECS_BIND_EVTBUF_REASON_CODE
}

// NV2080_CTRL_GR_FECS_BIND_EVTBUF_REASON_CODE is the reason why binding failed.
type NV2080_CTRL_GR_FECS_BIND_EVTBUF_REASON_CODE uint32

var bindReasons = [...]string{
	1: "the GPU is too old",
	2: "not enabled on this GPU",
	3: "not enabled",
	4: "it needs an administrator",
	5: "it needs CAP_SYS_ADMIN",
}

// String returns the reason in words, or "" for none.
func (r NV2080_CTRL_GR_FECS_BIND_EVTBUF_REASON_CODE) String() string {
	if int(r) < len(bindReasons) {
		return bindReasons[r]
	}
	return "unknown reason"
}

// NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS_PARAMS starts or stops the record.
type NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS_PARAMS struct {
	Enable bool
	_      [3]byte
	Policy uint32
}

// NV_EVENT_BUFFER_FLAG_OVERFLOW_POLICY_KEEP_OLDEST makes a full buffer drop new records.
const NV_EVENT_BUFFER_FLAG_OVERFLOW_POLICY_KEEP_OLDEST = 1

// NV_EVENT_BUFFER_CTRL_CMD_UPDATE_GET_PARAMS moves the read index.
type NV_EVENT_BUFFER_CTRL_CMD_UPDATE_GET_PARAMS struct{ Record, Vardata uint32 }

// NVA06C_CTRL_TIMESLICE_PARAMS is the time slice of a channel group.
type NVA06C_CTRL_TIMESLICE_PARAMS struct{ Microseconds uint64 }

// NVA06C_CTRL_PREEMPT_PARAMS takes a channel group off the engine.
type NVA06C_CTRL_PREEMPT_PARAMS struct {
	Wait, ManualTimeout bool
	_                   [2]byte
	TimeoutMicros       uint32
}

// NVA06C_CTRL_GET_INFO_PARAMS is the hardware ID of a channel group.
type NVA06C_CTRL_GET_INFO_PARAMS struct{ ID uint32 }
