package executor

import (
	"testing"

	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

// TestErrorReasons: each status has the reason that its group in the device's description suggests.
func TestErrorReasons(t *testing.T) {
	for want, all := range map[ipc.ErrorReason][]abi.Status{
		ipc.ErrorRequest: {
			abi.StatusMalformed, abi.StatusUnsupportedVersion, abi.StatusNotSupported, abi.StatusInvalidValue, abi.StatusInvalidHandle, abi.StatusInvalidWindow,
			abi.StatusInvalidAddress, abi.StatusNotFound, abi.StatusNotReady, abi.StatusLaunchResources, abi.StatusCooperativeLarge, abi.StatusInvalidCluster,
		},
		ipc.ErrorMemory: {abi.StatusOutOfMemory, abi.StatusMemoryLimit, abi.StatusTooMany},
		ipc.ErrorModule: {abi.StatusInvalidImage, abi.StatusInvalidPTX, abi.StatusUnsupportedPTX, abi.StatusNoBinary},
		ipc.ErrorFault: {
			abi.StatusPreemptState, abi.StatusIllegalAddress, abi.StatusMisalignedAddress, abi.StatusIllegalInstruction, abi.StatusInvalidSpace,
			abi.StatusInvalidPC, abi.StatusStackOverflow, abi.StatusAssert, abi.StatusTrap, abi.StatusDeadlock, abi.StatusLaunchFailed,
		},
		ipc.ErrorTimeLimit: {abi.StatusTimeLimit},
		ipc.ErrorCanceled:  {abi.StatusCanceled},
		ipc.ErrorOther:     {abi.StatusInternal, abi.StatusECC, abi.StatusContextLost, abi.StatusDeviceLost},
	} {
		for _, s := range all {
			if got := reasonOf(s); got != want {
				t.Errorf("%s: reason %d, want %d", s.Name(), got, want)
			}
		}
	}
}
