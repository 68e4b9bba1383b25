package abi

import "fmt"

// Status is the result of a command. It is an error for code that passes it on; [StatusOK] is never
// returned as one.
type Status uint16

// The status codes. After a code of the first group the channel and the context go on as if the
// command had not been sent. The second group is for kernels that could not start or finish. The
// third poisons the context: every later command of the context fails with the same code until it
// is reset.
const (
	StatusOK                 Status = 0
	StatusMalformed          Status = 1  // unknown command, reserved bits set, or impossible fields
	StatusUnsupportedVersion Status = 2  // the entry's version is not the one negotiated
	StatusNotSupported       Status = 3  // a command or feature that this device does not have
	StatusInvalidValue       Status = 4  // an argument out of range
	StatusInvalidHandle      Status = 5  // no such module, function, event or event kernel in this context
	StatusInvalidWindow      Status = 6  // a window outside the staging area
	StatusInvalidAddress     Status = 7  // a range of GPU memory that this context does not own
	StatusNotFound           Status = 8  // no symbol of that name
	StatusOutOfMemory        Status = 9  // the GPU has no more memory
	StatusMemoryLimit        Status = 10 // the guest's memory limit
	StatusTooMany            Status = 11 // the guest's limit of handles of this kind
	StatusInvalidImage       Status = 12 // not a module
	StatusInvalidPTX         Status = 13 // PTX that does not parse or link; the log says where
	StatusUnsupportedPTX     Status = 14 // an instruction or PTX version that this GPU does not have; the log names it
	StatusNoBinary           Status = 15 // machine code for another GPU
	StatusNotReady           Status = 16 // an event that was recorded and is not reached yet
	StatusCanceled           Status = 17 // the channel was closed or its context reset before it ran
	StatusInternal           Status = 18 // the host failed

	StatusLaunchResources  Status = 32 // more registers, threads or shared memory than the GPU has
	StatusCooperativeLarge Status = 33 // a cooperative grid that does not fit the GPU at once
	StatusInvalidCluster   Status = 34 // cluster dimensions that the GPU cannot place
	StatusPreemptState     Status = 35 // a preemptible launch left an impossible control block

	StatusIllegalAddress     Status = 64 // a kernel used an address that it does not own
	StatusMisalignedAddress  Status = 65 // a kernel's access was not aligned
	StatusIllegalInstruction Status = 66
	StatusInvalidSpace       Status = 67 // an access to the wrong state space
	StatusInvalidPC          Status = 68
	StatusStackOverflow      Status = 69
	StatusAssert             Status = 70 // a device-side assertion
	StatusTrap               Status = 71 // a kernel executed trap
	StatusDeadlock           Status = 72 // no thread of a block can go on
	StatusTimeLimit          Status = 73 // a kernel ran past the configured limit and was ended
	StatusLaunchFailed       Status = 74 // a fault that the GPU does not describe
	StatusECC                Status = 75 // uncorrectable memory error
	StatusContextLost        Status = 76 // the context's executor died
	StatusDeviceLost         Status = 77 // the physical GPU is gone
)

type statusInfo struct {
	status Status
	name   string
	cuda   int // the CUresult that a CUDA program is given
	text   string
}

