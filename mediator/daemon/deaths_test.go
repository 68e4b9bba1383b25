package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/guestagent/driver"
	"vgpud/internal/proctest"
	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
)

func TestDaemonRestart(t *testing.T) {
	dir := runDir(t)
	d := startDaemon(t, dir)
	v := d.create("a")
	j := newJob(t, attach(t, v.Socket))
	weight := 3.0
	if _, err := d.client.UpdateVM(t.Context(), "a", api.VMUpdate{Weight: &weight}); err != nil {
		t.Fatal(err)
	}
	d.charge("a", time.Second)
	d.service.devices[0].loop.Failed(errors.New("so that nothing is decided any more"))
	d.guest("a").sched.SetSuspended(true, d.service.clock.Now())
	before := d.vm("a")

	// A second daemon reports an error, and leaves the first one's guests alone.
	if _, err := New(t.Context(), d.options()); err == nil || !strings.Contains(err.Error(), "another daemon (PID") {
		t.Errorf("a second daemon: %v", err)
	}
	if !d.vm("a").Suspended {
		t.Error("a second daemon has resumed the guest")
	}

	d.stop()
	j.works() // no guest stays suspended without a daemon
	d = startDaemon(t, dir)
	after := d.vm("a")
	if after.Weight != 3 || after.GPUSeconds < 1 || after.PID != v.PID || after.Suspended ||
		after.Suspensions != before.Suspensions || after.SuspendedSeconds < before.SuspendedSeconds || after.Kernels != 1 {
		t.Errorf("before: %+v\nafter:  %+v", before, after)
	}
	j.works()
	if err := d.client.ForceDeleteVM(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	processEnds(t, v.PID)
}

func TestGuestKilled(t *testing.T) {
	d := startDaemon(t, runDir(t))
	v, other := d.create("a"), d.create("b")
	newJob(t, attach(t, v.Socket)).works()
	j := newJob(t, attach(t, other.Socket))
	executors := d.executors("a")
	if err := unix.Kill(v.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "the guest is lost", func() bool { return d.vm("a").Lost != "" })
	for _, pid := range executors {
		until(t, "its executors end", func() bool { return ended(pid) })
	}
	if _, err := os.Stat(filepath.Dir(v.Socket)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its directory is left: %v", err)
	}
	j.works()
}

func TestExecutorKilled(t *testing.T) {
	d := startDaemon(t, runDir(t))
	dev := attach(t, d.create("a").Socket)
	lost := newJob(t, dev)
	pids := d.executors("a")
	other := newJob(t, dev)
	for _, pid := range pids {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "its context fails", func() bool {
		p, err := lost.launch(1)
		if err == nil {
			err = p.Wait(t.Context())
		}
		return err != nil
	})
	other.works()
	if err := lost.gpu.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	lost.load()
	lost.works()
	other.works()
	if v := d.vm("a"); v.Contexts != 2 {
		t.Errorf("%d contexts, want 2", v.Contexts)
	}
}

func TestClientGoneInMidKernel(t *testing.T) {
	d := startDaemon(t, runDir(t))
	v := d.create("a")
	bus, err := driver.DialVFIOUser(t.Context(), v.Socket)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := driver.Open(t.Context(), bus)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newJob(t, dev).launch(0); err != nil { // 2^32 turns
		t.Fatal(err)
	}
	executors := d.executors("a")
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
	for _, pid := range executors {
		until(t, "the executors end", func() bool { return ended(pid) })
	}
	until(t, "the guest is detached", func() bool { v := d.vm("a"); return !v.Attached && v.Contexts == 0 })
	newJob(t, attach(t, v.Socket)).works()
}

// TestStuckExecutor: a process that does not react does not keep its guest from ending.
func TestStuckExecutor(t *testing.T) {
	d := startDaemon(t, runDir(t))
	v := d.create("a")
	newJob(t, attach(t, v.Socket)).works()
	executors := d.executors("a")
	for _, pid := range executors {
		proctest.Stop(t, pid)
	}
	if err := d.client.ForceDeleteVM(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	for _, pid := range executors {
		if !ended(pid) {
			t.Errorf("executor %d is left", pid)
		}
	}
}

func TestGuestThatDoesNotEndIsKilled(t *testing.T) {
	d := startDaemon(t, runDir(t))
	v := d.create("a")
	proctest.Stop(t, v.PID)
	if err := d.client.ForceDeleteVM(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if _, err := d.client.VM(t.Context(), "a"); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("the guest is still there: %v", err)
	}
}

// deafGuest returns a service with one guest, a, whose process reads nothing, and that process.
func deafGuest(t *testing.T) (*Service, *guest, *exec.Cmd) {
	t.Helper()
	ours, theirs, err := ipc.Pair()
	if err != nil {
		t.Fatal(err)
	}
	for err == nil { // until it has no room
		err = ours.Send(ipc.Message{Kind: ipc.KindLog})
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if err := errors.Join(ours.Close(), theirs.Close()); err != nil {
			t.Error(err)
		}
	})
	s := &Service{log: slog.New(slog.DiscardHandler), guests: make(map[string]*guest), quit: make(chan struct{})}
	g := &guest{spec: ipc.Spec{Name: "a"}, conn: ours, process: cmd.Process, gone: make(chan struct{})}
	g.device = &device{config: GPUConfig{Name: "gpu0"}, log: s.log}
	s.guests["a"] = g
	return s, g, cmd
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestGuestThatDoesNotReadIsKilled: a guest's process that can't be told to end is killed.
func TestGuestThatDoesNotReadIsKilled(t *testing.T) {
	s, g, cmd := deafGuest(t)
	ended := make(chan error, 1)
	go func() {
		_, err := s.end("a", func(*guest) bool { return true })
		ended <- err
	}()
	until(t, "it is told", func() bool { return waitsIn("end", "IO wait") })
	if s.mu.TryLock() {
		s.mu.Unlock()
	} else {
		t.Error("the daemon's lock is held meanwhile")
	}
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		if err := cmd.Wait(); err != nil {
			close(g.gone)
		}
	}()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if !isClosed(g.gone) {
		t.Error("it goes on")
		_ = cmd.Process.Kill()
	}
	<-killed
}

// TestExecutorsAreChildren: the executors of a guest are its process's children, by which process
// attribution goes.
func TestExecutorsAreChildren(t *testing.T) {
	d := startDaemon(t, runDir(t))
	v := d.create("a")
	newJob(t, attach(t, v.Socket)).works()
	pids := d.executors("a")
	for _, pid := range pids {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("\nPPid:\t%d\n", v.PID); !strings.Contains(string(status), want) {
			t.Errorf("executor %d is no child of %d:\n%s", pid, v.PID, status)
		}
	}
	if len(pids) == 0 {
		t.Error("no executors")
	}
}
