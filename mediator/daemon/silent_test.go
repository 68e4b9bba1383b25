package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"vgpud/internal/proctest"
	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
	"vgpud/mediator/statefile"
	guestproc "vgpud/mediator/vm"
)

// signal sends a guest's process a signal.
func signal(t *testing.T, pid int, s unix.Signal) {
	t.Helper()
	if err := unix.Kill(pid, s); err != nil {
		t.Fatal(err)
	}
}

// TestAdoptSilent: a guest whose process is stopped when the daemon starts is shown and suspended,
// and keeps its name. When the process goes on, the guest is adopted.
func TestAdoptSilent(t *testing.T) {
	dir := runDir(t)
	d := startDaemon(t, dir)
	silent, other := d.create("silent"), d.create("other")
	d.stop()
	proctest.Stop(t, silent.PID)
	d = startDaemon(t, dir) // which has waited for it
	until(t, "the other guest is adopted", func() bool { v := d.vm("other"); return v.Silent == "" && v.PID == other.PID })
	until(t, "the guest is shown, and suspended", func() bool {
		v := d.vm("silent")
		return v.Silent != "" && v.Suspended && v.PID == silent.PID && v.Socket == silent.Socket
	})
	_, err := d.client.CreateVM(t.Context(), api.VMSpec{Name: "silent", BAR2Bytes: 16 << 20})
	if err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("another of its name: %v", err)
	}
	if h, err := d.client.Health(t.Context()); err != nil || h.Healthy {
		t.Errorf("health is %+v, %v", h, err)
	}
	weight := 7.0
	if _, err := d.client.UpdateVM(t.Context(), "silent", api.VMUpdate{Weight: &weight}); err == nil {
		t.Error("it was changed")
	}
	signal(t, silent.PID, unix.SIGCONT)
	until(t, "the guest is adopted", func() bool { return d.vm("silent").Silent == "" })
	if _, err := d.client.UpdateVM(t.Context(), "silent", api.VMUpdate{Weight: &weight}); err != nil || d.vm("silent").Weight != weight {
		t.Errorf("it is %+v, %v", d.vm("silent"), err)
	}
}

