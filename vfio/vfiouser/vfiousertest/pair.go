package vfiousertest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"vgpud/vfio/vfiouser"
)

// Sockets returns two connected unix sockets, closed at the end of the test.
func Sockets(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatalf("socketpair: %v", err)
	}
	var conns [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), fmt.Sprintf("socketpair end %d", i))
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatalf("connection of socketpair: %v", err)
		}
		conns[i] = c.(*net.UnixConn)
		t.Cleanup(func() { c.Close() })
	}
	return conns[0], conns[1]
}

// Serve serves dev on one end of a socket pair, and returns the other end. At the end of the test
// it stops the server and waits for it.
func Serve(t testing.TB, dev vfiouser.Device) *net.UnixConn {
	t.Helper()
	return ServeWith(t, &vfiouser.Server{Device: dev})
}

// ServeWith is Serve with a given server. It silences a server without a log.
func ServeWith(t testing.TB, srv *vfiouser.Server) *net.UnixConn {
	t.Helper()
	if srv.Log == nil {
		srv.Log = slog.New(slog.DiscardHandler)
	}
	client, server := Sockets(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.ServeConn(ctx, server)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return client
}

// Client returns a client of dev, which is served in this process. Both end with the test.
func Client(t testing.TB, dev vfiouser.Device) *vfiouser.Client {
	t.Helper()
	c, err := vfiouser.NewClient(context.Background(), Serve(t, dev), vfiouser.ClientOptions{})
	if err != nil {
		t.Fatalf("client: %v", err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Memfd returns a sealed file of size bytes for a mappable region. It is closed at the end of the
// test.
func Memfd(t testing.TB, size int64) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("vfiousertest", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatalf("memfd: %v", err)
	}
	f := os.NewFile(uintptr(fd), "memfd")
	t.Cleanup(func() { f.Close() })
	if err := f.Truncate(size); err != nil {
		t.Fatalf("memfd: %v", err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		t.Fatalf("seal memfd: %v", err)
	}
	return f
}
