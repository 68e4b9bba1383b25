package system

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"vgpud/e2e/proc"
)

// busyProcesses is the number of processes that use processor time beside the tests: a test that
// only waits must not fail on a slow machine.
var busyProcesses = flag.Int("busy", 0, "run the tests beside `n` processes that are always busy")

// spinMode makes this test's binary such a process.
const spinMode = "spin"

// spin uses one processor until it is killed.
func spin() {
	for n := uint32(1); n != 0; n = n*1664525 + 1013904223 | 1 { // never 0
	}
}

// startBusy starts n busy processes and returns a function that ends them. They also end with this
// process, however it ends.
func startBusy(n int) (end func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var started []*exec.Cmd
	end = func() error {
		var err error
		for _, cmd := range started {
			err = errors.Join(err, cmd.Process.Kill())
			_ = cmd.Wait() // it was killed
		}
		return err
	}
	for range n {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), modeVariable+"="+spinMode, "GOMAXPROCS=1")
		cmd.Stderr = os.Stderr
		cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
		if err := cmd.Start(); err != nil {
			return nil, errors.Join(fmt.Errorf("start a busy process: %w", err), end())
		}
		started = append(started, cmd)
	}
	return end, nil
}

// TestBusyProcesses checks that there are as many processes as the flag says, and that none
// survives its end.
func TestBusyProcesses(t *testing.T) {
	before := spinning(t)
	if before != *busyProcesses {
		t.Errorf("%d busy processes beside the tests, want %d", before, *busyProcesses)
	}
	end, err := startBusy(2)
	if err != nil {
		t.Fatal(err)
	}
	if n := spinning(t); n != before+2 {
		t.Errorf("%d more were started, want 2", n-before)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	if n := spinning(t); n != before {
		t.Errorf("%d are left", n-before)
	}
}

// spinning counts this process's children that run this test's binary.
func spinning(t *testing.T) (n int) {
	t.Helper()
	children, err := proc.Children(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range children {
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && exe == self {
			n++
		}
	}
	return n
}
