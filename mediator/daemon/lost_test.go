package daemon

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"vgpud/mediator/api"
	"vgpud/mediator/libvirt"
	"vgpud/mediator/statefile"
)

// TestLost: a guest whose process died stays in the list with its counts and the reason, also with
// the next daemon, until it is deleted.
func TestLost(t *testing.T) {
	dir := runDir(t)
	d := startDaemon(t, dir)
	v := d.create("a")
	newJob(t, attach(t, v.Socket)).works()
	d.charge("a", 7*ms)
	before := d.vm("a")
	signal(t, v.PID, unix.SIGKILL)
	until(t, "the guest is lost", func() bool { return d.vm("a").Lost != "" })
	check := func(what string) {
		t.Helper()
		after := d.vm("a")
		if !strings.Contains(after.Lost, "signal: killed") || !strings.Contains(after.Lost, "vgpuctl delete vm a") || after.LostAt == nil {
			t.Errorf("%s: it is lost because %q, at %v", what, after.Lost, after.LostAt)
		}
		if after.GPUSeconds < before.GPUSeconds || after.Kernels != 1 || after.GPU != "gpu0" || after.Socket != v.Socket || after.Attached || after.Contexts != 0 || after.PID != 0 {
			t.Errorf("%s: before %+v, after %+v", what, before, after)
		}
		h, err := d.client.Health(t.Context())
		if err != nil || h.Healthy || !strings.Contains(strings.Join(h.Problems, "\n"), "guest a is lost: ") {
			t.Errorf("%s: health %+v, %v", what, h, err)
		}
		if text := scrape(t, d.service); !strings.Contains(text, `vgpud_vm_lost{domain="",gpu="gpu0",vm="a"} 1`) ||
			!strings.Contains(text, `vgpud_vm_kernels_total{domain="",gpu="gpu0",vm="a"} 1`) {
			t.Errorf("%s: metrics:\n%s", what, text)
		}
		w := 3.0
		if _, err := d.client.UpdateVM(t.Context(), "a", api.VMUpdate{Weight: &w}); !errors.Is(err, api.ErrInUse) {
			t.Errorf("%s: UpdateVM = %v", what, err)
		}
	}
	check("the daemon that saw it")
	if g, err := d.service.GPU("gpu0"); err != nil || g.LostVMs != 1 {
		t.Errorf("%d guests were lost, %v", g.LostVMs, err)
	}
	d.stop()
	d = startDaemon(t, dir)
	check("the next daemon")
	if err := d.client.DeleteVM(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if _, err := d.client.VM(t.Context(), "a"); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("it was deleted: %v", err)
	}
	d.stop()
	d = startDaemon(t, dir)
	if vms := d.service.VMs(); len(vms) != 0 {
		t.Errorf("the next daemon shows %+v", vms)
	}
}

// TestLostWithoutDaemon: so it is if the process died while there was no daemon.
func TestLostWithoutDaemon(t *testing.T) {
	dir := runDir(t)
	d := startDaemon(t, dir)
	v := d.create("a")
	d.stop()
	signal(t, v.PID, unix.SIGKILL)
	processEnds(t, v.PID)
	d = startDaemon(t, dir)
	if v := d.vm("a"); !strings.Contains(v.Lost, "ended while no daemon ran") {
		t.Errorf("it is %+v", v)
	}
	// Another of its name replaces it.
	again := d.create("a")
	if v := d.vm("a"); v.Lost != "" || v.PID != again.PID {
		t.Errorf("it is %+v", v)
	}
	if err := d.client.ForceDeleteVM(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if _, err := d.client.VM(t.Context(), "a"); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("it was deleted: %v", err)
	}
}

// TestLostOutlivesTheHost: a lost guest is shown with the reason after a reboot of the host, too,
// where its VM is no problem any more.
func TestLostOutlivesTheHost(t *testing.T) {
	dir, state := runDir(t), runDir(t)
	start := func() *daemon {
		return startDaemonThat(t, dir, idleGPU{}, statefile.Files{}, func(c *Config) { c.StateDir = filepath.Join(state, "vgpud") }, "gpu0")
	}
	d := start()
	v := d.create("a")
	d.charge("a", 7*ms)
	signal(t, v.PID, unix.SIGKILL)
	until(t, "the guest is lost", func() bool { return d.vm("a").Lost != "" })
	file := d.service.lostFile("a")
	until(t, "that is saved", func() bool { _, err := os.Stat(file); return err == nil })
	d.stop()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b = bytes.Replace(b, []byte(bootID()), []byte("another boot"), 1)
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	dir = runDir(t)
	for range 2 { // by the next daemon, too
		d = start()
		after := d.vm("a")
		if !strings.Contains(after.Lost, "signal: killed") || !strings.Contains(after.Lost, "the host was booted since") || strings.Contains(after.Lost, "may go on") || after.GPUSeconds != 0.007 {
			t.Errorf("it is %+v", after)
		}
		if h, err := d.client.Health(t.Context()); err != nil || !h.Healthy {
			t.Errorf("health %+v, %v", h, err)
		}
		d.stop()
	}
	d = start()
	d.create("a")
	if v := d.vm("a"); v.Lost != "" {
		t.Errorf("another of its name is %+v", v)
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its file is left: %v", err)
	}
}

// TestLostEndsWithItsDomain: what is known of a lost guest goes when its domain ends, and no change
// of the domain reaches it.
func TestLostEndsWithItsDomain(t *testing.T) {
	d := startDaemon(t, runDir(t))
	v := d.createVM(api.VMSpec{Name: "web", Domain: "web", DomainUUID: testUUID, BAR2Bytes: 16 << 20})
	signal(t, v.PID, unix.SIGKILL)
	until(t, "the guest is lost", func() bool { return d.vm("web").Lost != "" })
	f := &follower{d.service}
	f.Changed(t.Context(), oneSource{&libvirt.Domain{Name: "renamed", UUID: testUUID, Active: true}}, libvirt.Event{UUID: testUUID})
	if v := d.vm("web"); v.Lost == "" || v.Domain != "web" {
		t.Errorf("it is %+v", v)
	}
	f.Changed(t.Context(), oneSource{&libvirt.Domain{Name: "web", UUID: testUUID}}, libvirt.Event{UUID: testUUID})
	if _, err := d.client.VM(t.Context(), "web"); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("its domain has ended: %v", err)
	}
}
