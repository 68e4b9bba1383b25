package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Server serves a [Device] to one client at a time. Its fields are set before Serve and not changed after.
type Server struct {
	Device Device

	// Check, when not nil, decides about a client before anything of it is looked at. A client for which it returns an
	// error is refused with that error, EACCES if it is no syscall.Errno. No other client is accepted while it runs.
	Check func(Peer) error

	// Timeout ends the connection of a client that leaves a request of ours (DMARead, DMAWrite) unanswered that long, or that
	// does not take in a reply within it; it also bounds the negotiation. 0 means 5 s.
	Timeout time.Duration

	// Handover is how long a client that finds the device taken waits for it: a VMM that is started anew may come before
	// the end of the old one's connection has been seen, and before Detach has returned. 0 means 3 s.
	Handover time.Duration

	// Log gets one line when a client comes and one when it goes; nil means slog.Default.
	Log *slog.Logger

	counters counters
}

const (
	defaultTimeout = 5 * time.Second
	// defaultHandover is less than QEMU waits for the answer to its VERSION.
	defaultHandover = 3 * time.Second
	// acceptAgain is how long to wait where no client could be accepted, and for the first message of one that is refused.
	acceptAgain = 250 * time.Millisecond
	// maxWaiting bounds the clients that are told to go away at the same time, those that Check refuses apart from those
	// that find the device taken; more are closed unheard.
	maxWaiting = 8
)

// Serve accepts clients from l until ctx ends, which closes l and the client's connection. It returns when all that
// it started has ended and the last client is detached: nil after ctx, else why no more clients can come.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	defer l.Close()

	seat := make(chan struct{}, 1) // filled while a client is served
	waiting := make(chan struct{}, maxWaiting+1)
	refused := make(chan struct{}, maxWaiting) // in nobody's way
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
			s.receive(ctx, c, peer, no, seat, leave)
		})
	}
}

// ServeConn serves one connected client until it goes or ctx ends. It closes c. Only one client may be served at a time.
func (s *Server) ServeConn(ctx context.Context, c *net.UnixConn) error {
	peer, no := s.check(c)
	return s.receive(ctx, c, peer, no, make(chan struct{}, 1), func() {})
}

// check says who a new client is, and why it is refused if it is.
func (s *Server) check(c *net.UnixConn) (peer Peer, no error) {
	peer, no = peerOf(c)
	if no == nil && s.Check != nil {
		if no = s.Check(peer); no != nil && !isErrno(no) {
			no = fmt.Errorf("%w: %w", no, syscall.EACCES)
		}
	}
	return peer, no
}

// receive gets a new client the seat, or refuses it for the reason no or because the seat is taken, and serves it. seated is
// called when it no longer waits.
func (s *Server) receive(ctx context.Context, c *net.UnixConn, peer Peer, no error, seat chan struct{}, seated func()) error {
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
	if no == nil && !s.take(ctx, seat) {
		no = fmt.Errorf("device has a client already: %w", syscall.EBUSY)
	}
	if no != nil {
		log.Warn("vfio-user client refused", "error", no)
		s.counters.refused.Add(1)
		session.refuse(errnoOf(no))
		return no
	}
	defer func() { <-seat }()
	_ = c.SetReadDeadline(time.Now().Add(s.timeout())) // of which the wait took some
	seated()
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
		s.log.Warn("vfio-user client cut off", "error", err)
	} else {
		s.log.Info("vfio-user client gone")
	}
	return err
}

// refuse answers a client's VERSION with an error: at any later point QEMU 11.1 takes a refusal badly.
func (s *Session) refuse(errno syscall.Errno) {
	var m message
	if _, err := s.next(&m); err != nil {
		return
	}
	m.closeFDs()
	if s.fail(m.Header, errno) != nil {
		return
	}
	// QEMU hangs up by itself; where the server does so first it complains of that, before it says what the reply was.
	_ = s.conn.sock.SetReadDeadline(time.Now().Add(acceptAgain))
	if _, err := s.next(&m); err == nil {
		m.closeFDs()
	}
}

// take gets the seat, waiting a little for a client that is just leaving.
func (s *Server) take(ctx context.Context, seat chan struct{}) bool {
	select {
	case seat <- struct{}{}:
		return true
	default:
	}
	d := s.Handover
	if d <= 0 {
		d = defaultHandover
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case seat <- struct{}{}:
		return true
	case <-t.C:
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

func (s *Server) log() *slog.Logger {
	if s.Log != nil {
		return s.Log
	}
	return slog.Default()
}

// temporary tells errors of accept that pass: the client has gone again, or descriptors or memory are short.
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

// peerOf asks the kernel who is at the other end.
func peerOf(c *net.UnixConn) (Peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Peer{}, fmt.Errorf("credentials of vfio-user client: %w", err)
	}
	var cred *unix.Ucred
	var e error
	if err := raw.Control(func(fd uintptr) { cred, e = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		e = err
	}
	if e != nil {
		return Peer{}, fmt.Errorf("credentials of vfio-user client: %w", e)
	}
	return Peer{PID: cred.Pid, UID: cred.Uid, GID: cred.Gid}, nil
}
