package daemon

import (
	"errors"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"vgpud/mediator/api"
)

// processEnds waits for the end of a process that a daemon in this test process started and waits
// for.
func processEnds(t *testing.T, pid int) {
	t.Helper()
	until(t, "a guest's process is gone", func() bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) })
}

// prestarted waits until a process is there for the next guest, and returns it.
func (d *daemon) prestarted() (pid int) {
	d.t.Helper()
	until(d.t, "a process is prestarted", func() bool {
		n := &d.service.prestart
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.spare != nil {
			pid = n.spare.cmd.Process.Pid
		}
		return n.spare != nil
	})
	return pid
}

// TestNextGuestIsPrestarted: a guest gets the prestarted process, wherever its socket is to be. One
// that has died meanwhile is not used, and none is left when the daemon ends.
func TestNextGuestIsPrestarted(t *testing.T) {
	dir := runDir(t)
	d := startDaemon(t, dir)
	first := d.prestarted()
	a := d.createVM(api.VMSpec{Name: "a", DomainUUID: someUUID, Socket: d.domainSocket(someUUID, "gpu0.sock"), BAR2Bytes: 16 << 20})
	if a.PID != first {
		t.Errorf("the guest's process is %d, while %d was prestarted", a.PID, first)
	}
	newJob(t, attach(t, a.Socket)).works()

	second := d.prestarted()
	if err := unix.Kill(second, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	processEnds(t, second)
	b := d.create("b")
	newJob(t, attach(t, b.Socket)).works()

	third := 0
	until(t, "another process is prestarted", func() bool { third = d.prestarted(); return third != second })
	d.stop()
	processEnds(t, third)
	if left, err := filepath.Glob(filepath.Join(dir, prestartDirs)); len(left) > 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := unix.Kill(b.PID, 0); err != nil {
		t.Errorf("a guest has ended with the daemon: %v", err)
	}
}

// TestSpareProcessIsKept: a guest that comes while the process for the next one starts leaves that
// to the guest after it.
func TestSpareProcessIsKept(t *testing.T) {
	d := startDaemon(t, runDir(t))
	spare := d.prestarted()
	n := &d.service.prestart
	d.service.prestartNext(n.spare.gpu)
	until(t, "no other is to be started", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		if !n.starting && (n.spare == nil || n.spare.cmd.Process.Pid != spare) {
			t.Errorf("process %d is gone", spare)
		}
		return !n.starting
	})
}
