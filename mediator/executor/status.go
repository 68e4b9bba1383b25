package executor

import (
	"errors"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

// faultStatus has the completion status of each kind of fault.
var faultStatus = map[gpu.FaultKind]abi.Status{
	gpu.FaultAddress:     abi.StatusIllegalAddress,
	gpu.FaultMisaligned:  abi.StatusMisalignedAddress,
	gpu.FaultTrap:        abi.StatusTrap,
	gpu.FaultInstruction: abi.StatusIllegalInstruction,
	gpu.FaultTimeLimit:   abi.StatusTimeLimit,
	gpu.FaultStack:       abi.StatusStackOverflow,
	gpu.FaultBarrier:     abi.StatusDeadlock,
	gpu.FaultAssert:      abi.StatusAssert,
}

// errorStatus has the status of each of the GPU's errors, the more specific ones first.
var errorStatus = []struct {
	err    error
	status abi.Status
}{
	{gpu.ErrTimeLimit, abi.StatusTimeLimit},
	{gpu.ErrMemoryLimit, abi.StatusMemoryLimit},
	{gpu.ErrOutOfMemory, abi.StatusOutOfMemory},
	{gpu.ErrInvalidPtr, abi.StatusInvalidAddress},
	{gpu.ErrInvalidCopy, abi.StatusInvalidValue},
	{gpu.ErrInvalidTexture, abi.StatusInvalidValue},
	{gpu.ErrInvalidLimit, abi.StatusInvalidValue},
	{gpu.ErrInvalidModule, abi.StatusInvalidPTX},
	{gpu.ErrUnsupported, abi.StatusNotSupported},
	{gpu.ErrNotFound, abi.StatusNotFound},
	{gpu.ErrInvalidLaunch, abi.StatusLaunchResources},
	{gpu.ErrPoisoned, abi.StatusLaunchFailed},
	{gpu.ErrLost, abi.StatusDeviceLost},
}

// statusOf returns the status of a command that failed with an error of the executor, the decoder
// or the GPU.
func statusOf(err error) abi.Status {
	if err == nil {
		return abi.StatusOK
	}
	if s, ok := errors.AsType[abi.Status](err); ok {
		return s
	}
	if f, ok := errors.AsType[*gpu.Fault](err); ok {
		if s, ok := faultStatus[f.Kind]; ok {
			return s
		}
		return abi.StatusLaunchFailed
	}
	for _, e := range errorStatus {
		if errors.Is(err, e.err) {
			return e.status
		}
	}
	return abi.StatusInternal
}

// errorCodeOf returns the code, for the context's state word, of the status that poisoned it.
func errorCodeOf(s abi.Status) abi.ErrorCode {
	switch s {
	case abi.StatusTimeLimit:
		return abi.ErrorTimeLimit
	case abi.StatusDeviceLost:
		return abi.ErrorDeviceLost
	default:
		return abi.ErrorGPUFault
	}
}

// guestText returns what a guest may read of an error: all of it if the guest caused it, and only
// its kind if it concerns the host.
func guestText(err error) string {
	if f, ok := errors.AsType[*gpu.Fault](err); ok {
		return f.Error()
	}
	if errors.Is(err, gpu.ErrFull) {
		return gpu.ErrFull.Error() // without the other guests
	}
	for _, own := range []error{gpu.ErrInvalidModule, gpu.ErrUnsupported, gpu.ErrOutOfMemory, gpu.ErrNotFound, gpu.ErrInvalidLaunch} {
		if errors.Is(err, own) {
			return err.Error()
		}
	}
	return statusOf(err).String()
}
