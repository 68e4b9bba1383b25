package nvidia

import (
	"errors"
	"fmt"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
)

// faultKinds are the faults that the driver tells apart.
var faultKinds = map[cuda.Error]gpu.FaultKind{
	cuda.ErrIllegalAddress:      gpu.FaultAddress,
	cuda.ErrInvalidAddressSpace: gpu.FaultAddress,
	cuda.ErrMisalignedAddress:   gpu.FaultMisaligned,
	cuda.ErrLaunchFailed:        gpu.FaultTrap,
	cuda.ErrAssert:              gpu.FaultTrap,
	cuda.ErrIllegalInstruction:  gpu.FaultInstruction,
	cuda.ErrLaunchTimeout:       gpu.FaultTimeLimit,
	cuda.ErrHardwareStack:       gpu.FaultStack,
	cuda.ErrInvalidPC:           gpu.FaultStack,
}

// errorKinds are package gpu's errors for the driver's that concern one call.
var errorKinds = map[cuda.Error]error{
	cuda.ErrOutOfMemory:         gpu.ErrOutOfMemory,
	cuda.ErrInvalidPTX:          gpu.ErrInvalidModule,
	cuda.ErrInvalidSource:       gpu.ErrInvalidModule,
	cuda.ErrInvalidImage:        gpu.ErrInvalidModule,
	cuda.ErrSharedObjectSymbol:  gpu.ErrInvalidModule,
	cuda.ErrUnsupportedPTX:      gpu.ErrUnsupported,
	cuda.ErrNoBinaryForGPU:      gpu.ErrUnsupported,
	cuda.ErrNotSupported:        gpu.ErrUnsupported,
	cuda.ErrCooperativeTooLarge: gpu.ErrInvalidLaunch,
	cuda.ErrLaunchResources:     gpu.ErrInvalidLaunch,
	cuda.ErrNotFound:            gpu.ErrNotFound,
}

// meaning is an error of the driver's with package gpu's for it, where it has one.
func meaning(err error) error {
	e, ok := errors.AsType[cuda.Error](err)
	if !ok {
		return err
	}
	if e.Lost() {
		return fmt.Errorf("%w: %w", err, gpu.ErrLost)
	}
	if kind := errorKinds[e]; kind != nil {
		return fmt.Errorf("%w: %w", err, kind)
	}
	return err
}

// poisonOf is what poisons a context whose driver answered a sticky error: a
// [gpu.Fault] where a kernel can be the cause.
func poisonOf(e cuda.Error, kernel string) error {
	if kind, ok := faultKinds[e]; ok {
		return &gpu.Fault{Kind: kind, Kernel: kernel}
	}
	if e.Lost() {
		return meaning(e)
	}
	return fmt.Errorf("%w: %w", e, gpu.ErrPoisoned)
}
