package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/internal/unixmsg"
)

// ServerOptions configure `vgpud softgpu`.
type ServerOptions struct {
	// Socket is the path of the unix socket. It is created with mode 0600, and removed at the end.
	Socket string
	// Group, if not 0, may connect, too.
	Group int
	// GPU configures the soft GPU.
	GPU soft.Options
	// Connections limits the connected programs, 256. The server's own user and root may have three
	// quarters of them. PerUser limits those of each other user, and the user's contexts, 64: twice
	// the number of a virtual GPU, since one that ends may still exist. All other users together
	// leave a sixteenth to the server's user and root, which must be able to administer the GPU.
	// ContextsPerLabel limits the contexts of one of their labels, 64.
	Connections, PerUser, ContextsPerLabel int
	// Log receives connections, refusals and faults. nil means no log.
	Log *slog.Logger
	// Ready is called when programs can connect.
	Ready func()
}

// Run starts a soft GPU and serves it until ctx ends.
func Run(ctx context.Context, o ServerOptions) error {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	// The pacing thread occupies one of Go's processors while it works; the socket's goroutines
	// need others.
	if runtime.GOMAXPROCS(0) < 4 {
		runtime.GOMAXPROCS(4)
	}
	// A collection stops the pacing thread for as long as threads without its priority need to
	// agree. The heap is small, so let it grow to several times its size before a collection.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	if debug.SetMemoryLimit(-1) == math.MaxInt64 { // the environment sets no limit
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(heapLimit))
	}
	if o.GPU.Log == nil {
		o.GPU.Log = o.Log
	}
	l, err := listen(o.Socket)
	if err != nil {
		return err
	}
	if o.Group != 0 {
		if err := errors.Join(os.Lchown(o.Socket, -1, o.Group), os.Chmod(o.Socket, 0o660)); err != nil {
			return errors.Join(fmt.Errorf("let group %d connect to %s: %w", o.Group, o.Socket, err), l.Close())
		}
	}
	e, err := soft.Start(o.GPU)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	if u, err := e.Usage(); err == nil {
		o.Log.Info("soft GPU started", "socket", o.Socket, "realtime", u.Pacing.Realtime, "priority", u.Pacing.Level, "reason", u.Pacing.Reason)
	}
	s := NewServer(e, o)
	if o.Ready != nil {
		o.Ready()
	}
	err = s.Serve(ctx, l)
	if u, uerr := e.Usage(); uerr == nil {
		o.Log.Info("soft GPU stopped", "launches", u.Machine.Launches, "busy", u.Machine.Busy, "idle", u.Machine.Idle,
			"overruns", u.Machine.Overruns, "overrun", u.Machine.Overrun, "cpu", u.Pacing.CPU, "late", u.Pacing.Late,
			"max_late", u.Pacing.MaxLate, "sleeps", u.Pacing.Sleeps)
	}
	return errors.Join(err, e.Close())
}

// heapLimit is the heap size up to which there are few collections. It is more than compiled
// modules may use together with the memory for compiling the largest ones.
const heapLimit = 3 << 30

// listen creates the socket, and replaces one without a server.
func listen(path string) (*net.UnixListener, error) {
	addr := &net.UnixAddr{Name: path, Net: "unixpacket"}
	if st, err := os.Lstat(path); err == nil && st.Mode().Type() == os.ModeSocket {
		if c, err := net.DialUnix("unixpacket", nil, addr); err == nil {
			return nil, errors.Join(fmt.Errorf("listen on %s: a soft GPU is running there", path), c.Close())
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("listen on %s: replace what was left there: %w", path, err)
		}
	}
	// Linux gives the socket's file the mode that the socket has when it is bound, so there is no
	// moment at which others could connect.
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var e error
		err := c.Control(func(fd uintptr) { e = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, e)
	}}
	l, err := lc.Listen(context.Background(), "unixpacket", path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l.(*net.UnixListener), nil
}

// Server serves an engine. mu guards the fields below it.
type Server struct {
	e     *soft.Engine
	o     ServerOptions
	loads chan struct{} // limits the modules that are compiled at a time

	mu      sync.Mutex
	conns   map[*net.UnixConn]struct{}
	users   map[uint32]int // connected programs by user
	tenants map[owner]*tenant
	// controls counts the open controls of contexts, by the owners of the contexts.
	controls map[owner]int
	over     bool
	all      sync.WaitGroup

	peer func(*net.UnixConn) (*unix.Ucred, error) // the credentials of the other end
}

