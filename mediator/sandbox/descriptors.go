package sandbox

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// firstOther is the first descriptor that is not standard input, output or error.
const firstOther = 3

// CloseOnExec has no process that this one starts have its descriptors, but the standard
// ones and those that it passes on purpose: whoever started it may have left some of its own
// open, and a guest's process must not have them. Programs call it first; what is opened
// later is closed on execution anyway.
func CloseOnExec() error {
	err := unix.CloseRange(firstOther, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
		err = closeOnExecEach() // before Linux 5.11
	}
	if err != nil {
		return fmt.Errorf("keep descriptors to this process: %w", err)
	}
	return nil
}

// closeOnExecEach is CloseOnExec one by one.
func closeOnExecEach() error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= firstOther {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}
