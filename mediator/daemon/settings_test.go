package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"vgpud/internal/proctest"
	"vgpud/mediator/api"
	"vgpud/mediator/events"
	"vgpud/mediator/statefile"
)

// disk is a disk whose steps fail once the test says so.
type disk struct{ fault atomic.Pointer[fault] }

// fault says what fails, and how.
type fault struct {
	step statefile.Step
	err  error
}

func (d *disk) files() statefile.Files {
	return statefile.Files{Fault: func(s statefile.Step, _ string) error {
		if f := d.fault.Load(); f != nil && f.step == s {
			return f.err
		}
		return nil
	}}
}

// settings are what the API can change of a daemon.
type settings struct {
	weight float64
	policy string
	vms    int
	limit  time.Duration // of kernels' time
}

func (d *daemon) settings() settings {
	d.t.Helper()
	v := d.vm("a")
	return settings{v.Weight, d.gpu().Policy, len(d.service.VMs()), v.KernelTimeLimit}
}

// tryCreate tries to create a guest, which should fail, and returns the error.
func (d *daemon) tryCreate(spec api.VMSpec) error {
	v, err := d.client.CreateVM(d.t.Context(), spec)
	if err == nil {
		d.endWithTest(v)
	}
	return err
}

// TestSettingsAreKeptOrRefused: whichever step of saving a change fails, the change is refused with
// what to do, and this daemon and the next keep the old settings. Without a fault they have the new
// ones.
func TestSettingsAreKeptOrRefused(t *testing.T) {
	dir := runDir(t)
	var disk disk
	start := func() *daemon { return startDaemonWith(t, dir, idleGPU{}, disk.files()) }
	d := start()
	first := d.create("a")
	before := d.settings()
	weight, policy, limit := 7.0, "dfq", 3*time.Second
	for _, step := range []statefile.Step{statefile.Create, statefile.Write, statefile.Sync, statefile.Rename, statefile.SyncDir} {
		disk.fault.Store(&fault{step, unix.ENOSPC})
		_, uerr := d.client.UpdateVM(t.Context(), "a", api.VMUpdate{Weight: &weight, KernelTimeLimit: &limit})
		_, perr := d.client.UpdateGPU(t.Context(), "gpu0", api.GPUUpdate{Policy: &policy})
		cerr := d.tryCreate(api.VMSpec{Name: "b", BAR2Bytes: 16 << 20})
		for _, err := range []error{uerr, perr, cerr} {
			if !errors.Is(err, api.ErrNotSaved) || errors.Is(err, api.ErrNoRoom) || !strings.Contains(err.Error(), "make room there, and try again") {
				t.Errorf("%s fails: %v", step, err)
			}
		}
		if got := d.settings(); got != before {
			t.Errorf("%s fails: %+v, want %+v", step, got, before)
		}
		disk.fault.Store(nil)
		d.stop()
		d = start()
		if got := d.settings(); got != before {
			t.Errorf("%s fails: the next daemon has %+v, want %+v", step, got, before)
		}
		if d.vm("a").PID != first.PID {
			t.Fatal("the guest is another")
		}
	}
	if _, err := d.client.UpdateVM(t.Context(), "a", api.VMUpdate{Weight: &weight, KernelTimeLimit: &limit}); err != nil {
		t.Error(err)
	}
	if _, err := d.client.UpdateGPU(t.Context(), "gpu0", api.GPUUpdate{Policy: &policy}); err != nil {
		t.Error(err)
	}
	d.stop()
	d = start()
	if got, want := d.settings(), (settings{weight, policy, 1, limit}); got != want {
		t.Errorf("the next daemon has %+v, want %+v", got, want)
	}

	// A guest that has ended stays so, and the caller is told what is left.
	disk.fault.Store(&fault{statefile.Remove, unix.EROFS})
	if err := d.client.ForceDeleteVM(t.Context(), "a"); !errors.Is(err, api.ErrNotSaved) || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("files can't be removed: %v", err)
	}
	processEnds(t, first.PID)
	disk.fault.Store(nil)
	d.create("a")
	if err := d.client.ForceDeleteVM(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

// TestPolicyOutlivesTheDaemon as long as the configuration does not change.
func TestPolicyOutlivesTheDaemon(t *testing.T) {
	dir := runDir(t)
	d := startDaemon(t, dir)
	policy := "hpf"
	set := func() {
		t.Helper()
		if _, err := d.client.UpdateGPU(t.Context(), "gpu0", api.GPUUpdate{Policy: &policy}); err != nil {
			t.Fatal(err)
		}
	}
	again := func() {
		d.stop()
		d = startDaemon(t, dir)
	}
	set()
	again()
	if got := d.gpu().Policy; got != policy {
		t.Errorf("policy %s, want %s", got, policy)
	}
	// A configuration with another policy holds, also for later daemons.
	if _, err := d.service.Reload(d.change(func(c *Config) { c.GPUs[0].Policy = "dfq" })); err != nil {
		t.Fatal(err)
	}
	again()
	if got, want := d.gpu().Policy, d.config.GPUs[0].Policy; got != want {
		t.Errorf("policy %s, want %s", got, want)
	}
	// So does one that was changed while there was no daemon.
	file := d.service.policyFile("gpu0")
	for text, want := range map[string]string{
		`{"policy": "hpf", "configured": "ffs"}`:      "none",
		`{"policy": "lottery", "configured": "none"}`: "none",
		`{"policy`: "none",
		`{"policy": "hpf", "configured": "none"}`: "hpf",
	} {
		d.stop()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		d = startDaemon(t, dir)
		if got := d.gpu().Policy; got != want {
			t.Errorf("policy %s with the note %s", got, text)
		}
	}
}

// TestPolicyOutlivesTheHost: a policy that was set holds over a reboot of the host, which empties run_dir,
// and over the change from a daemon that kept it in run_dir.
func TestPolicyOutlivesTheHost(t *testing.T) {
	dir, state := runDir(t), runDir(t)
	start := func() *daemon {
		return startDaemonThat(t, dir, idleGPU{}, statefile.Files{}, func(c *Config) { c.StateDir = filepath.Join(state, "vgpud") }, "gpu0")
	}
	reboot := func(d *daemon) *daemon {
		d.stop()
		dir = runDir(t)
		return start()
	}
	want := func(d *daemon, what, policy string) {
		t.Helper()
		if got := d.gpu().Policy; got != policy {
			t.Errorf("%s: policy %s, want %s", what, got, policy)
		}
	}
	d, policy := start(), "hpf"
	d.updateGPU("gpu0", api.GPUUpdate{Policy: &policy})
	d = reboot(d)
	want(d, "after a reboot", policy)

	// As an earlier daemon had it.
	d.stop()
	if err := os.MkdirAll(filepath.Dir(d.service.earlierPolicyFile("gpu0")), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(d.service.policyFile("gpu0"), d.service.earlierPolicyFile("gpu0")); err != nil {
		t.Fatal(err)
	}
	d = start()
	want(d, "after an upgrade", policy)
	d = reboot(d)
	want(d, "after an upgrade and a reboot", policy)

	// One that is configured anew holds from then on.
	if _, err := d.service.Reload(d.change(func(c *Config) { c.GPUs[0].Policy = "dfq" })); err != nil {
		t.Fatal(err)
	}
	d = reboot(d)
	want(d, "after a reload and a reboot", d.config.GPUs[0].Policy)
}

// TestPolicyChangeIsAnEvent: a new policy is an event, which says what it is. One that the GPU has
// already is none, and a name that is none is refused with the one that may be meant.
func TestPolicyChangeIsAnEvent(t *testing.T) {
	d := startDaemon(t, runDir(t))
	for _, policy := range []string{"hpf", "hpf", "dfq"} {
		if _, err := d.client.UpdateGPU(t.Context(), "gpu0", api.GPUUpdate{Policy: &policy}); err != nil {
			t.Fatal(err)
		}
	}
	var changes []string
	all, _, _ := d.service.events.Since("")
	for _, e := range all {
		if e.Kind == events.PolicyChanged {
			changes = append(changes, e.Details["policy"])
		}
	}
	if diff := cmp.Diff([]string{"hpf", "dfq"}, changes); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	wrong := "dfqq"
	if _, err := d.client.UpdateGPU(t.Context(), "gpu0", api.GPUUpdate{Policy: &wrong}); !errors.Is(err, api.ErrInvalid) || !strings.Contains(err.Error(), "; do you mean dfq?") {
		t.Errorf("policy %q: %v", wrong, err)
	}
}

// TestReloadIsKeptOrRefused: a saved policy that can't be removed stays.
func TestReloadIsKeptOrRefused(t *testing.T) {
	var disk disk
	d := startDaemonWith(t, runDir(t), idleGPU{}, disk.files())
	policy := "hpf"
	if _, err := d.client.UpdateGPU(t.Context(), "gpu0", api.GPUUpdate{Policy: &policy}); err != nil {
		t.Fatal(err)
	}
	next := d.change(func(c *Config) { c.GPUs[0].Policy = "dfq" })
	disk.fault.Store(&fault{statefile.Remove, unix.EROFS})
	if _, err := d.service.Reload(next); !errors.Is(err, api.ErrNotSaved) {
		t.Errorf("on a read-only disk: %v", err)
	}
	if got := d.gpu().Policy; got != policy {
		t.Errorf("policy %s, want %s", got, policy)
	}
	disk.fault.Store(nil)
	if _, err := d.service.Reload(next); err != nil || d.gpu().Policy != "dfq" {
		t.Errorf("policy %s, %v", d.gpu().Policy, err)
	}
}

// TestRealDisks: errors of a full disk and of a read-only one are recognised.
func TestRealDisks(t *testing.T) {
	dir := runDir(t)
	if err := unix.Mount("vgpud-test", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=256k"); err != nil {
		t.Skipf("no file system of a test's own, which takes CAP_SYS_ADMIN: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	// A file system with a database that is open can't be made read-only.
	record := filepath.Join(t.TempDir(), "usage.sqlite")
	d := startDaemonRecording(t, dir, record, idleGPU{}, statefile.Files{}, "gpu0")
	d.create("a")
	before := d.settings()
	weight, policy := 7.0, "dfq"
	refused := func(what string) {
		t.Helper()
		_, uerr := d.client.UpdateVM(t.Context(), "a", api.VMUpdate{Weight: &weight})
		_, perr := d.client.UpdateGPU(t.Context(), "gpu0", api.GPUUpdate{Policy: &policy})
		cerr := d.tryCreate(api.VMSpec{Name: "b", BAR2Bytes: 16 << 20})
		for _, err := range []error{uerr, perr, cerr} {
			if !errors.Is(err, api.ErrNotSaved) || !strings.Contains(err.Error(), what) {
				t.Errorf("want %q: %v", what, err)
			}
		}
		if got := d.settings(); got != before {
			t.Errorf("%+v, want %+v", got, before)
		}
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("a file too large: %v", err)
	}
	refused("make room there")
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	remount := func(flags uintptr) {
		t.Helper()
		if err := unix.Mount("vgpud-test", dir, "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV|flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	remount(unix.MS_RDONLY)
	refused("make its file system writable")
	remount(0)
	d.stop()
	d = startDaemonRecording(t, dir, record, idleGPU{}, statefile.Files{}, "gpu0")
	if got := d.settings(); got != before {
		t.Errorf("the next daemon has %+v, want %+v", got, before)
	}
	if _, err := d.client.UpdateVM(t.Context(), "a", api.VMUpdate{Weight: &weight}); err != nil {
		t.Error(err)
	}
	if err := d.client.ForceDeleteVM(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	d.stop()
}

// TestUnexpectedState: a pipe or a large file in the place of saved state keeps no daemon from
// starting.
func TestUnexpectedState(t *testing.T) {
	dir := runDir(t)
	d := startDaemon(t, dir)
	v := d.create("a")
	notes := []string{filepath.Join(dir, "vms", "a", stateFile), filepath.Join(dir, "gpus", "gpu0.json")}
	for _, put := range []func(string) error{
		func(path string) error { return unix.Mkfifo(path, 0o600) },
		func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 200<<20))
		},
		func(path string) error { return os.Symlink("/dev/zero", path) },
	} {
		d.stop()
		for _, note := range notes {
			if err := errors.Join(os.MkdirAll(filepath.Dir(note), 0o700), os.RemoveAll(note), put(note)); err != nil {
				t.Fatal(err)
			}
		}
		read := make(chan error, 1)
		go func() {
			_, err := readState(filepath.Dir(notes[0]))
			read <- err
		}()
		if err := proctest.Receive(t, "the end of reading what is there", read); err == nil || !strings.Contains(err.Error(), "remove it") {
			t.Errorf("read: %v", err)
		}
		d = startDaemon(t, dir)
		if got := d.gpu().Policy; got != "none" {
			t.Errorf("policy %s", got)
		}
	}
	if err := d.client.ForceDeleteVM(t.Context(), "a"); err != nil && !errors.Is(err, api.ErrNotFound) {
		t.Error(err)
	}
	processEnds(t, v.PID)
}

// TestNamesAreSavedFirst: a guest has a new owner once that is saved, as it has everything else. Otherwise
// another change that fails meanwhile would take a name back that was acknowledged.
func TestNamesAreSavedFirst(t *testing.T) {
	var early atomic.Bool
	var watched atomic.Pointer[guest]
	files := statefile.Files{Fault: func(s statefile.Step, path string) error {
		if g := watched.Load(); g != nil && s == statefile.Rename && filepath.Base(path) == stateFile && g.domainNow().Owner != "alice" {
			early.Store(true)
		}
		return nil
	}}
	d := startDaemonWith(t, runDir(t), idleGPU{}, files)
	d.createVM(api.VMSpec{Name: "a", BAR2Bytes: 16 << 20, Owner: "alice"})
	watched.Store(d.guest("a"))
	if _, err := d.client.UpdateVM(t.Context(), "a", api.VMUpdate{Owner: new("bob")}); err != nil {
		t.Fatal(err)
	}
	watched.Store(nil)
	if early.Load() {
		t.Error("it had its new owner before that was saved")
	}
	if v := d.vm("a"); v.Owner != "bob" {
		t.Errorf("its owner is %q", v.Owner)
	}
}