// NewServer returns a server for an engine, which remains the caller's.
func NewServer(e *soft.Engine, o ServerOptions) *Server {
	if o.Connections <= 0 {
		o.Connections = 256
	}
	if o.PerUser <= 0 {
		o.PerUser = 64
	}
	if o.ContextsPerLabel <= 0 {
		o.ContextsPerLabel = 64
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Server{
		e: e, o: o, loads: make(chan struct{}, 4), conns: map[*net.UnixConn]struct{}{}, users: map[uint32]int{}, tenants: map[owner]*tenant{}, controls: map[owner]int{},
		peer: func(c *net.UnixConn) (*unix.Ucred, error) { return unixmsg.Peer(c) },
	}
}

// Serve accepts programs until ctx ends, and then disconnects them. It closes l.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var err error
	for {
		var c *net.UnixConn
		if c, err = l.AcceptUnix(); err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				break
			}
			// Descriptors or memory are short. This must not end the GPU for the connected
			// programs.
			s.o.Log.Error("soft GPU: accept", "error", err)
			if clock.Sleep(ctx, clock.Real{}, acceptAgain) != nil {
				break
			}
			continue
		}
		cred, err := s.add(c)
		if err != nil {
			s.o.Log.Warn("soft GPU: connection refused", "error", err)
			refuse(c, err)
			continue
		}
		s.all.Go(func() {
			defer s.remove(c, cred.Uid)
			s.serve(c, cred)
		})
	}
	s.mu.Lock()
	s.over = true
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.all.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return errors.Join(fmt.Errorf("soft GPU: accept: %w", err), l.Close())
}

// acceptAgain is the pause after a failed accept.
const acceptAgain = 100 * time.Millisecond

// trusted reports whether a user is the server's own or root. Where guests have no users of their
// own, all programs are.
func (s *Server) trusted(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// add adds a program, if there is room for it. Otherwise its error wraps [gpu.ErrFull].
func (s *Server) add(c *net.UnixConn) (*unix.Ucred, error) {
	cred, err := s.peer(c)
	if err != nil {
		return nil, fmt.Errorf("credentials of the client: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all, here := 0, s.users[cred.Uid]
	for _, n := range s.users {
		all += n
	}
	total, most := s.o.Connections-s.o.Connections/16, s.o.PerUser
	if s.trusted(cred.Uid) {
		total, most = s.o.Connections, s.o.Connections-s.o.Connections/4
	}
	switch {
	case s.over:
		return nil, fmt.Errorf("the soft GPU ends: %w", gpu.ErrLost)
	case here >= most:
		return nil, fmt.Errorf("connection beside %d of user %d: %w", here, cred.Uid, gpu.ErrFull)
	case all >= total:
		return nil, fmt.Errorf("connection beside %d: %w", all, gpu.ErrFull)
	}
	s.users[cred.Uid]++
	s.conns[c] = struct{}{}
	return cred, nil
}

// remove undoes add.
func (s *Server) remove(c *net.UnixConn, uid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if s.users[uid]--; s.users[uid] == 0 {
		delete(s.users, uid)
	}
}

// refuse sends a program the reason why it is not served, before its first request, and closes the
// connection. A new socket has room for that.
func refuse(c *net.UnixConn, why error) {
	if b, err := encode(&reply{Error: toRemote(why)}); err == nil {
		_ = send(c, b) // it may have disconnected
	}
	_ = c.Close()
}

// serve serves one program until it disconnects.
func (s *Server) serve(c *net.UnixConn, cred *unix.Ucred) {
	log := s.o.Log.With("pid", cred.Pid, "uid", cred.Uid)
	log.Debug("soft GPU: connected")
	p := &program{s: s, c: c, uid: cred.Uid, contexts: map[uint32]served{}}
	err := p.run()
	if cerr := errors.Join(p.end(), c.Close()); cerr != nil && !errors.Is(cerr, net.ErrClosed) {
		log.Warn("soft GPU: clean up after a program", "error", cerr)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		log.Warn("soft GPU: connection cut off", "error", err)
		return
	}
	log.Debug("soft GPU: disconnected")
}
