// Package rm calls the resource manager (RM) of NVIDIA's kernel driver through the driver's own
// ioctls, for operations that CUDA does not offer: taking a context's channels off the GPU in
// mid-kernel, time slices, the GPU's record of its context switches, and its clock. It needs no
// change to the driver and no library of NVIDIA's.
//
// Objects of the driver are named by handles. A handle is valid on the file (an open control node,
// /dev/nvidiactl) on which its client was made. So there are two ways to act:
//
//   - on a CUDA context, through a descriptor of the same file that its libcuda opened:
//     [FindOwn] finds it among the descriptors of this process, and a process that receives
//     the descriptor may use it too ([NewControl]);
//   - on the GPU as a whole, through a client of this process ([Open]): the clock and the
//     record of context switches ([Client.Events]).
//
// Package abi has the layouts. Package rmtest is a software driver with the same layouts.
package rm

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"vgpud/gpu/nvidia/rm/abi"
)

// Error is a call that the driver refused.
type Error struct {
	// Call describes the call.
	Call string
	// Object is the object of the call.
	Object abi.Handle
	// Err is an [abi.Status], or an errno if the call did not reach the driver.
	Err error
}

// Error returns the call, its object and the driver's answer.
func (e *Error) Error() string {
	return fmt.Sprintf("%s (object %#x): %v", e.Call, uint32(e.Object), e.Err)
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Lost reports whether err means that the GPU is gone until it or the host is reset.
func Lost(err error) bool {
	return errors.Is(err, abi.NV_ERR_GPU_IS_LOST) || errors.Is(err, abi.NV_ERR_RESET_REQUIRED) ||
		errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EIO)
}

// Forbidden reports whether err means that the caller lacks permission.
func Forbidden(err error) bool {
	return errors.Is(err, abi.NV_ERR_INSUFFICIENT_PERMISSIONS) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)
}