// TestGuestsKnowTheDaemonLives: each guest's executors see that a daemon lives as long as one does,
// whether it has met the guest or not.
func TestGuestsKnowTheDaemonLives(t *testing.T) {
	dir := runDir(t)
	d := startDaemon(t, dir)
	v := d.create("silent")
	f, err := os.Open(filepath.Join(dir, "vms", "silent", guestproc.UntilFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lives := func() bool {
		lock := unix.Flock_t{Type: unix.F_WRLCK}
		if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
			t.Fatal(err)
		}
		return lock.Type == unix.F_RDLCK
	}
	if !lives() {
		t.Error("a new guest does not know that the daemon lives")
	}
	d.stop()
	if lives() {
		t.Error("without a daemon one seems to live")
	}
	proctest.Stop(t, v.PID)
	d = startDaemonAtOnce(t, dir)
	if d.vm("silent").Silent == "" || !lives() {
		t.Error("a guest that was not met does not know that the daemon lives")
	}
	d.stop()
	if lives() {
		t.Error("without the daemon that did not meet the guest, one seems to live")
	}
	d = startDaemonAtOnce(t, dir)
	signal(t, v.PID, unix.SIGCONT)
	until(t, "the guest is adopted", func() bool { return d.vm("silent").Silent == "" })
	if !lives() {
		t.Error("a guest that was adopted does not know that the daemon lives")
	}
}

// TestAdoptSilentDeleted: a guest that does not answer can be ended, and its name is free.
func TestAdoptSilentDeleted(t *testing.T) {
	dir := runDir(t)
	d := startDaemon(t, dir)
	v := d.create("silent")
	d.stop()
	proctest.Stop(t, v.PID)
	d = startDaemonAtOnce(t, dir)
	if err := d.client.DeleteVM(t.Context(), "silent"); err == nil {
		t.Error("it was ended without force")
	}
	if err := d.client.ForceDeleteVM(t.Context(), "silent"); err != nil {
		t.Error(err)
	}
	processEnds(t, v.PID)
	d.create("silent")
}

// liarVariable names the environment variable that says what a guest's process that was taken over
// does.
const liarVariable = "VGPUD_TEST_LIAR"

// runLiar sends a false introduction to every daemon. Its arguments are the directory of its
// sockets, whether its page is cut short, and the introduction.
func runLiar() error {
	var o struct {
		Dir   string
		Short bool
		Hello json.RawMessage
	}
	if err := json.Unmarshal([]byte(os.Getenv(liarVariable)), &o); err != nil {
		return err
	}
	sockets, err := guestproc.Listen(filepath.Join(o.Dir, "liar"), nil, o.Dir)
	if err != nil {
		return err
	}
	page, err := ipc.NewControlPage()
	if err != nil {
		return err
	}
	file := page.File()
	if o.Short {
		fd, err := unix.MemfdCreate("short", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
		if err != nil {
			return err
		}
		file = os.NewFile(uintptr(fd), "short")
		if _, err := file.Write(b); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	for {
		u, err := sockets.Control.AcceptUnix()
		if err != nil {
			return err
		}
		conn := ipc.NewConn(u)
		if err := conn.Send(ipc.Message{Kind: ipc.KindHello, Body: o.Hello, Files: []*os.File{file}}); err != nil {
			return err
		}
		go func() {
			for err := error(nil); err == nil; {
				_, err = conn.Receive()
			}
		}()
	}
}

// startLiar makes such a process guest "liar" of a daemon that is not running, and changes its
// saved state. It introduces itself as name.
func startLiar(t *testing.T, dir, name string, short bool, change func(*savedState)) (saved *savedState) {
	t.Helper()
	guest := filepath.Join(dir, "vms", "liar")
	saved, err := readState(guest)
	if err != nil {
		t.Fatal(err)
	}
	signal(t, saved.PID, unix.SIGKILL)
	processEnds(t, saved.PID)
	hello, err := json.Marshal(map[string]any{
		"version": "x", "name": name, "pid": os.Getpid(), "domain": "theirs", "domain_uuid": "11111111-2222-3333-4444-555555555555",
		"socket": "/etc/passwd", "cell": ipc.Sandbox{UID: 4711, Cgroup: "/sys/fs/cgroup"}, "gpu": ipc.GPU{Name: "gpu0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	o, err := json.Marshal(map[string]any{"Dir": guest, "Short": short, "Hello": json.RawMessage(hello)})
	if err != nil {
		t.Fatal(err)
	}
	cmd := inRole("liar")
	cmd.Env = append(cmd.Env, liarVariable+"="+string(o))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kill(cmd.Process); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // it was killed
	})
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	saved.PID = cmd.Process.Pid
	if saved.Began, err = startTime(saved.PID); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(saved)
	}
	if err := saved.write(statefile.Files{}, guest); err != nil {
		t.Fatal(err)
	}
	return saved
}

// TestAdoptLiar: a guest's process that was taken over is not believed anything that the daemon
// knows by itself, and its page does not end the daemon.
func TestAdoptLiar(t *testing.T) {
	for name, c := range map[string]struct {
		short  bool
		change func(honest api.VM) func(*savedState)
		refuse string
	}{
		"other name, user, cgroup, domain and socket": {},
		"page without seals":                          {short: true, refuse: "cut short"},
		"another process than was saved": {change: func(honest api.VM) func(*savedState) {
			return func(k *savedState) { k.PID = honest.PID }
		}, refuse: "introduced itself"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := runDir(t)
			d := startDaemon(t, dir)
			honest, liar := d.create("honest"), d.create("liar")
			d.stop()
			var change func(*savedState)
			if c.change != nil {
				change = c.change(honest)
			}
			saved := startLiar(t, dir, "honest", c.short, change)
			d = startDaemon(t, dir)
			v := d.vm("liar")
			if c.refuse != "" && !strings.Contains(v.Silent, c.refuse) || c.refuse == "" && v.Silent != "" {
				t.Errorf("it is refused for %q, want %q", v.Silent, c.refuse)
			}
			if v.PID != saved.PID || v.Socket != liar.Socket || v.Domain != "" || v.DomainUUID != "" || v.Confinement != nil && v.Confinement.UID == 4711 {
				t.Errorf("it is believed: %+v", v)
			}
			if h := d.vm("honest"); h.PID != honest.PID || h.Silent != "" {
				t.Errorf("the honest one is %+v", h)
			}
			if n := len(d.service.VMs()); n != 2 {
				t.Errorf("there are %d guests", n)
			}
		})
	}
}

// TestAdoptOlder: a guest of a daemon that saved less is believed once what it was created with, if
// it is the process that was saved and has that name. From then on that is saved.
func TestAdoptOlder(t *testing.T) {
	for name, refuse := range map[string]string{"liar": "", "honest": "it introduces itself as guest"} {
		t.Run(name, func(t *testing.T) {
			dir := runDir(t)
			d := startDaemon(t, dir)
			d.create("liar")
			d.stop()
			saved := startLiar(t, dir, name, false, func(k *savedState) { k.Spec, k.Began = ipc.Spec{}, 0 })
			d = startDaemon(t, dir)
			v := d.vm("liar")
			if refuse != "" {
				// Its first introduction is not what is expected of it the next time.
				s, ok := d.service.silentGuest("liar")
				for range 2 {
					if !ok {
						break
					}
					select {
					case s.retry <- struct{}{}: // received once the attempt before is over
						until(t, "it is tried again", func() bool {
							select {
							case <-s.gone:
								ok = false
							default:
							}
							return !ok || len(s.retry) == 0
						})
					case <-s.gone:
						ok = false
					}
				}
				if !ok {
					t.Fatalf("it is believed: %+v", d.service.VMs())
				}
				v := d.vm("liar")
				if !strings.Contains(v.Silent, refuse) {
					t.Errorf("it is refused for %q, want %q", v.Silent, refuse)
				}
				return
			}
			if c := v.Confinement; c == nil || c.UID != 0 || c.Cgroup != "" {
				t.Errorf("it has what the kernel says that it has not: %+v", c)
			}
			if v.Silent != "" || v.PID != saved.PID || v.Domain != "theirs" {
				t.Errorf("it is %+v", v)
			}
			k, err := readState(filepath.Join(dir, "vms", "liar"))
			if err != nil || k.Spec.Name != "liar" || k.Began != saved.Began && k.Began == 0 {
				t.Errorf("saved: %+v, %v", k, err)
			}
		})
	}
}
