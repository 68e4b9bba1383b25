// Package proc reads processes' state from /proc, for tests and measurements of the whole system.
package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Children returns the processes that a process has started, such as a guest's executors.
func Children(pid int) ([]int, error) {
	// There is a file per thread: a child is listed with the thread that started it.
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil, err
	}
	var children []int
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has ended
		}
		for field := range strings.FieldsSeq(string(b)) {
			n, err := strconv.Atoi(field)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f, err)
			}
			children = append(children, n)
		}
	}
	return children, nil
}

// Descriptors counts a process's open files.
func Descriptors(pid int) (int, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(entries), err
}

// Open returns what a process's descriptors refer to, as /proc shows it, by descriptor.
func Open(pid int) (map[string]string, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	open := make(map[string]string, len(entries))
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			open[e.Name()] = to
		}
	}
	return open, nil
}

// clockTick is the unit of times in /proc, 1/USER_HZ, which is the same on all machines that Go
// supports.
const clockTick = 10 * time.Millisecond

// CPUTime returns the processor time that a process has used so far, in steps of 10 ms. If the
// process has ended, the error is [fs.ErrNotExist].
func CPUTime(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("processor time: %w", gone(err))
	}
	// The second field, the name, is in parentheses and may contain anything.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	const user, system = 14 - 3, 15 - 3 // counted from the third field
	if len(fields) <= system {
		return 0, fmt.Errorf("processor time: /proc/%d/stat has %d fields", pid, len(fields)+2)
	}
	u, err1 := strconv.ParseInt(fields[user], 10, 64)
	s, err2 := strconv.ParseInt(fields[system], 10, 64)
	return time.Duration(u+s) * clockTick, errors.Join(err1, err2)
}

// OfProgram returns the running processes of a program, by its absolute path.
func OfProgram(path string) (pids []int, err error) {
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		exe, err := os.Readlink(l)
		if err != nil || exe != path {
			continue
		}
		if pid, err := strconv.Atoi(strings.Split(l, "/")[2]); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// CPUTimeOfProgram returns the processor time of all running processes of a program, by its
// absolute path.
func CPUTimeOfProgram(path string) (sum time.Duration, err error) {
	pids, err := OfProgram(path)
	if err != nil {
		return 0, err
	}
	for _, pid := range pids {
		d, err := CPUTime(pid)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}

// CPUTimeOfThreads returns the processor time of the threads that a process has, to the nanosecond,
// or where the kernel does not keep that, in the steps of [CPUTime].
func CPUTimeOfThreads(pid int) (sum time.Duration, err error) {
	dirs, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil {
		return 0, err
	}
	for _, dir := range dirs {
		d, err := scheduled(dir)
		if errors.Is(err, fs.ErrNotExist) {
			if _, err := os.Stat(dir); err != nil {
				continue // the thread has ended
			}
			return CPUTime(pid)
		}
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}

// gone makes the error of a file that was opened before its process ended, and read afterwards, that of
// a file that does not exist.
func gone(err error) error {
	if errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return err
}

// scheduled returns how long a thread has run, by its directory.
func scheduled(dir string) (d time.Duration, err error) {
	b, err := os.ReadFile(filepath.Join(dir, "schedstat"))
	if err != nil {
		return 0, fmt.Errorf("processor time: %w", gone(err))
	}
	if _, err := fmt.Sscan(string(b), &d); err != nil {
		return 0, fmt.Errorf("processor time: %s/schedstat: %w", dir, err)
	}
	return d, nil
}

// CPUTimeOfKernel returns the processor time of the kernel's threads with a name.
func CPUTimeOfKernel(name string) (sum time.Duration, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return 0, err
	}
	for _, f := range files {
		dir := filepath.Dir(f)
		if b, err := os.ReadFile(f); err != nil || strings.TrimSpace(string(b)) != name {
			continue
		}
		// Kernel threads have no arguments.
		if b, err := os.ReadFile(filepath.Join(dir, "cmdline")); err != nil || len(b) > 0 {
			continue
		}
		d, err := scheduled(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}

// Size returns a process's number of threads and its resident memory in bytes.
func Size(pid int) (threads int, resident uint64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("size of a process: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		switch name {
		case "Threads":
			_, err = fmt.Sscan(value, &threads)
		case "VmRSS":
			_, err = fmt.Sscan(value, &resident)
			resident <<= 10 // from kB
		}
		if err != nil {
			return 0, 0, fmt.Errorf("size of a process: %q: %w", line, err)
		}
	}
	return threads, resident, nil
}
