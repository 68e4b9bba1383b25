package sandbox

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// maxFiles bounds an executor's descriptors. The executor itself has a few dozen, a GPU's library a
// few hundred.
const maxFiles = 4096

// Limit is called by each of a guest's processes as it starts. It prevents core files, which would
// hold the guest's data, and other processes of the same user from tracing this one.
func Limit() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("forbid core files: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid other processes to trace this one: %w", err)
	}
	return nil
}

// Seal installs the system call filter in all threads of this process, those of libraries too, for
// good. It also forbids programs executed later to gain privileges, and bounds the number of
// descriptors.
func Seal(f Filter) error {
	program, err := f.program()
	if err != nil {
		return err
	}
	files := unix.Rlimit{Cur: maxFiles, Max: maxFiles}
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &now); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	if now.Max > maxFiles {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
			return fmt.Errorf("limit open files to %d: %w", maxFiles, err)
		}
	}
	// The thread that sets no_new_privs must be the one that installs the filter; the other threads
	// take both from it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid new privileges: %w", err)
	}
	return load(program)
}

// errOutOfStep has never been observed: a thread with a filter of its own.
var errOutOfStep = errors.New("a thread has a system call filter of its own")
