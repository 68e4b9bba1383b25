package remote

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/internal/proctest"
)

// full reports whether a refusal means that there is no room, and not that there is no GPU.
func full(err error) bool {
	return errors.Is(err, gpu.ErrFull) && !errors.Is(err, gpu.ErrLost) && strings.Contains(err.Error(), "full")
}

// users are the credentials that the kernel reports for a test's connections.
type users struct {
	t    *testing.T
	path string
	uid  atomic.Uint32
}

func asUsers(t *testing.T, o ServerOptions) (*users, *Server) {
	u := &users{t: t}
	s, path := servingWith(t, o, func(*net.UnixConn) (*unix.Ucred, error) { return &unix.Ucred{Pid: 1, Uid: u.uid.Load()}, nil })
	u.path = path
	return u, s
}

// dial connects as a user, and returns when the server has recognized the user.
func (u *users) dial(uid uint32) (*soft.Device, error) {
	u.uid.Store(uid)
	d, err := Dial(u.t.Context(), u.path)
	if err == nil {
		u.t.Cleanup(func() {
			if err := d.Close(); err != nil {
				u.t.Error(err)
			}
		})
	}
	return d, err
}

// No user takes all connections, and all guests' users together leave room for the administrator.
func TestConnectionsPerUser(t *testing.T) {
	u, s := asUsers(t, ServerOptions{Connections: 16, PerUser: 4})
	var first *soft.Device
	for uid := uint32(5001); uid <= 5004; uid++ {
		room := 4
		if uid == 5004 {
			room = 3 // 16, less the four of three users, and a sixteenth
		}
		for i := range room {
			d, err := u.dial(uid)
			if err != nil {
				t.Fatalf("user %d, connection %d: %v", uid, i, err)
			}
			if first == nil {
				first = d
			}
		}
		if _, err := u.dial(uid); !full(err) {
			t.Errorf("user %d, one too many: %v", uid, err)
		}
	}
	if _, err := u.dial(0); err != nil {
		t.Errorf("root: %v", err)
	}
	if _, err := u.dial(0); !full(err) {
		t.Errorf("more than there are: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	for s.connections() > 15 {
		runtime.Gosched()
	}
	if _, err := u.dial(5001); !full(err) {
		t.Errorf("what is left is not a guest's: %v", err)
	}
	if _, err := u.dial(0); err != nil {
		t.Errorf("in place of one that has gone: %v", err)
	}
}

// The host's own users leave room, too.
func TestConnectionsOfTheHost(t *testing.T) {
	u, _ := asUsers(t, ServerOptions{Connections: 16})
	for range 12 {
		if _, err := u.dial(0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := u.dial(0); !full(err) {
		t.Errorf("one too many: %v", err)
	}
	if _, err := u.dial(5001); err != nil {
		t.Errorf("a guest: %v", err)
	}
}

// A guest's contexts are counted by its user, whatever their labels.
func TestContextsPerUser(t *testing.T) {
	u, s := asUsers(t, ServerOptions{PerUser: 3})
	contexts := func(uid uint32, label func(i int) string, want int) {
		t.Helper()
		d, err := u.dial(uid)
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if _, err := d.NewContext(t.Context(), gpu.ContextOptions{Label: label(i), MemoryLimit: 1 << 16}); err != nil {
				t.Fatalf("user %d, context %d: %v", uid, i, err)
			}
		}
		if _, err := d.NewContext(t.Context(), gpu.ContextOptions{Label: label(want), MemoryLimit: 1 << 16}); !full(err) || !errors.Is(err, gpu.ErrOutOfMemory) {
			t.Errorf("user %d, one too many: %v", uid, err)
		}
	}
	contexts(5001, func(i int) string { return fmt.Sprint("guest", i) }, 3)
	contexts(5002, func(int) string { return "" }, 3)
	contexts(5003, func(int) string { return "guest0" }, 3) // another guest's label
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.tenants); n != 3 {
		t.Errorf("%d owners, want 3", n)
	}
}

// A program that is refused before its first request gets the reason.
func TestRefusalsHaveReasons(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ends := [2]*net.UnixConn{}
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "")
		c, err := net.FileConn(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
	}
	refuse(ends[0], fmt.Errorf("%w: it has as many connections as it may have", gpu.ErrFull))
	if _, err := newDriver(ends[1]); !full(err) {
		t.Errorf("refused by %v", err)
	}
}

// The kernel's credentials distinguish users.
func TestRealUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be other users")
	}
	dir, err := os.MkdirTemp("", "vgpud-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	s, path := serving(t, ServerOptions{PerUser: 2})
	open := filepath.Join(dir, "gpu.sock")
	if err := errors.Join(os.Chmod(dir, 0o711), os.Chmod(path, 0o666), os.Rename(path, open)); err != nil {
		t.Fatal(err)
	}
	dialAs := func(uid int) error {
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // never unlocked, so that the thread ends
			if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); e != 0 {
				done <- e
				return
			}
			d, err := Dial(t.Context(), open)
			if err == nil {
				t.Cleanup(func() {
					if err := d.Close(); err != nil {
						t.Error(err)
					}
				})
			}
			done <- err
		}()
		return <-done
	}
	for _, uid := range []int{5001, 5002} {
		for i := range 3 {
			if err := dialAs(uid); (i < 2) != (err == nil) || err != nil && !full(err) {
				t.Errorf("user %d, connection %d: %v", uid, i, err)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users[5001] != 2 || s.users[5002] != 2 {
		t.Errorf("connected: %v", s.users)
	}
}

// The control of a context may outlive the context in any process, so it is limited, too.
func TestControlsPerUser(t *testing.T) {
	u := &users{t: t}
	s, path := servingOn(t, sliced, ServerOptions{PerUser: 2}, func(*net.UnixConn) (*unix.Ucred, error) { return &unix.Ucred{Pid: 1, Uid: u.uid.Load()}, nil })
	u.path = path
	hoard := func(uid uint32) (kept []gpu.Handles, err error) {
		d, err := u.dial(uid)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			c, err := d.NewContext(t.Context(), gpu.ContextOptions{MemoryLimit: 1 << 16})
			if err != nil {
				t.Fatal(err)
			}
			h, herr := c.(gpu.Handled).Handles()
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			if herr != nil {
				return kept, herr
			}
			kept = append(kept, h)
		}
		return kept, nil
	}
	kept, err := hoard(5001)
	if want := 4; len(kept) != want || !full(err) {
		t.Errorf("it has %d controls, want %d: %v", len(kept), want, err)
	}
	others, err := hoard(5002)
	if len(others) == 0 {
		t.Errorf("another user has none: %v", err)
	}
	for _, h := range append(kept, others...) {
		if err := h.Files[0].Close(); err != nil {
			t.Error(err)
		}
	}
	proctest.Until(t, "no controls are left", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.controls) == 0
	})
	if again, err := hoard(5001); len(again) == 0 {
		t.Errorf("none after all were closed: %v", err)
	} else {
		for _, h := range again {
			if err := h.Files[0].Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
