// Package proctest has tests stop processes that they started, by a signal, and go on when the
// processes stand still.
package proctest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Stop sends a process SIGSTOP, and returns when all of its threads are stopped.
func Stop(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	limit, again := time.NewTimer(2*time.Minute), time.NewTicker(time.Millisecond)
	defer limit.Stop()
	defer again.Stop()
	for {
		stopped, err := stopped(pid)
		if err != nil {
			t.Fatal(err)
		}
		if stopped {
			return
		}
		select {
		case <-again.C:
		case <-limit.C:
			t.Fatalf("process %d goes on after SIGSTOP", pid)
		}
	}
}

// stopped reports whether all threads of a process are stopped by a signal. The signal only asks them
// to: on a busy host they may go on for a while after it was sent.
func stopped(pid int) (bool, error) {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	threads, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(filepath.Join(dir, thread.Name(), "stat"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // the thread has ended
		}
		if err != nil {
			return false, err
		}
		// The state follows the program's name, which may have anything in it.
		if i := bytes.LastIndex(stat, []byte(") ")); i < 0 || stat[i+2] != 'T' {
			return false, nil
		}
	}
	return true, nil
}
