package driver

import (
	"errors"
	"fmt"
	"strings"

	"vgpud/mediator/vgpu/abi"
)

// Error is a failed command, channel or context. errors.Is finds its Status and its Code, if it has
// one.
type Error struct {
	// Op is the command, or [abi.OpInvalid] if the error is not that of a single command.
	Op abi.Opcode
	// Status is how the command ended.
	Status abi.Status
	// Code is why the command's channel or context failed.
	Code abi.ErrorCode
	// Detail is the host's text: a compiler's messages, or a fault's kernel, block, thread, line
	// and address. It may have several lines.
	Detail string
}

// Error returns one line; %+v prints the whole detail.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Op != abi.OpInvalid {
		fmt.Fprintf(&b, "%v: ", e.Op)
	}
	b.WriteString(e.Status.String())
	if e.Code != abi.ErrorNone {
		fmt.Fprintf(&b, " (%v)", e.Code)
	}
	if first, _, _ := strings.Cut(e.Detail, "\n"); first != "" {
		fmt.Fprintf(&b, ": %s", first)
	}
	return b.String()
}

// Format prints the whole detail for %+v.
func (e *Error) Format(f fmt.State, verb rune) {
	fmt.Fprint(f, e.Error())
	if _, rest, more := strings.Cut(e.Detail, "\n"); more && verb == 'v' && f.Flag('+') {
		fmt.Fprintf(f, "\n%s", rest)
	}
}

// Unwrap returns the status and the code.
func (e *Error) Unwrap() []error {
	if e.Code == abi.ErrorNone {
		return []error{e.Status}
	}
	return []error{e.Status, e.Code}
}

// ErrClosed is returned by calls on an object that was closed, or whose parent was.
var ErrClosed = errors.New("closed")

// ErrGone is returned by calls after the device's host process has ended or the device was
// unplugged.
var ErrGone = errors.New("the virtual GPU is gone")

// statusOf returns the status of commands whose channel failed with code.
func statusOf(code abi.ErrorCode) abi.Status {
	switch code {
	case abi.ErrorGPUFault:
		return abi.StatusLaunchFailed
	case abi.ErrorTimeLimit:
		return abi.StatusTimeLimit
	case abi.ErrorDeviceLost:
		return abi.StatusDeviceLost
	case abi.ErrorExecutorLost, abi.ErrorExecutorStart:
		return abi.StatusContextLost
	case abi.ErrorReset:
		return abi.StatusCanceled
	case abi.ErrorNoRoom:
		return abi.StatusOutOfMemory
	case abi.ErrorPutRange, abi.ErrorGetRange, abi.ErrorTorn:
		return abi.StatusMalformed
	}
	return abi.StatusInternal
}
