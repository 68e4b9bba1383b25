package abi

import "fmt"

// Status is the result of a call (NV_STATUS, nvstatuscodes.h). Zero is success.
type Status uint32

// The statuses that callers distinguish, or that were observed.
const (
	NV_OK                           Status = 0x00
	NV_ERR_GPU_IS_LOST              Status = 0x0f
	NV_ERR_INSUFFICIENT_PERMISSIONS Status = 0x1b
	NV_ERR_INVALID_ARGUMENT         Status = 0x1f
	NV_ERR_INVALID_CHANNEL          Status = 0x21
	NV_ERR_INVALID_CLASS            Status = 0x22
	NV_ERR_INVALID_CLIENT           Status = 0x23
	NV_ERR_INVALID_OBJECT           Status = 0x31
	NV_ERR_INVALID_PARAM_STRUCT     Status = 0x3a
	NV_ERR_INVALID_STATE            Status = 0x40
	NV_ERR_NOT_SUPPORTED            Status = 0x56
	NV_ERR_OBJECT_NOT_FOUND         Status = 0x57
	NV_ERR_RESET_REQUIRED           Status = 0x62
)

var statuses = map[Status]string{
	NV_ERR_GPU_IS_LOST:              "GPU lost from the bus",
	NV_ERR_INSUFFICIENT_PERMISSIONS: "insufficient permissions",
	NV_ERR_INVALID_ARGUMENT:         "invalid argument",
	NV_ERR_INVALID_CHANNEL:          "invalid channel",
	NV_ERR_INVALID_CLASS:            "invalid class",
	NV_ERR_INVALID_CLIENT:           "invalid client, or one of another file",
	NV_ERR_INVALID_OBJECT:           "invalid object",
	NV_ERR_INVALID_PARAM_STRUCT:     "invalid parameters",
	NV_ERR_INVALID_STATE:            "invalid state",
	NV_ERR_NOT_SUPPORTED:            "not supported",
	NV_ERR_OBJECT_NOT_FOUND:         "object not found",
	NV_ERR_RESET_REQUIRED:           "GPU requires a reset",
}

// Error returns the status in words, with its number.
func (s Status) Error() string {
	if t, ok := statuses[s]; ok {
		return fmt.Sprintf("%s (driver status %#x)", t, uint32(s))
	}
	return fmt.Sprintf("driver status %#x", uint32(s))
}
