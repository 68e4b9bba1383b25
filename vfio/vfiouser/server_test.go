package vfiouser_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"vgpud/vfio/vfiouser"
	"vgpud/vfio/vfiouser/vfiousertest"
)

// serveAt serves srv at a path of its own. It returns the path and a function that stops the server
// and waits for it.
func serveAt(t *testing.T, srv *vfiouser.Server) (path string, stop func() error) {
	t.Helper()
	if srv.Log == nil {
		srv.Log = quiet()
	}
	path = filepath.Join(t.TempDir(), "gpu.sock")
	l, err := vfiouser.Listen(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ctx, l) }()
	var once sync.Once
	var result error
	stop = func() error {
		once.Do(func() {
			cancel()
			result = <-served
		})
		return result
	}
	t.Cleanup(func() { _ = stop() })
	return path, stop
}

func dial(t *testing.T, path string) *vfiouser.Client {
	t.Helper()
	c, err := vfiouser.Dial(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// A client that connects while the last one is being detached waits for that.
func TestNextClientWaitsForTheLast(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	dev := gpuLike(t)
	leaving, gone := make(chan struct{}), make(chan struct{})
	var once sync.Once
	dev.OnDetach = func(*vfiouser.Session) { once.Do(func() { close(leaving); <-gone }) }
	path, _ := serveAt(t, &vfiouser.Server{Device: dev, Handover: time.Minute})
	if err := dial(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	<-leaving
	next := make(chan error, 1)
	go func() {
		c, err := vfiouser.Dial(context.Background(), path)
		if err == nil {
			err = c.Close()
		}
		next <- err
	}()
	select {
	case err := <-next:
		t.Errorf("it did not wait: %v", err)
	case <-time.After(20 * time.Millisecond): // long enough for a wrong accept
	}
	close(gone)
	if err := <-next; err != nil {
		t.Error(err)
	}
}

// A client does not wait only for Handover if the one before has gone, and it is only the server that
// takes longer: to detach it, or to notice, while the device carries out its last request.
func TestNextClientWaitsForASlowServer(t *testing.T) {
	for _, c := range []struct {
		name string
		slow func(*vfiousertest.Device, func())
	}{
		{"to detach", func(d *vfiousertest.Device, wait func()) { d.OnDetach = func(*vfiouser.Session) { wait() } }},
		{"to notice", func(d *vfiousertest.Device, wait func()) { d.OnReset = func() error { wait(); return nil } }},
	} {
		t.Run(c.name, func(t *testing.T) {
			vfiousertest.CheckLeaks(t)
			dev := gpuLike(t)
			slow, goOn := make(chan struct{}), make(chan struct{})
			var once sync.Once
			c.slow(dev, func() { once.Do(func() { close(slow); <-goOn }) })
			const handover = 20 * time.Millisecond
			path, _ := serveAt(t, &vfiouser.Server{Device: dev, Handover: handover})
			r := connect(t, path)
			r.Negotiate()
			r.Send(vfiouser.CmdDeviceReset, 0, nil)
			if err := r.Conn.Close(); err != nil {
				t.Fatal(err)
			}
			<-slow
			next := make(chan error, 1)
			go func() {
				client, err := vfiouser.Dial(context.Background(), path)
				if err == nil {
					err = client.Close()
				}
				next <- err
			}()
			select {
			case err := <-next:
				t.Errorf("it did not wait: %v", err)
				next <- nil
			case <-time.After(10 * handover): // long enough for a wrong refusal
			}
			close(goOn)
			if err := <-next; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOneClientAtATime(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	dev := gpuLike(t)
	srv := &vfiouser.Server{Device: dev, Handover: 100 * time.Millisecond}
	path, _ := serveAt(t, srv)
	first := dial(t, path)
	if _, err := vfiouser.Dial(context.Background(), path); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("second client: %v, want EBUSY", err)
	}
	if err := first.WriteUint32(0, 0, 5); err != nil {
		t.Errorf("the first client was disturbed: %v", err)
	}
	// The next client may connect right after the first has disconnected, and finds no state of it.
	for i := range 20 {
		first.Close()
		first = dial(t, path)
		if v, err := first.ReadUint32(0, 0); v != 0 || err != nil {
			t.Fatalf("client %d finds %d of the one before, %v", i+2, v, err)
		}
		e := eventfds(t, 1)[0]
		if err := errors.Join(first.WriteUint32(0, 0, 5), first.EnableIRQs(vfiouser.IRQMSI, 0, e)); err != nil {
			t.Fatal(err)
		}
	}
	if s := srv.Stats(); s.Clients != 21 || s.Refused != 1 || s.Broken != 0 {
		t.Errorf("counts %+v", s)
	}
}

func TestSessionAfterTheClientHasGone(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	dev := gpuLike(t)
	var s *vfiouser.Session
	gone := make(chan struct{})
	dev.OnDetach = func(x *vfiouser.Session) {
		s = x
		close(gone)
	}
	path, _ := serveAt(t, &vfiouser.Server{Device: dev})
	c := dial(t, path)
	if err := c.EnableIRQs(vfiouser.IRQMSI, 0, eventfds(t, 1)...); err != nil {
		t.Fatal(err)
	}
	if p := dev.Session().Peer(); p.PID != int32(os.Getpid()) || p.UID != uint32(os.Getuid()) || p.GID != uint32(os.Getgid()) {
		t.Errorf("peer %+v", p)
	}
	c.Close()
	<-gone
	if s.Trigger(vfiouser.IRQMSI, 0) || s.Listening(vfiouser.IRQMSI, 0) {
		t.Error("the socket still listens")
	}
	if err := s.DMARead(0, make([]byte, 4)); !errors.Is(err, vfiouser.ErrClosed) {
		t.Errorf("DMA: %v", err)
	}
}

func TestDeviceEndsASession(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	dev := gpuLike(t)
	path, _ := serveAt(t, &vfiouser.Server{Device: dev})
	c := dial(t, path)
	dev.Session().Close()
	if err := c.Reset(); !errors.Is(err, vfiouser.ErrClosed) {
		t.Errorf("error %v", err)
	}
	dial(t, path)
}

func TestPeerIsChecked(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	for _, c := range []struct{ refusal, want error }{
		{errors.New("not for you"), syscall.EACCES},
		{fmt.Errorf("not now: %w", syscall.ENXIO), syscall.ENXIO},
		{nil, nil},
	} {
		dev := gpuLike(t)
		seen := make(chan vfiouser.Peer, 1)
		srv := &vfiouser.Server{Device: dev, Check: func(p vfiouser.Peer) error { seen <- p; return c.refusal }}
		path, stop := serveAt(t, srv)
		client, err := vfiouser.Dial(context.Background(), path)
		if !errors.Is(err, c.want) {
			t.Errorf("error %v, want %v", err, c.want)
		}
		if p := <-seen; p.PID != int32(os.Getpid()) {
			t.Errorf("checked %+v", p)
		}
		if err == nil {
			client.Close()
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n, _, _ := dev.Counts(); n != 0 && c.want != nil {
			t.Error("the device was told of a refused client")
		}
	}
}

func TestClientsThatSayNothingDoNotStayInTheWay(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	path, _ := serveAt(t, &vfiouser.Server{Device: gpuLike(t), Timeout: 20 * time.Millisecond, Negotiation: 20 * time.Millisecond})
	for range 30 {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	for {
		c, err := vfiouser.Dial(context.Background(), path)
		if err == nil {
			c.Close()
			return
		}
		// It was refused, or disconnected while the silent clients occupied the queue.
		if !errors.Is(err, syscall.EBUSY) && !errors.Is(err, vfiouser.ErrClosed) {
			t.Fatal(err)
		}
	}
}

// A client may take longer for its first message than for anything later: until then it costs the
// server nothing, and on a busy host it may be slow.
func TestSlowClientIsWaitedFor(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	const limit = 30 * time.Millisecond // of everything but the negotiation
	path, _ := serveAt(t, &vfiouser.Server{Device: gpuLike(t), Timeout: limit})
	r := connect(t, path)
	if err := r.Conn.SetReadDeadline(time.Now().Add(10 * limit)); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the server did not wait: %d bytes, %v", n, err)
	}
	if err := r.Conn.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	r.Negotiate()
}

func TestStopWithAClient(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	dev := gpuLike(t)
	path, stop := serveAt(t, &vfiouser.Server{Device: dev})
	c := dial(t, path)
	if err := stop(); err != nil {
		t.Errorf("stopped with %v", err)
	}
	if a, d, _ := dev.Counts(); a != 1 || d != 1 {
		t.Errorf("attached %d times, detached %d times", a, d)
	}
	if err := c.Reset(); !errors.Is(err, vfiouser.ErrClosed) {
		t.Errorf("client: %v", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
	if _, err := vfiouser.Dial(context.Background(), path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("dialling a server that has stopped: %v", err)
	}
}

// A client that doesn't read its replies does not block the server's stop.
func TestStopWithAClientThatDoesNotRead(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	dev := gpuLike(t)
	path, stop := serveAt(t, &vfiouser.Server{Device: dev})
	nc, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	r := vfiousertest.NewRaw(t, nc.(*net.UnixConn))
	defer nc.Close()
	r.Negotiate()
	for range 3 {
		r.Send(vfiouser.CmdRegionRead, 0, access(2, 0, 1<<20))
	}
	dev.Session().Trigger(vfiouser.IRQMSI, 0)
	if err := stop(); err != nil {
		t.Errorf("stopped with %v", err)
	}
}

func TestServeOnAClosedListener(t *testing.T) {
	l, err := vfiouser.Listen(filepath.Join(t.TempDir(), "s"), nil)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := (&vfiouser.Server{Device: gpuLike(t)}).Serve(context.Background(), l); !errors.Is(err, net.ErrClosed) {
		t.Errorf("error %v", err)
	}
}

func TestListen(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "gpu.sock")
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	l, err := vfiouser.Listen(path, &vfiouser.Owner{UID: os.Getuid(), GID: os.Getgid()})
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Lstat(path)
	if err != nil || st.Mode() != os.ModeSocket|0o600 {
		t.Errorf("mode %v, %v; want 0600", st.Mode(), err)
	}
	if _, err := vfiouser.Listen(path, nil); err == nil || !strings.Contains(err.Error(), "another server") {
		t.Errorf("second server: %v", err)
	}
	// A dead server leaves its socket behind.
	l.SetUnlinkOnClose(false)
	l.Close()
	l, err = vfiouser.Listen(path, nil)
	if err != nil {
		t.Fatalf("over a stale socket: %v", err)
	}
	l.Close()
	// A file that is not a socket is left alone.
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := vfiouser.Listen(path, nil); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("over a file: %v", err)
	}
	if b, _ := os.ReadFile(path); string(b) != "precious" {
		t.Error("the file is gone")
	}
	if _, err := vfiouser.Listen(filepath.Join(dir, "none", "s"), nil); err == nil {
		t.Error("listening in a directory that there isn't")
	}
	if os.Getuid() != 0 {
		_, err := vfiouser.Listen(filepath.Join(dir, "o"), &vfiouser.Owner{UID: 0})
		if err == nil {
			t.Error("gave the socket to root")
		}
	}
}
