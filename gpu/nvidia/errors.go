package nvidia

import (
	"errors"
	"fmt"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
)

// faultKinds maps the driver's errors to the faults that it distinguishes.
var faultKinds = map[cuda.Error]gpu.FaultKind{
	cuda.ErrIllegalAddress:      gpu.FaultAddress,
	cuda.ErrInvalidAddressSpace: gpu.FaultAddress,
	cuda.ErrMisalignedAddress:   gpu.FaultMisaligned,
	cuda.ErrLaunchFailed:        gpu.FaultTrap,
	cuda.ErrAssert:              gpu.FaultAssert,
	cuda.ErrIllegalInstruction:  gpu.FaultInstruction,
	cuda.ErrLaunchTimeout:       gpu.FaultTimeLimit,
	cuda.ErrHardwareStack:       gpu.FaultStack,
	cuda.ErrInvalidPC:           gpu.FaultStack,
}

// errorKinds maps the driver's errors that concern a single call to package gpu's.
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

// meaning adds package gpu's error to an error of the driver, if there is a corresponding one.
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

// poisonOf returns the error of a context whose driver returned the sticky error e: a [gpu.Fault]
// if a kernel can be the cause.
func poisonOf(e cuda.Error, kernel string) error {
	if kind, ok := faultKinds[e]; ok {
		return &gpu.Fault{Kind: kind, Kernel: kernel}
	}
	if e.Lost() {
		return meaning(e)
	}
	return fmt.Errorf("%w: %w", e, gpu.ErrPoisoned)
}
