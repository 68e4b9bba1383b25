package remote

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/internal/unixmsg"
)

// serving starts a server that the test can examine.
func serving(t *testing.T, o ServerOptions) (*Server, string) {
	t.Helper()
	return servingWith(t, o, func(c *net.UnixConn) (*unix.Ucred, error) { return unixmsg.Peer(c) })
}

// servingWith is serving with credentials from the test.
func servingWith(t *testing.T, o ServerOptions, peer func(*net.UnixConn) (*unix.Ucred, error)) (*Server, string) {
	t.Helper()
	return servingOn(t, soft.Options{MemoryBytes: 16 << 20}, o, peer)
}

// servingOn is servingWith on a soft GPU with the test's options.
func servingOn(t *testing.T, g soft.Options, o ServerOptions, peer func(*net.UnixConn) (*unix.Ucred, error)) (*Server, string) {
	t.Helper()
	e, err := soft.Start(g)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "gpu.sock")
	l, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(e, o)
	s.peer = peer
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Serve(ctx, l); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, path
}

func (s *Server) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

func TestContextsPerLabel(t *testing.T) {
	s, path := serving(t, ServerOptions{ContextsPerLabel: 2})
	d, other := dial(t, path), dial(t, path)
	greedy := gpu.ContextOptions{Label: "greedy", MemoryLimit: 1 << 16}
	a, err := d.NewContext(t.Context(), greedy)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.NewContext(t.Context(), greedy); err != nil {
		t.Fatal(err)
	}
	for _, d := range []gpu.Device{d, other} {
		if _, err := d.NewContext(t.Context(), greedy); !errors.Is(err, gpu.ErrOutOfMemory) {
			t.Errorf("a third of two contexts: %v", err)
		}
	}
	for range 3 { // without an owner
		if _, err := d.NewContext(t.Context(), gpu.ContextOptions{MemoryLimit: 1 << 16}); err != nil {
			t.Error(err)
		}
	}
	if _, err := d.NewContext(t.Context(), gpu.ContextOptions{Label: "modest", MemoryLimit: 1 << 16}); err != nil {
		t.Errorf("another guest's: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.NewContext(t.Context(), greedy); err != nil {
		t.Errorf("in place of one that was closed: %v", err)
	}
	if err := errors.Join(d.Close(), other.Close()); err != nil {
		t.Fatal(err)
	}
	for s.connections() > 0 {
		runtime.Gosched()
	}
	if len(s.tenants) != 0 {
		t.Errorf("%d labels are left without a context", len(s.tenants))
	}
}

// A program that dies while its load waits leaves nothing behind. Loads of one guest wait for each
// other, not for those of another guest.
func TestDeadLoadsDoNotWait(t *testing.T) {
	s, path := serving(t, ServerOptions{})
	busy, err := s.count(0, "busy")
	if err != nil {
		t.Fatal(err)
	}
	done, err := s.compileSlot(t.Context(), busy) // a long load of the guest
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		d, err := newDriver(c)
		if err != nil {
			t.Fatal(err)
		}
		_, info, err := d.NewContext(t.Context(), gpu.ContextOptions{Label: "busy", MemoryLimit: 1 << 16})
		if err != nil {
			t.Fatal(err)
		}
		load, err := encode(&request{Op: opLoad, Context: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(send(c, load, info.Memory), info.Memory.Close(), c.Close()); err != nil {
			t.Fatal(err)
		}
		_ = d.Close() // closes the socket again, which is an error
	}
	for s.connections() > 0 {
		runtime.Gosched()
	}
	if n := len(s.loads); n != 1 {
		t.Errorf("%d loads hold a slot, want the one that runs", n)
	}
	newRig(t, dial(t, path), gpu.ContextOptions{Label: "other"}).double(100, 2)
	done()
	newRig(t, dial(t, path), gpu.ContextOptions{Label: "busy"}).double(100, 2)
	s.uncount(busy)
}

// endless is a context whose modules compile forever.
type endless struct {
	soft.ContextDriver
	begun chan struct{}
}

func (e endless) LoadModule(ctx context.Context, _ []byte, _ gpu.Ptr) (soft.ModuleInfo, error) {
	close(e.begun)
	<-ctx.Done()
	return soft.ModuleInfo{}, ctx.Err()
}

func (e endless) Close() error { return nil }

// A program that dies while its module is compiled ends the compiler.
func TestDyingProgramEndsItsLoad(t *testing.T) {
	s, _ := serving(t, ServerOptions{})
	here, there := pair(t)
	who, err := s.count(0, "guest")
	if err != nil {
		t.Fatal(err)
	}
	doorbell, err := s.e.NewDoorbell()
	if err != nil {
		t.Fatal(err)
	}
	begun := make(chan struct{})
	p := &program{s: s, c: there, doorbell: doorbell, contexts: map[uint32]served{1: {endless{begun: begun}, who}}}
	ended := make(chan error, 1)
	go func() { ended <- errors.Join(p.run(), p.end(), there.Close()) }()
	image, err := writeMemfd([]byte(source))
	if err != nil {
		t.Fatal(err)
	}
	load, err := encode(&request{Op: opLoad, Context: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(send(here, load, image), image.Close()); err != nil {
		t.Fatal(err)
	}
	<-begun
	if err := here.Close(); err != nil {
		t.Fatal(err)
	}
	<-ended // with the error that the peer is gone
	if n := len(s.loads) + len(who.load); n != 0 {
		t.Errorf("%d turns to load are still taken", n)
	}
}

// A guest is told that its GPU is lost, and nothing about sockets.
func TestCutConnection(t *testing.T) {
	_, path := serving(t, ServerOptions{})
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	d, err := newDriver(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, info, err := d.NewContext(t.Context(), gpu.ContextOptions{MemoryLimit: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.CloseWrite(), info.Memory.Close()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // when noticed, and afterwards
		if _, err := ctx.LoadModule(t.Context(), []byte(source), 0); !errors.Is(err, gpu.ErrLost) || err.Error() != "load: GPU lost" {
			t.Errorf("a load over a connection that was cut: %v", err)
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// The watch ends when the peer disconnects, but not with an early request, which stays in the
// socket.
func TestAttend(t *testing.T) {
	a, b := pair(t)
	defer b.Close()
	ctx, stop := peerContext(b)
	if err := send(a, []byte("early")); err != nil {
		t.Fatal(err)
	}
	stop()
	if ctx.Err() == nil {
		t.Error("the context outlives the watch")
	}
	buf := make([]byte, maxPacket)
	if got, _, err := receive(b, buf); err != nil || string(got) != "early" {
		t.Errorf("received %q, %v", got, err)
	}
	ctx, stop = peerContext(b)
	defer stop()
	if err := send(a, []byte("early")); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
}
