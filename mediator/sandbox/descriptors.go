package sandbox

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// firstOther is the first descriptor after standard input, output and error.
const firstOther = 3

// CloseOnExec marks all open descriptors but the standard ones as close-on-exec. The process that
// started this one may have left descriptors of its own open, and a guest's process must not
// inherit them. Programs call it first; Go opens later files with that mark.
func CloseOnExec() error {
	err := unix.CloseRange(firstOther, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
		err = closeOnExecEach() // Linux before 5.11
	}
	if err != nil {
		return fmt.Errorf("keep descriptors to this process: %w", err)
	}
	return nil
}

// closeOnExecEach does the same one descriptor at a time.
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
