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
)

// ServerOptions say what `vgpud softgpu` runs.
type ServerOptions struct {
	// Socket is the path of the unix socket. It is made with mode 0600, and removed at the end.
	Socket string
	// Group, if it is not 0, may connect, too.
	Group int
	// GPU is the soft GPU.
	GPU soft.Options
	// Connections caps the programs connected at a time, 256, of which the server's own user and root may have three
	// quarters. PerUser caps those of each other user, and its contexts, 64: twice what a virtual GPU can have, since
	// one that ends may still be there. All other users together leave a sixteenth to those two, or nobody could look
	// after the GPU. ContextsPerLabel caps the contexts of one label of theirs, 64.
	Connections, PerUser, ContextsPerLabel int
	// Log is where connections, refusals and faults go; nil: nowhere.
	Log *slog.Logger
	// Ready is called once programs can connect.
	Ready func()
}

// Run starts a soft GPU and serves it until ctx ends.
func Run(ctx context.Context, o ServerOptions) error {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	// The pacing thread keeps one of Go's processors for itself while it works; the socket's side needs others.
	if runtime.GOMAXPROCS(0) < 4 {
		runtime.GOMAXPROCS(4)
	}
	// A collection stops the pacing thread, for as long as threads without its priority take to agree. The heap is
	// small; let it grow to several times its size before there is one.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	if debug.SetMemoryLimit(-1) == math.MaxInt64 { // the environment sets none
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

// heapLimit is the size from which the heap is collected however little it has grown: more than compiled modules may
// take together with what loading the most greedy ones takes for the time being.
const heapLimit = 3 << 30

// listen makes the socket. A stale one that nobody answers on is replaced.
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
	// Linux gives the socket's file the mode that the socket itself has when it is bound, so there is no moment at
	// which others could connect.
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

// Server serves an engine.
type Server struct {
	e     *soft.Engine
	o     ServerOptions
	loads chan struct{} // held while a module is compiled

	mu      sync.Mutex
	conns   map[*net.UnixConn]struct{}
	users   map[uint32]int // connected programs by user
	tenants map[owner]*tenant
	// controls counts contexts' controls that somebody has, by whose the contexts are or were.
	controls map[owner]int
	over     bool
	all      sync.WaitGroup

	peer func(*net.UnixConn) (*unix.Ucred, error) // who is at the other end
}

// NewServer makes a server. The engine stays the caller's.
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
		peer: peer,
	}
}

// Serve accepts programs until ctx ends, and then cuts off those that are connected. It closes l.
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
			// Descriptors or memory are short, which is no reason to take the GPU from all that have it.
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

// acceptAgain is how long to wait where a program could not be accepted.
const acceptAgain = 100 * time.Millisecond

// trusted is whether a user's programs are the host's, or where guests have no users of their own, all that there are.
func (s *Server) trusted(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// add takes up a program, unless there is no room for it. The error wraps [gpu.ErrFull] then.
func (s *Server) add(c *net.UnixConn) (*unix.Ucred, error) {
	cred, err := s.peer(c)
	if err != nil {
		return nil, fmt.Errorf("who connects is not known: %w", err)
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

// refuse tells a program why it is not served, before it has said anything, and closes the connection. A new socket has
// room for that much.
func refuse(c *net.UnixConn, why error) {
	if b, err := encode(&reply{Error: toRemote(why)}); err == nil {
		_ = send(c, b) // it may be gone
	}
	_ = c.Close()
}

// serve answers one program until it goes.
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

// peer is who is at the other end.
func peer(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var cerr error
	if err := raw.Control(func(fd uintptr) { cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return nil, err
	}
	return cred, cerr
}
