package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// errEnded says that a guest's process is not there any more.
var errEnded = errors.New("its process has ended")

// startOf is when a process began, in ticks since the host did (proc_pid_stat(5)): with
// its number that is nobody else's.
func startOf(pid int) (ticks uint64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return 0, errEnded
	}
	if err != nil {
		return 0, fmt.Errorf("ask when process %d began: %w", pid, err)
	}
	// Its name, in parentheses, may have any character in it. The next field is the third.
	const third, starttime = 3, 22
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) <= starttime-third {
		return 0, fmt.Errorf("ask when process %d began: %q", pid, b)
	}
	return strconv.ParseUint(string(fields[starttime-third]), 10, 64)
}

// find is the process that was noted, and none that has its number now.
func (k *kept) find() (*os.Process, error) {
	if k.PID <= 0 {
		return nil, fmt.Errorf("process %d was noted", k.PID)
	}
	// First the descriptor, then the time: so it is that process, if it is there now.
	p, err := os.FindProcess(k.PID)
	if err != nil {
		return nil, fmt.Errorf("find the guest's process %d: %w", k.PID, err)
	}
	began, err := startOf(k.PID)
	if err == nil && began != k.Began {
		err = errEnded
	}
	if err != nil {
		return nil, errors.Join(err, p.Release())
	}
	return p, nil
}

// inGroup reports whether a process is in the control group of version 2 at a directory.
func inGroup(pid int, dir string) bool {
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

// kill ends the process that was noted, if it is there.
func (k *kept) kill() error {
	p, err := k.find()
	if errors.Is(err, errEnded) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(kill(p), p.Release())
}
