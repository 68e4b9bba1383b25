package vfiouser

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"syscall"
)

// Session is one client's stay at a [Server]. Its methods may be called from any goroutine; after Detach they
// do nothing or return [ErrClosed].
type Session struct {
	dev  Device
	desc Description
	conn *conn
	irqs *irqTable
	peer Peer
	caps Capabilities
	log  *slog.Logger

	counters *counters

	out    []byte        // the reply being made
	spare  []byte        // payload buffer, exchanged with the connection's for each request
	queue  chan *message // requests that came while the reply to one of ours was awaited
	queued atomic.Int64  // bytes in queue
}

// Bounds on what a client can have queued while it owes a reply itself.
const (
	maxQueued      = 256
	maxQueuedBytes = 2 * MaxMessageBytes
)

// Peer is who is at the other end of the socket, as the kernel says (SO_PEERCRED).
type Peer struct {
	PID int32
	UID uint32
	GID uint32
}

func newSession(c *conn, srv *Server, peer Peer, log *slog.Logger) *Session {
	s := &Session{
		dev:      srv.Device,
		conn:     c,
		peer:     peer,
		log:      log,
		counters: &srv.counters,
		out:      make([]byte, 4096),
		spare:    make([]byte, 4096),
		queue:    make(chan *message, maxQueued),
	}
	c.deflect = s.enqueue
	c.strayReply = s.refuseReply
	return s
}

// Peer says who the client is.
func (s *Session) Peer() Peer { return s.peer }

// Capabilities says what the client negotiated.
func (s *Session) Capabilities() Capabilities { return s.caps }

// Trigger raises an interrupt vector and reports whether the client listens to it. A masked vector is raised when
// the client unmasks it. It neither blocks nor allocates.
func (s *Session) Trigger(index, vector uint32) bool { return s.irqs.trigger(index, vector) }

// Listening reports whether the client has given an eventfd for a vector.
func (s *Session) Listening(index, vector uint32) bool { return s.irqs.listening(index, vector) }

// Close ends the client's connection, as if the client had gone.
func (s *Session) Close() { s.conn.fail(ErrClosed) }

// run answers requests until the connection ends, and tells why it did: nil when the client left.
func (s *Session) run() error {
	var m message
	for {
		own, err := s.next(&m)
		if err != nil {
			var bad *badFrame
			if errors.As(err, &bad) {
				s.fail(bad.h, syscall.EINVAL)
			}
			s.conn.failRead(err)
			if err == io.EOF || errors.Is(s.conn.err, ErrClosed) {
				return nil
			}
			return err
		}
		err = s.handle(&m)
		if own {
			s.spare = m.payload[:0]
		}
		if err != nil {
			s.conn.failRead(err)
			if errors.Is(s.conn.err, ErrClosed) {
				return nil
			}
			return err
		}
	}
}

// next gets the next request, those queued first. own says that the payload is the session's spare buffer.
func (s *Session) next(m *message) (own bool, err error) {
	c := s.conn
	for {
		select {
		case q := <-s.queue:
			s.queued.Add(-int64(len(q.payload)))
			*m = *q
			return false, nil
		default:
		}
		select {
		case q := <-s.queue:
			s.queued.Add(-int64(len(q.payload)))
			*m = *q
			return false, nil
		case <-c.token:
		case <-c.dead:
			return false, c.err
		}
		if len(s.queue) > 0 {
			// Its reader queued a request and then gave the token back: that one is first.
			c.token <- struct{}{}
			continue
		}
		_, err := c.next(m, nil)
		if err == nil {
			// The handler keeps the payload while others may read on.
			c.rbuf = s.spare[:cap(s.spare)]
		}
		c.token <- struct{}{}
		return true, err
	}
}

// enqueue keeps a request for the goroutine in run; it is the connection's deflect.
func (s *Session) enqueue(m *message) error {
	if s.queued.Add(int64(len(m.payload))) > maxQueuedBytes {
		m.closeFDs()
		return protocolErrorf("client sent more than %d bytes while it owed a reply", maxQueuedBytes)
	}
	q := *m
	q.payload = append([]byte(nil), m.payload...)
	select {
	case s.queue <- &q:
		return nil
	default:
		m.closeFDs()
		return protocolErrorf("client sent more than %d requests while it owed a reply", maxQueued)
	}
}

