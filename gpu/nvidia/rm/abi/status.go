package abi

import "fmt"

// Status is how a call ended (NV_STATUS, nvstatuscodes.h). Zero is success.
type Status uint32

// Statuses that callers tell apart, or that were seen.
const (
	OK                      Status = 0x00
	GPULost                 Status = 0x0f
	InsufficientPermissions Status = 0x1b
	InvalidArgument         Status = 0x1f
	InvalidChannel          Status = 0x21
	InvalidClass            Status = 0x22
	InvalidClient           Status = 0x23
	InvalidObject           Status = 0x31
	InvalidParamStruct      Status = 0x3a
	InvalidState            Status = 0x40
	NotSupported            Status = 0x56
	ObjectNotFound          Status = 0x57
	ResetRequired           Status = 0x62
)

var statuses = map[Status]string{
	GPULost:                 "GPU lost from the bus",
	InsufficientPermissions: "insufficient permissions",
	InvalidArgument:         "invalid argument",
	InvalidChannel:          "invalid channel",
	InvalidClass:            "invalid class",
	InvalidClient:           "invalid client, or one of another file",
	InvalidObject:           "invalid object",
	InvalidParamStruct:      "invalid parameters",
	InvalidState:            "invalid state",
	NotSupported:            "not supported",
	ObjectNotFound:          "object not found",
	ResetRequired:           "GPU requires a reset",
}

// Error is the status in words, with its number.
func (s Status) Error() string {
	if t, ok := statuses[s]; ok {
		return fmt.Sprintf("%s (driver status %#x)", t, uint32(s))
	}
	return fmt.Sprintf("driver status %#x", uint32(s))
}
