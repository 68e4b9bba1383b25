package proctest

import (
	"errors"
	"io/fs"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// TestStop stops a process and has it go on.
func TestStop(t *testing.T) {
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Wait() // it is killed
	defer child.Process.Kill()
	pid := child.Process.Pid
	if is, err := stopped(pid); is || err != nil {
		t.Errorf("before: stopped %v, %v", is, err)
	}
	Stop(t, pid)
	if is, err := stopped(pid); !is || err != nil {
		t.Errorf("afterwards: stopped %v, %v", is, err)
	}
	if err := child.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for is := true; is; {
		select {
		case <-limit.C:
			t.Fatal("it does not go on")
		default:
		}
		var err error
		if is, err = stopped(pid); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := stopped(-1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no process: %v", err)
	}
}
