package unixmsg

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pair is two ends of a connection that keeps messages' bounds.
func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conn := func(fd int) *net.UnixConn {
		f := os.NewFile(uintptr(fd), "socket")
		c, err := net.FileConn(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c.(*net.UnixConn)
	}
	return conn(fds[0]), conn(fds[1])
}

// TestMessages sends messages with and without descriptors, and receives them with too little room.
func TestMessages(t *testing.T) {
	a, b := pair(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if n, err := Write(a, []byte("plain")); n != 5 || err != nil {
		t.Fatal(n, err)
	}
	if _, err := Write(a, []byte("two"), FDs([]*os.File{r, w})...); err != nil {
		t.Fatal(err)
	}
	buf, control := make([]byte, 16), make([]byte, 256)
	m, err := Read(b, buf, control)
	if err != nil || string(buf[:m.Bytes]) != "plain" || m.Files != nil || m.Truncated || m.Sender != (unix.Ucred{}) {
		t.Errorf("%q, %+v, %v", buf[:m.Bytes], m, err)
	}
	m, err = Read(b, buf, control)
	if err != nil || string(buf[:m.Bytes]) != "two" || len(m.Files) != 2 || m.Truncated {
		t.Fatalf("%q, %+v, %v", buf[:m.Bytes], m, err)
	}
	for _, f := range m.Files {
		if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("a child would inherit what was received: %#x, %v", flags, err)
		}
	}
	if _, err := m.Files[1].WriteString("x"); err != nil {
		t.Error(err)
	}
	if n, err := r.Read(buf); n != 1 || buf[0] != 'x' || err != nil {
		t.Errorf("the pipe is another: %d bytes, %v", n, err)
	}
	if err := errors.Join(CloseAll(m.Files), r.Close(), w.Close()); err != nil {
		t.Error(err)
	}
	if err := CloseAll(m.Files); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed twice: %v", err)
	}
}

// TestTruncated: what there is no room for is reported, and leaks no descriptor.
func TestTruncated(t *testing.T) {
	a, b := pair(t)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fd := int(null.Fd())
	for _, c := range []struct {
		name      string
		text      string
		fds       []int
		files     int
		truncated bool
	}{
		{"as long as there is room", "1234", []int{fd}, 1, false},
		{"longer", "12345", []int{fd}, 1, true},
		{"more descriptors", "1234", []int{fd, fd, fd}, 2, true},
	} {
		if _, err := Write(a, []byte(c.text), c.fds...); err != nil {
			t.Fatal(err)
		}
		m, err := Read(b, make([]byte, 4), make([]byte, unix.CmsgSpace(4)))
		if err != nil || m.Bytes != 4 || len(m.Files) != c.files || m.Truncated != c.truncated {
			t.Errorf("%s: %+v, %v", c.name, m, err)
		}
		if err := CloseAll(m.Files); err != nil {
			t.Error(err)
		}
	}
}

// TestSenderAndEnd: the sending process is told where the socket is asked for it, and the end of a
// connection is io.EOF.
func TestSenderAndEnd(t *testing.T) {
	a, b := pair(t)
	raw, err := b.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var set error
	if err := raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) }); err != nil || set != nil {
		t.Fatal(err, set)
	}
	if _, err := Write(a, []byte("x")); err != nil {
		t.Fatal(err)
	}
	m, err := Read(b, make([]byte, 4), make([]byte, 256))
	if want := (unix.Ucred{Pid: int32(os.Getpid()), Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid())}); err != nil || m.Sender != want {
		t.Errorf("sender %+v, %v, want %+v", m.Sender, err, want)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if m, err := Read(b, make([]byte, 4), make([]byte, 256)); !errors.Is(err, io.EOF) || m.Bytes != 0 {
		t.Errorf("at the end: %+v, %v", m, err)
	}
}

// TestClosedUnread: what a process sent is read though it ended without reading what was sent to it.
func TestClosedUnread(t *testing.T) {
	for _, waits := range []bool{false, true} {
		a, b := pair(t)
		if _, err := Write(b, []byte("unread")); err != nil {
			t.Fatal(err)
		}
		if _, err := Write(a, []byte("last words")); err != nil {
			t.Fatal(err)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if waits {
			if err := Wait(b); err != nil {
				t.Error(err)
			}
		}
		buf := make([]byte, 16)
		if m, err := Read(b, buf, nil); err != nil || string(buf[:m.Bytes]) != "last words" {
			t.Errorf("waits %v: %q, %v", waits, buf[:m.Bytes], err)
		}
		if m, err := Read(b, buf, nil); !errors.Is(err, io.EOF) {
			t.Errorf("waits %v: then %+v, %v", waits, m, err)
		}
	}
}

// TestParseGarbage: control data that is none is an error.
func TestParseGarbage(t *testing.T) {
	for _, b := range [][]byte{make([]byte, 16), {15: 0, 0: 200}} {
		if c, err := Parse(b); err == nil {
			t.Errorf("% x is %+v", b, c)
		}
	}
}

// TestPeer checks the credentials of the other end, which is this process, and of a closed
// connection.
func TestPeer(t *testing.T) {
	a, _ := pair(t)
	cred, err := Peer(a)
	if err != nil || int(cred.Pid) != os.Getpid() || int(cred.Uid) != os.Getuid() {
		t.Errorf("%+v, %v", cred, err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if cred, err := Peer(a); err == nil {
		t.Errorf("a closed connection has the peer %+v", cred)
	}
}

// TestWait: Wait returns when there is a message, which it leaves to Read, and at the end, and fails
// at the deadline and when the connection is closed.
func TestWait(t *testing.T) {
	a, b := pair(t)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	waited := make(chan error)
	go func() { waited <- Wait(b) }()
	if _, err := Write(a, []byte("x"), int(null.Fd())); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	if m, err := Read(b, make([]byte, 4), make([]byte, 256)); err != nil || m.Bytes != 1 || len(m.Files) != 1 || CloseAll(m.Files) != nil {
		t.Errorf("after Wait: %+v, %v", m, err)
	}
	if err := b.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if err := Wait(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("nothing came: %v", err)
	}
	if err := errors.Join(b.SetReadDeadline(time.Time{}), a.Close()); err != nil {
		t.Fatal(err)
	}
	if err := Wait(b); err != nil {
		t.Errorf("at the end: %v", err)
	}
	c, _ := pair(t)
	go func() { waited <- Wait(c) }()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
