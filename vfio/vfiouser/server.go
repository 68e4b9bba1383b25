package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/internal/unixmsg"
)

// Server serves a [Device] to one client at a time. Its fields are set before Serve and not changed
// after.
type Server struct {
	Device Device

	// Check, if not nil, accepts or refuses a client before any of its messages is read. A client
	// for which it returns an error is refused with that error, or EACCES if it is no
	// syscall.Errno. No other client is accepted while Check runs.
	Check func(Peer) error

	// Timeout ends the connection of a client that leaves a request of the server (DMARead,
	// DMAWrite) unanswered for that long, or does not read a reply within it. It also limits how
	// long a client that is refused may take to ask for what it is refused. 0 means 5 s.
	Timeout time.Duration

	// Negotiation is how long the client that has the device may take to negotiate. 0 means a
	// minute, which is how long a [Client] waits for the server.
	Negotiation time.Duration

	// Handover is how long a client waits if another one is attached, which may be about to end. 0
	// means 3 s. If the other one has closed its connection, as that of a VMM which was restarted
	// has, the client waits for as long as it could negotiate, until the server has noticed that and
	// Detach has returned.
	Handover time.Duration

	// Log gets one line when a client attaches and one when it is gone. nil means slog.Default.
	Log *slog.Logger

	counters counters
}

const (
	defaultTimeout = 5 * time.Second
	// defaultNegotiation ends the connection of a client that hangs. The end of the client's process
	// closes the connection, and a client on a busy host may take seconds for its first message. A
	// hostile client gains nothing by a long limit: having negotiated it may keep the device for
	// good.
	defaultNegotiation = replyTimeout
	// defaultHandover is less than the time that QEMU waits for the answer to its VERSION, unless it
	// is told otherwise.
	defaultHandover = 3 * time.Second
	// acceptAgain is the pause after a failed accept, and the time to wait for the first message of
	// a refused client.
	acceptAgain = 250 * time.Millisecond
	// maxWaiting limits the clients that are being refused at the same time, separately for those
	// that Check refuses and those that wait for the device. Further clients are disconnected
	// without a reply.
	maxWaiting = 8
)

// Serve accepts clients from l until ctx ends, which closes l and the client's connection. It
// returns when all its goroutines have ended and the last client is detached. It returns nil after
// ctx, else the reason why it can't accept clients.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	defer l.Close()

	attached := newSeat()
	waiting := make(chan struct{}, maxWaiting+1)
	refused := make(chan struct{}, maxWaiting) // don't count as waiting
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if !temporary(err) {
				return fmt.Errorf("accept vfio-user client: %w", err)
			}
			if !pause(ctx, acceptAgain) {
				return nil
			}
			continue
		}
		peer, no := s.check(c)
		queue := waiting
		if no != nil {
			queue = refused
		}
		select {
		case queue <- struct{}{}:
		default:
			c.Close()
			continue
		}
		wg.Go(func() {
			var once sync.Once
			leave := func() { once.Do(func() { <-queue }) }
			defer leave()
			s.receive(ctx, c, peer, no, attached, leave)
		})
	}
}

// ServeConn serves one connected client until it disconnects or ctx ends. It closes c. Only one
// client may be served at a time.
func (s *Server) ServeConn(ctx context.Context, c *net.UnixConn) error {
	peer, no := s.check(c)
	return s.receive(ctx, c, peer, no, newSeat(), func() {})
}

// check returns the identity of a new client, and an error if the client is refused.
func (s *Server) check(c *net.UnixConn) (peer Peer, no error) {
	peer, no = peerOf(c)
	if no == nil && s.Check != nil {
		if no = s.Check(peer); no != nil && !isErrno(no) {
			no = fmt.Errorf("%w: %w", no, syscall.EACCES)
		}
	}
	return peer, no
}

// receive attaches a new client and serves it, or refuses it because of the error no or because
// another client is attached. It calls admitted when the client no longer waits.
func (s *Server) receive(ctx context.Context, c *net.UnixConn, peer Peer, no error, attached *seat, admitted func()) error {
	cn, err := newConn(c, s.timeout())
	if err != nil {
		c.Close()
		return err
	}
	defer cn.fail(ErrClosed)
	stop := context.AfterFunc(ctx, func() { cn.fail(ErrClosed) })
	defer stop()

	log := s.log().With("pid", peer.PID, "uid", peer.UID)
	_ = c.SetReadDeadline(time.Now().Add(s.timeout()))
	session := newSession(cn, s, peer, log)
	if no == nil && !s.acquire(ctx, attached, cn) {
		no = fmt.Errorf("device has a client already: %w", syscall.EBUSY)
	}
	if no != nil {
		log.Warn("vfio-user client refused", "error", no)
		s.counters.refused.Add(1)
		session.refuse(errnoOf(no))
		return no
	}
	defer attached.leave()
	_ = c.SetReadDeadline(time.Now().Add(s.negotiation()))
	admitted()
	return session.serve()
}

