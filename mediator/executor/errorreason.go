package executor

import (
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

// reasonOf returns why a command failed that ended with a status.
func reasonOf(s abi.Status) ipc.ErrorReason {
	switch s {
	case abi.StatusOutOfMemory, abi.StatusMemoryLimit, abi.StatusTooMany:
		return ipc.ErrorMemory
	case abi.StatusInvalidImage, abi.StatusInvalidPTX, abi.StatusUnsupportedPTX, abi.StatusNoBinary:
		return ipc.ErrorModule
	case abi.StatusCanceled:
		return ipc.ErrorCanceled
	case abi.StatusTimeLimit:
		return ipc.ErrorTimeLimit
	case abi.StatusInternal, abi.StatusECC, abi.StatusContextLost, abi.StatusDeviceLost:
		return ipc.ErrorOther
	}
	if s.Poisons() || s == abi.StatusPreemptState {
		return ipc.ErrorFault
	}
	return ipc.ErrorRequest
}
