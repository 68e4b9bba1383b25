// Package rm talks to the resource manager (RM) of NVIDIA's kernel driver by its own
// ioctls, for what CUDA has no calls for: taking a context's channels off the GPU in
// mid-kernel, time slices, the GPU's record of its context switches, and its clock. It
// needs no change to the driver and no library of NVIDIA's.
//
// Objects of the driver are named by handles, which belong to the file (an open control
// node, /dev/nvidiactl) that their client was made on. So there are two ways to act:
//
//   - on a CUDA context, through a descriptor of the very file that its libcuda opened:
//     [FindOwn] finds it among the descriptors of this process, and who is handed it may
//     use it too ([NewControl]);
//   - on the GPU as a whole, through a client of one's own ([Open]): the clock and the
//     record of context switches ([Client.Events]).
//
// The layouts are package abi's; package rmtest has a driver made of the same bytes.
package rm

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"vgpud/gpu/nvidia/rm/abi"
)

// Error is a call that the driver refused.
type Error struct {
	// Call is what was asked, in words.
	Call string
	// Object is whom.
	Object abi.Handle
	// Err is an [abi.Status], or an errno where the driver was not reached.
	Err error
}

// Error says what was asked of which object, and the answer.
func (e *Error) Error() string {
	return fmt.Sprintf("%s (object %#x): %v", e.Call, uint32(e.Object), e.Err)
}

// Unwrap is the answer.
func (e *Error) Unwrap() error { return e.Err }

// Lost says whether err means that the GPU is gone, until somebody resets it or the host.
func Lost(err error) bool {
	return errors.Is(err, abi.NV_ERR_GPU_IS_LOST) || errors.Is(err, abi.NV_ERR_RESET_REQUIRED) ||
		errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EIO)
}

// Forbidden says whether err means that the caller may not.
func Forbidden(err error) bool {
	return errors.Is(err, abi.NV_ERR_INSUFFICIENT_PERMISSIONS) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)
}
