package sandbox

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// maxFiles bounds an executor's descriptors: its own are a few dozen, a GPU's
// library's a few hundred.
const maxFiles = 4096

// Limit is what each of a guest's processes does to itself first: it leaves no
// core file, which would hold what the guest computes, and no other process of its
// user can look into it.
func Limit() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("forbid core files: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid other processes to look into this one: %w", err)
	}
	return nil
}

// Seal has all threads of this process, those of libraries too, make the filter's
// system calls only, for good. Nothing that is executed gains rights after it, and
// descriptors are bounded.
func Seal(f Filter) error {
	program, err := f.program()
	if err != nil {
		return err
	}
	files := unix.Rlimit{Cur: maxFiles, Max: maxFiles}
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &now); err != nil {
		return fmt.Errorf("ask for the limit of open files: %w", err)
	}
	if now.Max > maxFiles {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
			return fmt.Errorf("limit open files to %d: %w", maxFiles, err)
		}
	}
	// The thread that gains nothing must be the one that sets the filter; the
	// others follow it in both.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid new privileges: %w", err)
	}
	return load(program)
}

// errOutOfStep is what has never been seen: a thread with a filter of its own.
var errOutOfStep = errors.New("a thread has a system call filter of its own")