// serve runs a session from its negotiation to its end.
func (s *Session) serve() error {
	if err := s.attach(); err != nil {
		if s.irqs != nil {
			s.irqs.close()
		}
		s.log.Warn("vfio-user negotiation failed", "error", err)
		s.counters.refused.Add(1)
		return err
	}
	s.counters.clients.Add(1)
	_ = s.conn.sock.SetReadDeadline(time.Time{})
	s.log.Debug("vfio-user client attached")
	err := s.run()
	s.conn.fail(ErrClosed)
	s.drop()
	s.irqs.close()
	s.dev.Detach(s)
	if err != nil {
		s.counters.broken.Add(1)
		s.log.Warn("vfio-user connection failed", "error", err)
	} else {
		s.log.Info("vfio-user client detached")
	}
	return err
}

// refuse answers a client's VERSION with an error. QEMU 11.1 does not handle a refusal at any later
// point.
func (s *Session) refuse(errno syscall.Errno) {
	var m message
	if _, err := s.next(&m); err != nil {
		return
	}
	m.closeFDs()
	if s.fail(m.Header, errno) != nil {
		return
	}
	// QEMU disconnects by itself. If the server did first, QEMU would report that before the
	// reply's error.
	_ = s.conn.sock.SetReadDeadline(time.Now().Add(acceptAgain))
	if _, err := s.next(&m); err == nil {
		m.closeFDs()
	}
}

// seat is the place of the one client that is attached.
type seat struct {
	taken chan struct{}        // full while there is one
	conn  atomic.Pointer[conn] // its connection; nil if there is none, or only just one
}

func newSeat() *seat { return &seat{taken: make(chan struct{}, 1)} }

// leave frees the seat for the next client.
func (t *seat) leave() {
	t.conn.Store(nil)
	<-t.taken
}

// acquire waits until the attached client has left, and attaches the one of c. It reports false if
// the attached one does not leave within Handover.
func (s *Server) acquire(ctx context.Context, t *seat, c *conn) bool {
	d := s.Handover
	if d <= 0 {
		d = defaultHandover
	}
	if !t.take(ctx, d) {
		if old := t.conn.Load(); old == nil || !old.gone() || !t.take(ctx, s.negotiation()) {
			return false
		}
	}
	t.conn.Store(c)
	return true
}

// take takes the seat as soon as it is free. It reports false if it is not within d.
func (t *seat) take(ctx context.Context, d time.Duration) bool {
	select {
	case t.taken <- struct{}{}:
		return true
	default:
	}
	limit := time.NewTimer(d)
	defer limit.Stop()
	select {
	case t.taken <- struct{}{}:
		return true
	case <-limit.C:
	case <-ctx.Done():
	}
	return false
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *Server) timeout() time.Duration {
	if s.Timeout > 0 {
		return s.Timeout
	}
	return defaultTimeout
}

// negotiation returns Negotiation, or the default.
func (s *Server) negotiation() time.Duration {
	if s.Negotiation > 0 {
		return s.Negotiation
	}
	return defaultNegotiation
}

func (s *Server) log() *slog.Logger {
	if s.Log != nil {
		return s.Log
	}
	return slog.Default()
}

// temporary reports whether an error of accept may pass: the client has disconnected again, or
// descriptors or memory are short.
func temporary(err error) bool {
	for _, e := range []error{unix.ECONNABORTED, unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.EINTR} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func isErrno(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno)
}

// peerOf returns the credentials of the other end, as the kernel reports them.
func peerOf(c *net.UnixConn) (Peer, error) {
	cred, err := unixmsg.Peer(c)
	if err != nil {
		return Peer{}, fmt.Errorf("credentials of vfio-user client: %w", err)
	}
	return Peer{PID: cred.Pid, UID: cred.Uid, GID: cred.Gid}, nil
}
