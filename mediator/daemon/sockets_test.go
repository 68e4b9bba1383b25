package daemon

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"vgpud/mediator/api"
	"vgpud/vfio/vfiouser"
)

const someUUID, otherUUID = "5d4b2f6e-0b0a-4c56-9d3f-6b1f0a0e7c11", "5d4b2f6e-0b0a-4c56-9d3f-6b1f0a0e7c22"

// domainSocket returns the path of a domain's socket.
func (d *daemon) domainSocket(uuid, name string) string {
	return filepath.Join(d.config.RunDir, "domains", uuid, name)
}

// absent fails the test if there is a file at path.
func absent(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left: %v", path, err)
	}
}

func TestGuestOfADomain(t *testing.T) {
	d := startDaemon(t, runDir(t))
	first, second := d.domainSocket(someUUID, "gpu0.sock"), d.domainSocket(someUUID, "gpu1.sock")
	spec := api.VMSpec{
		Name: "web", Domain: "web server", DomainUUID: strings.ToUpper(someUUID), Socket: first, BAR2Bytes: 16 << 20,
		Weight: 2, Cap: 0.75, Guarantee: 0.25, PriorityCeiling: 3, Peer: &api.Peer{PID: os.Getpid()},
	}
	v := d.createVM(spec)
	if v.Domain != "web server" || v.DomainUUID != someUUID || v.Socket != first || v.GPU != "gpu0" ||
		v.Cap != 0.75 || v.Guarantee != 0.25 || v.PriorityCeiling != 3 || v.Peer == nil || v.Peer.PID != os.Getpid() {
		t.Errorf("made %+v", v)
	}
	for _, dir := range []string{filepath.Dir(first), filepath.Dir(filepath.Dir(first))} {
		if st, err := os.Stat(dir); err != nil || st.Mode() != fs.ModeDir|0o711 {
			t.Errorf("%s: %v, %v", dir, st.Mode(), err)
		}
	}
	if st, err := os.Stat(first); err != nil || st.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("the socket: %v, %v", st, err)
	}
	newJob(t, attach(t, first)).works()

	again := spec
	again.Name = "web-2"
	if _, err := d.client.CreateVM(t.Context(), again); !errors.Is(err, api.ErrExists) || !strings.Contains(err.Error(), `guest "web" has it`) {
		t.Errorf("a second guest at the socket: %v", err)
	}
	again.Socket, again.Guarantee = second, 0
	d.createVM(again)
	for _, by := range []string{someUUID, strings.ToUpper(someUUID), "web server"} {
		if vms, err := d.client.DomainVMs(t.Context(), by); err != nil || len(vms) != 2 {
			t.Errorf("guests of %q: %+v, %v", by, vms, err)
		}
	}
	if vms, err := d.client.DomainVMs(t.Context(), otherUUID); err != nil || len(vms) != 0 {
		t.Errorf("guests of another domain: %+v, %v", vms, err)
	}
	// The directory goes with the last guest.
	if err := d.client.ForceDeleteVM(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	absent(t, first)
	if _, err := os.Stat(second); err != nil {
		t.Error(err)
	}
	if err := d.client.ForceDeleteVM(t.Context(), "web-2"); err != nil {
		t.Fatal(err)
	}
	absent(t, filepath.Dir(first))
}

// TestForeignVMM: only the process that is named may connect. Others are told what is wrong in the
// answer to VERSION.
func TestForeignVMM(t *testing.T) {
	d := startDaemon(t, runDir(t))
	file := filepath.Join(t.TempDir(), "vm.pid")
	v := d.createVM(api.VMSpec{Name: "a", BAR2Bytes: 16 << 20, Peer: &api.Peer{PIDFile: file}})
	for _, c := range []struct {
		text string
		want error
	}{{"", syscall.EAGAIN}, {"1", syscall.EPERM}, {"\n", syscall.EAGAIN}} {
		if c.text != "" {
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var refused *vfiouser.Error
		_, err := vfiouser.Dial(t.Context(), v.Socket)
		if !errors.Is(err, c.want) || !errors.As(err, &refused) || refused.Cmd != vfiouser.CmdVersion {
			t.Errorf("with %q in the file: %v, want %v to VERSION", c.text, err, c.want)
		}
	}
	if d.vm("a").Attached {
		t.Error("a foreign VMM is attached")
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		t.Fatal(err)
	}
	newJob(t, attach(t, v.Socket)).works()
	if _, err := vfiouser.Dial(t.Context(), v.Socket); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("a second connection: %v, want EBUSY", err)
	}
}

