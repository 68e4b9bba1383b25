package executor

import (
	"errors"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

// faultStatus is the status that each kind of fault completes with.
var faultStatus = map[gpu.FaultKind]abi.Status{
	gpu.FaultAddress:     abi.StatusIllegalAddress,
	gpu.FaultMisaligned:  abi.StatusMisalignedAddress,
	gpu.FaultTrap:        abi.StatusTrap,
	gpu.FaultInstruction: abi.StatusIllegalInstruction,
	gpu.FaultTimeLimit:   abi.StatusTimeLimit,
	gpu.FaultStack:       abi.StatusStackOverflow,
	gpu.FaultBarrier:     abi.StatusDeadlock,
}

// errorStatus is the status of each of the GPU's errors, the more special
// first.
var errorStatus = []struct {
	err    error
	status abi.Status
}{
	{gpu.ErrTimeLimit, abi.StatusTimeLimit},
	{gpu.ErrMemoryLimit, abi.StatusMemoryLimit},
	{gpu.ErrOutOfMemory, abi.StatusOutOfMemory},
	{gpu.ErrInvalidPtr, abi.StatusInvalidAddress},
	{gpu.ErrInvalidCopy, abi.StatusInvalidValue},
	{gpu.ErrInvalidModule, abi.StatusInvalidPTX},
	{gpu.ErrUnsupported, abi.StatusNotSupported},
	{gpu.ErrNotFound, abi.StatusNotFound},
	{gpu.ErrInvalidLaunch, abi.StatusLaunchResources},
	{gpu.ErrPoisoned, abi.StatusLaunchFailed},
	{gpu.ErrLost, abi.StatusDeviceLost},
}

// statusOf is the status that a command ends with for an error of its own, the
// decoder's or the GPU's.
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

// errorCodeOf is what a context's state word says of the status that poisoned
// it.
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

// guestText is what a guest may read of an error: all of it where it is about
// the guest's own doing, and no more than its kind where it is about the host.
func guestText(err error) string {
	if f, ok := errors.AsType[*gpu.Fault](err); ok {
		return f.Error()
	}
	if errors.Is(err, gpu.ErrFull) {
		return gpu.ErrFull.Error() // and not who else is there
	}
	for _, own := range []error{gpu.ErrInvalidModule, gpu.ErrUnsupported, gpu.ErrOutOfMemory, gpu.ErrNotFound, gpu.ErrInvalidLaunch} {
		if errors.Is(err, own) {
			return err.Error()
		}
	}
	return statusOf(err).String()
}
