package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of times in /proc, 1/USER_HZ, the same on all machines that
// Go runs on.
const clockTick = 10 * time.Millisecond

// cpuTime is the processor time that a process has used so far.
func cpuTime(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("processor time: %w", err)
	}
	// The second field, the name, is in parentheses and may hold anything.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	const user, system = 14 - 3, 15 - 3 // counted from the third field
	if len(fields) <= system {
		return 0, fmt.Errorf("processor time: /proc/%d/stat has %d fields", pid, len(fields)+2)
	}
	u, err1 := strconv.ParseInt(fields[user], 10, 64)
	s, err2 := strconv.ParseInt(fields[system], 10, 64)
	return time.Duration(u+s) * clockTick, errors.Join(err1, err2)
}

// cpuOfProgram is the processor time of all processes of a program.
func cpuOfProgram(path string) (sum time.Duration, err error) {
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		return 0, err
	}
	for _, l := range links {
		exe, err := os.Readlink(l)
		if err != nil || exe != path {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(l, "/")[2])
		if err != nil {
			continue
		}
		d, err := cpuTime(pid)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has ended
		}
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}
