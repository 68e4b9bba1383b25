package system

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/e2e/host"
	"vgpud/gpu/corpus"
	"vgpud/mediator/api"
)

// TestAdoptSilentGuest stops a guest's process, whose executor runs on, and restarts the daemon.
// The daemon starts, governs the others at once, shows the silent one and suspends it, and gives
// its resources to no other guest. When its process continues, the daemon adopts it and its work
// goes on.
func TestAdoptSilentGuest(t *testing.T) {
	ctx := t.Context()
	h := host.Start(t, "dfq")
	silent := newContext(t, h, api.VMSpec{Name: "silent"})
	load := newLoad(t, silent, "scan", corpus.Trivial)
	by := newBystander(t, h)
	before := h.VM("silent")
	if err := h.Daemon.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(before.PID, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resume := func() error { return unix.Kill(before.PID, unix.SIGCONT) }
	t.Cleanup(func() {
		if err := resume(); err != nil && !errors.Is(err, unix.ESRCH) {
			t.Error(err)
		}
	})
	h.StartDaemon()
	h.Until("the bystander to be governed", func() error {
		if v := h.VM("bystander"); v.Silent != "" || !v.Attached {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
	h.Until("the silent guest to be suspended", func() error {
		if v := h.VM("silent"); v.Silent == "" || !v.Suspended || v.PID != before.PID {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
	by.goesOn()

	// A launch through the rings, which its executor reads, waits.
	done := make(chan error, 1)
	go func() { done <- load.Run(ctx, silent.Own()) }()

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
	case err := <-done:
		t.Errorf("a launch of the silent guest ended: %v", err)
	default:
	}
	if err := resume(); err != nil {
		t.Fatal(err)
	}
	h.Until("the guest to be met", func() error {
		if v := h.VM("silent"); v.Silent != "" || v.Confinement != nil && v.Confinement.UID != before.Confinement.UID {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(h.Timeout):
		t.Errorf("the guest's launch stands still: %+v", h.VM("silent"))
	}
	works(t, silent)
	weight := 3.0
	if v, err := h.Client.UpdateVM(ctx, "silent", api.VMUpdate{Weight: &weight}); err != nil || v.Weight != weight {
		t.Errorf("UpdateVM = %+v, %v", v, err)
	}
	by.goesOn()
}