// refuseReply answers a reply to nothing with EINVAL, as libvfio-user does.
func (s *Session) refuseReply(h Header) error { return s.fail(h, syscall.EINVAL) }

// fail sends an error reply. It may be called by whoever reads, so it has a buffer of its own.
func (s *Session) fail(h Header, errno syscall.Errno) error {
	b := make([]byte, SizeofHeader)
	r := Header{ID: h.ID, Cmd: h.Cmd, Size: SizeofHeader, Flags: FlagTypeReply | FlagError, Errno: uint32(errno)}
	r.MarshalBytes(b)
	return s.conn.write(b, nil)
}

// drop closes what is still queued after the connection has ended.
func (s *Session) drop() {
	// A reader in DMARead may be about to queue one more.
	<-s.conn.token
	s.conn.token <- struct{}{}
	for {
		select {
		case q := <-s.queue:
			q.closeFDs()
		default:
			return
		}
	}
}

// body returns the reply's body for n bytes, to be filled in before reply.
func (s *Session) body(n int) []byte {
	s.out = grow(s.out, SizeofHeader+n)
	return s.out[SizeofHeader:]
}

// reply sends the body made before, cut to n bytes, as the answer to m.
func (s *Session) reply(m *message, n int, fds []int) error {
	if !m.wantsReply() {
		return nil
	}
	b := s.out[:SizeofHeader+n]
	h := Header{ID: m.ID, Cmd: m.Cmd, Size: uint32(len(b)), Flags: FlagTypeReply}
	h.MarshalBytes(b)
	return s.conn.write(b, fds)
}

// handle answers one request. An error ends the connection; what is wrong with the request alone is a reply. Descriptors that
// nobody took are closed before the reply, so a client that has it can rely on that.
func (s *Session) handle(m *message) error {
	n, fds, err := s.dispatch(m)
	m.closeFDs()
	s.counters.requests.Add(1)
	if err != nil {
		s.counters.errors.Add(1)
		s.log.Debug("vfio-user request refused", "command", commandName(m.Cmd), "id", m.ID, "bytes", m.Size, "error", err)
		if !m.wantsReply() {
			return nil
		}
		return s.fail(m.Header, errnoOf(err))
	}
	return s.reply(m, n, fds)
}

// attach negotiates with the client and tells the device. An error has been told to the client.
func (s *Session) attach() error {
	var m message
	_, err := s.next(&m)
	if err != nil {
		var bad *badFrame
		if errors.As(err, &bad) {
			_ = s.fail(bad.h, syscall.EINVAL)
		}
		return err
	}
	defer m.closeFDs()
	body, err := s.negotiate(&m)
	if err != nil {
		return errors.Join(err, s.fail(m.Header, errnoOf(err)))
	}
	s.spare = m.payload[:0]
	copy(s.body(len(body)), body)
	if err := s.reply(&m, len(body), nil); err != nil {
		s.dev.Detach(s)
		return err
	}
	return nil
}

func (s *Session) negotiate(m *message) (body []byte, err error) {
	switch {
	case m.Cmd != CmdVersion || m.Flags != FlagTypeCommand:
		return nil, fmt.Errorf("%s before VERSION: %w", commandName(m.Cmd), syscall.EINVAL)
	case len(m.fds) > 0:
		return nil, versionError("%d descriptors", len(m.fds))
	}
	if s.caps, err = parseVersion(m.payload); err != nil {
		return nil, err
	}
	if body, err = appendVersion(nil, ownCapabilities); err != nil {
		return nil, err
	}
	s.desc = s.dev.Describe()
	if err := s.desc.check(); err != nil {
		return nil, fmt.Errorf("device's description: %w", err)
	}
	s.irqs = newIRQTable(s.desc.IRQs)
	if err := s.dev.Attach(s); err != nil {
		return nil, fmt.Errorf("attach client: %w", err)
	}
	return body, nil
}