// TestTermsOutliveTheDaemon: what a guest is granted outlives the daemon, and so does its domain's
// name.
func TestTermsOutliveTheDaemon(t *testing.T) {
	dir := runDir(t)
	d := startDaemon(t, dir)
	d.createVM(api.VMSpec{Name: "a", Domain: "old", DomainUUID: someUUID, Socket: d.domainSocket(someUUID, "gpu0.sock"), BAR2Bytes: 16 << 20, Weight: 3})
	limit, guarantee, ceiling, name := 0.7, 0.1, 5, "new"
	want, err := d.client.UpdateVM(t.Context(), "a", api.VMUpdate{Cap: &limit, Guarantee: &guarantee, PriorityCeiling: &ceiling, Domain: &name})
	if err != nil {
		t.Fatal(err)
	}
	if want.Weight != 3 || want.Cap != limit || want.Guarantee != guarantee || want.PriorityCeiling != ceiling || want.Domain != name {
		t.Errorf("updated to %+v", want)
	}
	d.stop()
	d = startDaemon(t, dir)
	got := d.vm("a")
	if got.Weight != 3 || got.Cap != limit || got.Guarantee != guarantee || got.PriorityCeiling != ceiling || got.Domain != name || got.Socket != want.Socket {
		t.Errorf("after a restart: %+v, want %+v", got, want)
	}
	newJob(t, attach(t, got.Socket)).works()
	if err := d.client.ForceDeleteVM(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	absent(t, filepath.Dir(got.Socket))
	processEnds(t, got.PID)
}

// TestGuaranteesAreAdmitted as long as they sum to at most 1.
func TestGuaranteesAreAdmitted(t *testing.T) {
	d := startDaemon(t, runDir(t))
	d.createVM(api.VMSpec{Name: "a", BAR2Bytes: 16 << 20, Guarantee: 0.6})
	spec := api.VMSpec{Name: "b", BAR2Bytes: 16 << 20, Guarantee: 0.5}
	_, err := d.client.CreateVM(t.Context(), spec)
	if !errors.Is(err, api.ErrNoRoom) || !strings.Contains(err.Error(), "gpu0 has 0.4 of its time left") {
		t.Errorf("on any GPU: %v", err)
	}
	spec.GPU = "gpu0"
	_, err = d.client.CreateVM(t.Context(), spec)
	if !errors.Is(err, api.ErrNoRoom) || !strings.Contains(err.Error(), "of the time of GPU gpu0 0.4 is left") {
		t.Errorf("on a GPU: %v", err)
	}
	spec.Guarantee = 0.4
	d.createVM(spec)
	set := func(name string, u api.VMUpdate) error {
		_, err := d.client.UpdateVM(t.Context(), name, u)
		return err
	}
	more, less, half := 0.45, 0.3, 0.5
	if err := set("b", api.VMUpdate{Guarantee: &more}); !errors.Is(err, api.ErrNoRoom) {
		t.Errorf("more than is left: %v", err)
	}
	if err := set("b", api.VMUpdate{Guarantee: &less}); err != nil {
		t.Errorf("less: %v", err)
	}
	if err := set("a", api.VMUpdate{Cap: &half}); !errors.Is(err, api.ErrInvalid) {
		t.Errorf("a cap below the guarantee: %v", err)
	}
	if v := d.vm("a"); v.Cap != 0 || v.Guarantee != 0.6 {
		t.Errorf("after a refusal: %+v", v)
	}
	if err := d.client.ForceDeleteVM(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	more = 1
	if err := set("b", api.VMUpdate{Guarantee: &more}); err != nil {
		t.Errorf("all of it: %v", err)
	}
}

// TestSocketPaths: only the canonical form of a path is accepted.
func TestSocketPaths(t *testing.T) {
	d := startDaemon(t, runDir(t))
	run := d.config.RunDir
	good := d.domainSocket(someUUID, "gpu0.sock")
	for _, path := range []string{
		"gpu0.sock", "/tmp/gpu0.sock", filepath.Join(run, "gpu0.sock"), filepath.Join(run, "vms", "a", "vfio-user.sock"), run,
		d.domainSocket("..", "gpu0.sock"), run + "/domains/" + someUUID + "/../" + someUUID + "/gpu0.sock", run + "/domains//" + someUUID + "/gpu0.sock",
		run + "/./domains/" + someUUID + "/gpu0.sock", good + "/", good + "x", d.domainSocket(someUUID, "gpu.sock"), d.domainSocket(someUUID, "gpu00.sock"),
		d.domainSocket(someUUID, "gpu-1.sock"), d.domainSocket(someUUID, "gpu100.sock"), d.domainSocket(strings.ToUpper(someUUID), "gpu0.sock"),
		d.domainSocket("web", "gpu0.sock"), filepath.Join(run, "domains", someUUID, "x", "gpu0.sock"), good + "\x00",
	} {
		if _, err := d.client.CreateVM(t.Context(), api.VMSpec{Name: "a", Socket: path}); !errors.Is(err, api.ErrInvalid) || !strings.Contains(err.Error(), "UUID/gpuN.sock") {
			t.Errorf("%q: %v", path, err)
		}
	}
	if _, err := d.client.CreateVM(t.Context(), api.VMSpec{Name: "a", Socket: good, DomainUUID: otherUUID}); !errors.Is(err, api.ErrInvalid) {
		t.Errorf("another domain's directory: %v", err)
	}
	absent(t, filepath.Join(run, "domains", someUUID))

	// Files in the way are not followed, and not removed.
	elsewhere := t.TempDir()
	spec := api.VMSpec{Name: "a", Socket: good, BAR2Bytes: 16 << 20}
	for what, put := range map[string]func(string) error{
		"a link":                 func(p string) error { return os.Symlink(elsewhere, p) },
		"a file":                 func(p string) error { return os.WriteFile(p, nil, 0o600) },
		"anybody's directory":    func(p string) error { return errors.Join(os.Mkdir(p, 0o700), os.Chmod(p, 0o777)) },
		"a link to nothing":      func(p string) error { return os.Symlink("nowhere", p) },
		"a link within its room": func(p string) error { return os.Symlink("../vms", p) },
	} {
		dir := filepath.Dir(good)
		if err := errors.Join(os.MkdirAll(filepath.Dir(dir), 0o711), put(dir)); err != nil {
			t.Fatal(err)
		}
		if _, err := d.client.CreateVM(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "a directory of the daemon's own") {
			t.Errorf("%s in its place: %v", what, err)
		}
		if _, err := os.Lstat(dir); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := os.ReadDir(elsewhere); err != nil || len(left) > 0 {
		t.Errorf("%v, %v behind the link", left, err)
	}
	absent(t, filepath.Join(run, "vms", "a"))
	long := startDaemon(t, filepath.Join(mkdir(t, runDir(t), strings.Repeat("d", 50))))
	if _, err := long.client.CreateVM(t.Context(), api.VMSpec{Name: "a", Socket: long.domainSocket(someUUID, "gpu0.sock")}); err == nil ||
		!strings.Contains(err.Error(), "configure a shorter run_dir") {
		t.Errorf("a path that is too long: %v", err)
	}
}

func mkdir(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.Mkdir(path, 0o711); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestStaleDomainSockets: a daemon that starts removes the sockets of guests that ended without a
// daemon.
func TestStaleDomainSockets(t *testing.T) {
	dir := runDir(t)
	d := startDaemon(t, dir)
	dead := d.createVM(api.VMSpec{Name: "dead", Socket: d.domainSocket(someUUID, "gpu0.sock"), BAR2Bytes: 16 << 20})
	lives := d.createVM(api.VMSpec{Name: "lives", Socket: d.domainSocket(otherUUID, "gpu0.sock"), BAR2Bytes: 16 << 20})
	d.stop()
	if err := unix.Kill(dead.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	processEnds(t, dead.PID)
	// If there is a guest that it can't adopt, it leaves sockets that a process listens on.
	odd, err := vfiouser.Listen(filepath.Join(mkdir(t, filepath.Join(dir, "domains"), "5d4b2f6e-0b0a-4c56-9d3f-6b1f0a0e7c33"), "gpu7.sock"), nil)
	if err != nil {
		t.Fatal(err)
	}
	stray, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: filepath.Join(mkdir(t, filepath.Join(dir, "vms"), "stray"), "control.sock")})
	if err != nil {
		t.Fatal(err)
	}
	said := make(chan error, 1)
	go func() {
		c, err := stray.Accept()
		if err == nil {
			err = c.Close() // nothing is sent
		}
		said <- err
	}()
	d = startDaemon(t, dir)
	absent(t, filepath.Dir(dead.Socket))
	newJob(t, attach(t, lives.Socket)).works()
	if _, err := os.Lstat(odd.Addr().String()); err != nil {
		t.Error(err)
	}
	// Later no process listens, and what is left is stale.
	d.stop()
	odd.SetUnlinkOnClose(false)
	if err := errors.Join(<-said, odd.Close(), stray.Close()); err != nil {
		t.Error(err)
	}
	d = startDaemon(t, dir)
	absent(t, filepath.Dir(odd.Addr().String()))
	if err := d.client.ForceDeleteVM(t.Context(), "lives"); err != nil {
		t.Error(err)
	}
	processEnds(t, lives.PID)
}
