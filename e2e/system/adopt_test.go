package system

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/cmd/vgpud/workload"
	"vgpud/e2e/host"
	"vgpud/gpu/corpus"
	"vgpud/guestagent/driver"
	"vgpud/internal/proctest"
	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
)

// silentScene has a guest whose process is stopped and whose executor runs on. The daemon was
// restarted, and has suspended it.
type silentScene struct {
	h      *host.Host
	gpu    *driver.Context // the guest's
	load   *workload.Load
	by     *bystander
	before api.VM // the guest before its process was stopped
	resume func() error
}

func newSilentScene(t *testing.T) *silentScene {
	t.Helper()
	s := &silentScene{h: host.Start(t, "dfq")}
	s.gpu = newContext(t, s.h, api.VMSpec{Name: "silent"})
	s.load = newLoad(t, s.gpu, "scan", corpus.Trivial)
	s.by = newBystander(t, s.h)
	s.before = s.h.VM("silent")
	if err := s.h.Daemon.Kill(); err != nil {
		t.Fatal(err)
	}
	proctest.Stop(t, s.before.PID)
	s.resume = func() error { return unix.Kill(s.before.PID, unix.SIGCONT) }
	t.Cleanup(func() {
		if err := s.resume(); err != nil && !errors.Is(err, unix.ESRCH) {
			t.Error(err)
		}
	})
	s.h.StartDaemon()
	s.h.Until("the bystander to be governed", func() error {
		if v := s.h.VM("bystander"); v.Silent != "" || !v.Attached {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
	s.h.Until("the silent guest to be suspended", func() error {
		if v := s.h.VM("silent"); v.Silent == "" || !v.Suspended || v.PID != s.before.PID {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
	return s
}

// launched is how and when a launch ended.
type launched struct {
	err error
	at  time.Time
}

// launch launches through the guest's rings, which its executor reads.
func (s *silentScene) launch(ctx context.Context) <-chan launched {
	done := make(chan launched, 1)
	go func() {
		err := s.load.Run(ctx, s.gpu.Own())
		done <- launched{err, time.Now()}
	}()
	return done
}

// TestAdoptSlowDaemon: a daemon that stands still for longer than a suspension lasts without one
// does not let a suspended guest run. Its end does.
func TestAdoptSlowDaemon(t *testing.T) {
	s := newSilentScene(t)
	daemon := s.h.Daemon
	stopped := time.Now()
	proctest.Stop(t, daemon.PID())
	done := s.launch(t.Context())
	late := false
	select {
	case l := <-done:
		// The host may have been so slow that the daemon counted as one that hangs.
		if after := l.at.Sub(stopped); after < ipc.HungLimit/2 {
			t.Errorf("a launch of the suspended guest ended %v after the daemon stood still: %v", after, l.err)
		}
		late = true
	case <-time.After(2 * ipc.SuspensionLimit):
	}
	if err := daemon.Kill(); err != nil {
		t.Fatal(err)
	}
	if late {
		done = s.launch(t.Context())
	}
	select {
	case l := <-done:
		if l.err != nil {
			t.Error(l.err)
		}
	case <-time.After(s.h.Timeout):
		t.Error("without a daemon the guest stands still")
	}
	s.h.StartDaemon()
	s.by.goesOn()
}

// TestAdoptSilentGuest stops a guest's process, whose executor runs on, and restarts the daemon.
// The daemon starts, governs the others at once, shows the silent one and suspends it, and gives
// its resources to no other guest. When its process continues, the daemon adopts it and its work
// goes on.
func TestAdoptSilentGuest(t *testing.T) {
	ctx := t.Context()
	s := newSilentScene(t)
	h, by, before := s.h, s.by, s.before
	by.goesOn()

	done := s.launch(ctx)

	_, err := h.Client.CreateVM(ctx, api.VMSpec{Name: "silent"})
	if err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("another of its name: %v", err)
	}
	for _, name := range []string{"c", "d", "e", "f"} {
		v := h.NewVM(api.VMSpec{Name: name})
		if os.Geteuid() == 0 && v.Confinement.UID == before.Confinement.UID {
			t.Errorf("%s is user %d, as the silent guest is", name, v.Confinement.UID)
		}
	}
	by.goesOn()
	select {
	case l := <-done:
		t.Errorf("a launch of the silent guest ended: %v", l.err)
	default:
	}
	if err := s.resume(); err != nil {
		t.Fatal(err)
	}
	h.Until("the guest to be met", func() error {
		if v := h.VM("silent"); v.Silent != "" || v.Confinement != nil && v.Confinement.UID != before.Confinement.UID {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
	select {
	case l := <-done:
		if l.err != nil {
			t.Error(l.err)
		}
	case <-time.After(h.Timeout):
		t.Errorf("the guest's launch stands still: %+v", h.VM("silent"))
	}
	works(t, s.gpu)
	weight := 3.0
	if v, err := h.Client.UpdateVM(ctx, "silent", api.VMUpdate{Weight: &weight}); err != nil || v.Weight != weight {
		t.Errorf("UpdateVM = %+v, %v", v, err)
	}
	by.goesOn()
}
