package driver

import (
	"errors"
	"fmt"
	"strings"

	"vgpud/mediator/vgpu/abi"
)

// Error is a command that failed, or a channel or context that did. errors.Is finds
// its Status and, when there is one, its Code.
type Error struct {
	// Op is the command; [abi.OpInvalid] when it was not one command that failed.
	Op abi.Opcode
	// Status is how the command ended.
	Status abi.Status
	// Code is why the channel or context failed under it.
	Code abi.ErrorCode
	// Detail is the host's text: a compiler's message, or a fault's kernel, block,
	// thread, line and address. It may have several lines.
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

// Unwrap gives errors.Is the status and the code.
func (e *Error) Unwrap() []error {
	if e.Code == abi.ErrorNone {
		return []error{e.Status}
	}
	return []error{e.Status, e.Code}
}

// ErrClosed is what calls return after Close of what they are about, or of what
// that belongs to.
var ErrClosed = errors.New("closed")

// ErrGone is what calls return when the device's host process is gone.
var ErrGone = errors.New("the virtual GPU is gone")

// statusOf returns the status that commands end with when their channel fails.
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
	case abi.ErrorPutRange, abi.ErrorGetRange, abi.ErrorTorn:
		return abi.StatusMalformed
	}
	return abi.StatusInternal
}
