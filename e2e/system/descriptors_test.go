package system

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/e2e/host"
	"vgpud/e2e/proc"
	"vgpud/mediator/api"
	guestproc "vgpud/mediator/vm"
)

// openFiles returns the files of a process's descriptors, by number.
func openFiles(t *testing.T, pid int) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(paths) == 0 {
		t.Fatalf("descriptors of process %d: %v, %v", pid, paths, err)
	}
	files := make(map[string]string)
	for _, path := range paths {
		if name, err := os.Readlink(path); err == nil { // otherwise it was just closed
			files[filepath.Base(path)] = name
		}
	}
	return files
}

// TestDescriptors checks that guests' processes have none of the descriptors that the daemon's
// parent left open, nor the daemon's log, and that executors have no files except memory and
// devices.
func TestDescriptors(t *testing.T) {
	left, err := os.CreateTemp(t.TempDir(), "left-open-")
	if err != nil {
		t.Fatal(err)
	}
	defer left.Close()
	fd, err := unix.Dup(int(left.Fd())) // inherited by executed programs
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	h := host.Start(t, "none")
	mem, err := newContext(t, h, api.VMSpec{Name: "a"}).Alloc(t.Context(), 1<<10)
	if err != nil || mem == 0 {
		t.Fatal(mem, err)
	}
	has := func(pid int, file string) bool {
		for _, name := range openFiles(t, pid) {
			if name == file {
				return true
			}
		}
		return false
	}
	if !has(h.Daemon.PID(), left.Name()) {
		t.Fatal("the daemon has not what its starter left open")
	}
	log := openFiles(t, h.Daemon.PID())["2"]
	// A process that was just forked has all of the daemon's descriptors until it executes its
	// program.
	var vms []int
	h.Until("guests' processes to have executed their program", func() error {
		if vms, err = proc.Children(h.Daemon.PID()); err != nil || len(vms) == 0 {
			return fmt.Errorf("%v, %w", vms, err)
		}
		for _, vm := range vms {
			if commandLine(vm) == commandLine(h.Daemon.PID()) {
				return fmt.Errorf("process %d has not", vm)
			}
		}
		return nil
	})
	for _, vm := range vms {
		if has(vm, left.Name()) || has(vm, log) {
			t.Errorf("guest's process %d has what the daemon's starter left open, or its log: %v", vm, openFiles(t, vm))
		}
	}
	executors, err := proc.Children(h.VM("a").PID)
	if err != nil || len(executors) != 1 {
		t.Fatal(executors, err)
	}
	for number, name := range openFiles(t, executors[0]) {
		if strings.HasPrefix(name, "/sys/fs/cgroup/") {
			continue // Go's runtime reads the number of processors of its group
		}
		if filepath.Base(name) == guestproc.UntilFile && readOnly(t, executors[0], number) {
			continue // the daemon's note for a guest that it has not adopted
		}
		if strings.HasPrefix(name, "/") && !strings.HasPrefix(name, "/dev/") && !strings.HasPrefix(name, "/memfd:") {
			t.Errorf("executor's descriptor %s is %s", number, name)
		}
	}
}

// commandLine returns a process's command line, or "" if it has ended.
func commandLine(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	return string(b)
}

// readOnly reports whether a descriptor of a process only allows reading.
func readOnly(t *testing.T, pid int, number string) bool {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%s", pid, number))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if flags, ok := strings.CutPrefix(line, "flags:"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(flags), 8, 64)
			return err == nil && n&unix.O_ACCMODE == unix.O_RDONLY
		}
	}
	return false
}

// TestLogOfAGuestsProcess checks that the messages of a guest's process are in the current daemon's
// log, marked as its messages, also if another daemon started the process.
func TestLogOfAGuestsProcess(t *testing.T) {
	h := host.Start(t, "none")
	v := h.NewVM(api.VMSpec{Name: "a"})
	says := func(what string) func() error {
		return func() error {
			for line := range strings.Lines(h.Daemon.Log()) {
				if strings.Contains(line, "output of the guest's process") && strings.Contains(line, fmt.Sprintf("pid=%d", v.PID)) && strings.Contains(line, what) {
					return nil
				}
			}
			return fmt.Errorf("no %q in the log", what)
		}
	}
	h.Until("the process is heard", says("virtual GPU ready"))
	if err := h.Daemon.Kill(); err != nil {
		t.Fatal(err)
	}
	h.StartDaemon()
	if err := h.Client.DeleteVM(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	h.Timeout = 20 * time.Second
	h.Until("the next daemon hears it", says("the daemon asks to end"))
}
