package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// errEnded says that a guest's process does not exist any more.
var errEnded = errors.New("its process has ended")

// startTime returns when a process started, in ticks since the host did (proc_pid_stat(5)).
// Together with its PID that identifies the process.
func startTime(pid int) (ticks uint64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return 0, errEnded
	}
	if err != nil {
		return 0, fmt.Errorf("read when process %d started: %w", pid, err)
	}
	// Its name, in parentheses, may contain any character. The next field is the third.
	const third, starttime = 3, 22
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) <= starttime-third {
		return 0, fmt.Errorf("read when process %d started: %q", pid, b)
	}
	return strconv.ParseUint(string(fields[starttime-third]), 10, 64)
}

// waitChild is cmd.Wait, but waits without a thread of its own where the kernel allows that: a host
// may have a thousand guests.
func waitChild(cmd *exec.Cmd) error {
	if fd, err := unix.PidfdOpen(cmd.Process.Pid, unix.PIDFD_NONBLOCK); err == nil {
		f := os.NewFile(uintptr(fd), "pidfd")
		if raw, err := f.SyscallConn(); err == nil {
			// An error says that the descriptor can't be waited for, and the rest is up to cmd.Wait.
			_ = raw.Read(func(fd uintptr) bool {
				n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
				return n > 0 || err != nil && err != unix.EINTR
			})
		}
		_ = f.Close() // nothing was written
	}
	return cmd.Wait()
}

// find returns the process that was saved, and no other that has its PID now.
func (k *savedState) find() (*os.Process, error) {
	if k.PID <= 0 {
		return nil, fmt.Errorf("process %d was saved", k.PID)
	}
	// The descriptor comes first, then the time: so it is that process if the times match.
	p, err := os.FindProcess(k.PID)
	if err != nil {
		return nil, fmt.Errorf("find the guest's process %d: %w", k.PID, err)
	}
	began, err := startTime(k.PID)
	if err == nil && began != k.Began {
		err = errEnded
	}
	if err != nil {
		return nil, errors.Join(err, p.Release())
	}
	return p, nil
}

// inCgroup reports whether a process is in the control group (version 2) at a directory.
func inCgroup(pid int, dir string) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return path != "/" && strings.HasSuffix(dir, path)
		}
	}
	return false
}

// kill kills the process that was saved, if it exists.
func (k *savedState) kill() error {
	p, err := k.find()
	if errors.Is(err, errEnded) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(kill(p), p.Release())
}
