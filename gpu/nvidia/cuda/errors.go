package cuda

import "fmt"

// Error is a CUresult other than CUDA_SUCCESS.
type Error uint32

// Results that gpu/nvidia distinguishes.
const (
	ErrInvalidValue        Error = 1
	ErrOutOfMemory         Error = 2
	ErrNotInitialized      Error = 3
	ErrDeinitialized       Error = 4
	ErrDeviceUnavailable   Error = 46
	ErrNoDevice            Error = 100
	ErrInvalidDevice       Error = 101
	ErrInvalidImage        Error = 200
	ErrInvalidContext      Error = 201
	ErrNoBinaryForGPU      Error = 209
	ErrECCUncorrectable    Error = 214
	ErrUnsupportedLimit    Error = 215
	ErrInvalidPTX          Error = 218
	ErrNVLinkUncorrectable Error = 220
	ErrUnsupportedPTX      Error = 222
	ErrContained           Error = 226
	ErrInvalidSource       Error = 300
	ErrSharedObjectSymbol  Error = 302
	ErrInvalidHandle       Error = 400
	ErrNotFound            Error = 500
	ErrNotReady            Error = 600
	ErrIllegalAddress      Error = 700
	ErrLaunchResources     Error = 701
	ErrLaunchTimeout       Error = 702
	ErrContextDestroyed    Error = 709
	ErrAssert              Error = 710
	ErrAlreadyRegistered   Error = 712
	ErrHardwareStack       Error = 714
	ErrIllegalInstruction  Error = 715
	ErrMisalignedAddress   Error = 716
	ErrInvalidAddressSpace Error = 717
	ErrInvalidPC           Error = 718
	ErrLaunchFailed        Error = 719
	ErrCooperativeTooLarge Error = 720
	ErrNotPermitted        Error = 800
	ErrNotSupported        Error = 801
	ErrSystemNotReady      Error = 802
	ErrDriverMismatch      Error = 803
	ErrUnknown             Error = 999
)

// errorNames are cuda.h's names, without CUDA_ERROR_.
var errorNames = map[Error]string{
	ErrInvalidValue: "INVALID_VALUE", ErrOutOfMemory: "OUT_OF_MEMORY", ErrNotInitialized: "NOT_INITIALIZED",
	ErrDeinitialized: "DEINITIALIZED", ErrDeviceUnavailable: "DEVICE_UNAVAILABLE", ErrNoDevice: "NO_DEVICE",
	ErrInvalidDevice: "INVALID_DEVICE", ErrInvalidImage: "INVALID_IMAGE", ErrInvalidContext: "INVALID_CONTEXT",
	ErrNoBinaryForGPU: "NO_BINARY_FOR_GPU", ErrECCUncorrectable: "ECC_UNCORRECTABLE", ErrUnsupportedLimit: "UNSUPPORTED_LIMIT", ErrInvalidPTX: "INVALID_PTX",
	ErrNVLinkUncorrectable: "NVLINK_UNCORRECTABLE", ErrContained: "CONTAINED",
	ErrUnsupportedPTX: "UNSUPPORTED_PTX_VERSION", ErrInvalidSource: "INVALID_SOURCE",
	ErrSharedObjectSymbol: "SHARED_OBJECT_SYMBOL_NOT_FOUND", ErrInvalidHandle: "INVALID_HANDLE", ErrNotFound: "NOT_FOUND",
	ErrNotReady: "NOT_READY", ErrIllegalAddress: "ILLEGAL_ADDRESS", ErrLaunchResources: "LAUNCH_OUT_OF_RESOURCES",
	ErrLaunchTimeout: "LAUNCH_TIMEOUT", ErrContextDestroyed: "CONTEXT_IS_DESTROYED", ErrAssert: "ASSERT",
	ErrAlreadyRegistered: "HOST_MEMORY_ALREADY_REGISTERED", ErrHardwareStack: "HARDWARE_STACK_ERROR",
	ErrIllegalInstruction: "ILLEGAL_INSTRUCTION", ErrMisalignedAddress: "MISALIGNED_ADDRESS",
	ErrInvalidAddressSpace: "INVALID_ADDRESS_SPACE", ErrInvalidPC: "INVALID_PC", ErrLaunchFailed: "LAUNCH_FAILED",
	ErrCooperativeTooLarge: "COOPERATIVE_LAUNCH_TOO_LARGE", ErrNotPermitted: "NOT_PERMITTED",
	ErrNotSupported: "NOT_SUPPORTED", ErrSystemNotReady: "SYSTEM_NOT_READY",
	ErrDriverMismatch: "SYSTEM_DRIVER_MISMATCH", ErrUnknown: "UNKNOWN",
}

// Name returns the driver's name of the error, or its number if the name is not known here.
func (e Error) Name() string {
	if n, ok := errorNames[e]; ok {
		return "CUDA_ERROR_" + n
	}
	return fmt.Sprintf("CUDA_ERROR_%d", uint32(e))
}

// Error returns the name and the number, which CUDA's users know better.
func (e Error) Error() string { return fmt.Sprintf("%s (%d)", e.Name(), uint32(e)) }

// Sticky reports whether the error ends the context in which it occurs: every later call in it, and
// in other contexts of the process, returns the same error.
func (e Error) Sticky() bool {
	switch e {
	case ErrECCUncorrectable, ErrNVLinkUncorrectable, ErrContained, ErrIllegalAddress, ErrLaunchTimeout, ErrAssert, ErrHardwareStack, ErrIllegalInstruction,
		ErrMisalignedAddress, ErrInvalidAddressSpace, ErrInvalidPC, ErrLaunchFailed, ErrContextDestroyed, ErrUnknown:
		return true
	}
	return e.Lost()
}

// Lost reports whether the error means that the GPU itself is gone.
func (e Error) Lost() bool {
	switch e {
	case ErrDeinitialized, ErrDeviceUnavailable, ErrNoDevice:
		return true
	}
	return false
}

// result converts a CUresult to an error.
func result(r Error) error {
	if r == 0 {
		return nil
	}
	return r
}