// statuses describes the status codes. CUDA's numbers are those of the driver API's CUresult.
var statuses = []statusInfo{
	{StatusOK, "OK", 0, "success"},
	{StatusMalformed, "MALFORMED", 1, "malformed command"},
	{StatusUnsupportedVersion, "UNSUPPORTED_VERSION", 36, "entry version not negotiated"},
	{StatusNotSupported, "NOT_SUPPORTED", 801, "not supported by this device"},
	{StatusInvalidValue, "INVALID_VALUE", 1, "invalid argument"},
	{StatusInvalidHandle, "INVALID_HANDLE", 400, "invalid handle"},
	{StatusInvalidWindow, "INVALID_WINDOW", 1, "window outside the staging area"},
	{StatusInvalidAddress, "INVALID_ADDRESS", 1, "GPU memory range not owned by the context"},
	{StatusNotFound, "NOT_FOUND", 500, "symbol not found"},
	{StatusOutOfMemory, "OUT_OF_MEMORY", 2, "out of GPU memory"},
	{StatusMemoryLimit, "MEMORY_LIMIT", 2, "the guest's GPU memory limit is reached"},
	{StatusTooMany, "TOO_MANY", 2, "too many handles"},
	{StatusInvalidImage, "INVALID_IMAGE", 200, "not a module image"},
	{StatusInvalidPTX, "INVALID_PTX", 218, "PTX does not parse or link"},
	{StatusUnsupportedPTX, "UNSUPPORTED_PTX", 222, "PTX uses what this GPU does not have"},
	{StatusNoBinary, "NO_BINARY", 209, "no machine code for this GPU"},
	{StatusNotReady, "NOT_READY", 600, "not ready"},
	{StatusCanceled, "CANCELED", 709, "canceled by close or reset"},
	{StatusInternal, "INTERNAL", 999, "internal error of the host"},
	{StatusLaunchResources, "LAUNCH_RESOURCES", 701, "launch needs more resources than the GPU has"},
	{StatusCooperativeLarge, "COOPERATIVE_LARGE", 720, "cooperative launch too large"},
	{StatusInvalidCluster, "INVALID_CLUSTER", 912, "invalid cluster size"},
	{StatusPreemptState, "PREEMPT_STATE", 719, "a preemptible launch's control block was overwritten"},
	{StatusIllegalAddress, "ILLEGAL_ADDRESS", 700, "illegal address"},
	{StatusMisalignedAddress, "MISALIGNED_ADDRESS", 716, "misaligned address"},
	{StatusIllegalInstruction, "ILLEGAL_INSTRUCTION", 715, "illegal instruction"},
	{StatusInvalidSpace, "INVALID_SPACE", 717, "invalid address space"},
	{StatusInvalidPC, "INVALID_PC", 718, "invalid program counter"},
	{StatusStackOverflow, "STACK_OVERFLOW", 714, "stack overflow"},
	{StatusAssert, "ASSERT", 710, "device-side assertion"},
	{StatusTrap, "TRAP", 719, "trap"},
	{StatusDeadlock, "DEADLOCK", 719, "deadlock in a kernel"},
	{StatusTimeLimit, "TIME_LIMIT", 702, "kernel ran past the time limit"},
	{StatusLaunchFailed, "LAUNCH_FAILED", 719, "launch failed"},
	{StatusECC, "ECC", 214, "uncorrectable memory error"},
	{StatusContextLost, "CONTEXT_LOST", 719, "the context's executor died"},
	{StatusDeviceLost, "DEVICE_LOST", 46, "the GPU is gone"},
}

var statusByCode = func() (t [128]*statusInfo) {
	for i := range statuses {
		t[statuses[i].status] = &statuses[i]
	}
	return t
}()

func (s Status) info() *statusInfo {
	if int(s) < len(statusByCode) {
		return statusByCode[s]
	}
	return nil
}

// Name returns the code's name in docs/device.md, such as "ILLEGAL_ADDRESS".
func (s Status) Name() string {
	if i := s.info(); i != nil {
		return i.name
	}
	return fmt.Sprintf("STATUS_%d", uint16(s))
}

// String returns the code's text.
func (s Status) String() string {
	if i := s.info(); i != nil {
		return i.text
	}
	return fmt.Sprintf("status %d", uint16(s))
}

// Error makes a Status an error.
func (s Status) Error() string { return s.String() }

// CUDA returns the CUresult that a CUDA program is given for this status, 999 (CUDA_ERROR_UNKNOWN)
// for a code of a newer version.
func (s Status) CUDA() int {
	if i := s.info(); i != nil {
		return i.cuda
	}
	return 999
}

// Poisons reports whether the context fails with this status from now on, until it is reset.
func (s Status) Poisons() bool { return s >= StatusIllegalAddress }
