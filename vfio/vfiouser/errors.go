package vfiouser

import (
	"errors"
	"fmt"
	"syscall"
)

// ErrClosed is returned by calls on a connection after Close or after the peer has disconnected.
var ErrClosed = errors.New("vfio-user connection closed")

// Error is an error reply: the peer understood the request and refused it.
type Error struct {
	Cmd   uint16
	Errno syscall.Errno
}

// Error returns a text with the request and the peer's reason.
func (e *Error) Error() string {
	return fmt.Sprintf("vfio-user %s refused by peer: %v", commandName(e.Cmd), e.Errno)
}

// Unwrap returns the error number, for errors.Is.
func (e *Error) Unwrap() error { return e.Errno }

// protocolError is a violation of the protocol that makes the connection unusable.
type protocolError struct{ what string }

func (e *protocolError) Error() string { return "vfio-user protocol error: " + e.what }

func protocolErrorf(format string, args ...any) error {
	return &protocolError{what: fmt.Sprintf(format, args...)}
}

// errnoOf returns the number that is sent to a peer for err.
func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	if errors.As(err, &errno) && errno != 0 {
		return errno
	}
	return syscall.EIO
}

var commandNames = [...]string{
	CmdVersion:              "VERSION",
	CmdDMAMap:               "DMA_MAP",
	CmdDMAUnmap:             "DMA_UNMAP",
	CmdDeviceGetInfo:        "DEVICE_GET_INFO",
	CmdDeviceGetRegionInfo:  "DEVICE_GET_REGION_INFO",
	CmdDeviceGetRegionIOFDs: "DEVICE_GET_REGION_IO_FDS",
	CmdDeviceGetIRQInfo:     "DEVICE_GET_IRQ_INFO",
	CmdDeviceSetIRQs:        "DEVICE_SET_IRQS",
	CmdRegionRead:           "REGION_READ",
	CmdRegionWrite:          "REGION_WRITE",
	CmdDMARead:              "DMA_READ",
	CmdDMAWrite:             "DMA_WRITE",
	CmdDeviceReset:          "DEVICE_RESET",
	CmdRegionWriteMulti:     "REGION_WRITE_MULTI",
	CmdDeviceFeature:        "DEVICE_FEATURE",
	CmdMigDataRead:          "MIG_DATA_READ",
	CmdMigDataWrite:         "MIG_DATA_WRITE",
}

func commandName(cmd uint16) string {
	if int(cmd) < len(commandNames) && commandNames[cmd] != "" {
		return commandNames[cmd]
	}
	return fmt.Sprintf("command %d", cmd)
}
