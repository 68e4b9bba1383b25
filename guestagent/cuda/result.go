package cuda

import (
	"context"
	"errors"
	"fmt"

	"vgpud/guestagent/driver"
	"vgpud/guestagent/fatbin"
	"vgpud/mediator/vgpu/abi"
)

// again is the result of a call that goes on with [Driver.Again]. The C part knows it, programs
// don't.
const again Result = 0xffffffff

// Error returns the name of the result, such as CUDA_ERROR_INVALID_VALUE.
func (r Result) Error() string {
	if s := resultNames[r]; s != "" {
		return s
	}
	return fmt.Sprintf("CUresult %d", uint32(r))
}

// resultOnly returns the result of a call that failed with err, where it does not matter whether later
// calls fail likewise.
func resultOnly(err error) Result {
	r, _ := resultOf(err)
	return r
}

// resultOf returns the result of a call that failed with err. Sticky reports whether every later
// call in the context fails likewise.
func resultOf(err error) (r Result, sticky bool) {
	if err == nil {
		return Success, false
	}
	if r, ok := errors.AsType[Result](err); ok {
		return r, false
	}
	if e, ok := errors.AsType[*fatbin.Error](err); ok {
		return Result(e.Code), false
	}
	if e, ok := errors.AsType[*driver.Error](err); ok {
		return Result(e.Status.CUDA()), e.Status.Poisons()
	}
	if s, ok := errors.AsType[abi.Status](err); ok {
		return Result(s.CUDA()), s.Poisons()
	}
	switch {
	case errors.Is(err, driver.ErrGone):
		return ErrorDeviceUnavailable, true
	case errors.Is(err, driver.ErrClosed):
		return ErrorContextIsDestroyed, false
	case errors.Is(err, abi.ErrorLimit):
		return ErrorOutOfMemory, false
	case errors.Is(err, context.DeadlineExceeded):
		return ErrorOutOfMemory, false // only waits for memory have a deadline
	}
	return ErrorUnknown, false
}
