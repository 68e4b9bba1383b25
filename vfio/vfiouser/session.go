package vfiouser

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"syscall"
)

// Session is the connection of one client to a [Server]. Its methods may be called from any
// goroutine. After Detach they do nothing or return [ErrClosed].
type Session struct {
	dev  Device
	desc Description
	conn *conn
	irqs *irqTable
	peer Peer
	caps Capabilities
	log  *slog.Logger

	counters *counters

	out    []byte        // the reply in preparation
	spare  []byte        // payload buffer, swapped with the connection's for each request
	queue  chan *message // requests that arrived while a reply of the client was awaited
	queued atomic.Int64  // bytes in queue
}

// Limits on what a client can have queued while it owes a reply.
const (
	maxQueued      = 256
	maxQueuedBytes = 2 * MaxMessageBytes
)

// Peer is the process at the other end of the socket, as the kernel reports it (SO_PEERCRED).
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
	c.onRequest = s.enqueue
	c.onStrayReply = s.refuseReply
	return s
}

// Peer returns the client's credentials.
func (s *Session) Peer() Peer { return s.peer }

// Capabilities returns what the client announced.
func (s *Session) Capabilities() Capabilities { return s.caps }

// Trigger signals an interrupt vector and reports whether the client has set an eventfd for it. A
// masked vector is signalled when the client unmasks it. Trigger neither blocks nor allocates.
func (s *Session) Trigger(index, vector uint32) bool { return s.irqs.trigger(index, vector) }

// Listening reports whether the client has set an eventfd for a vector.
func (s *Session) Listening(index, vector uint32) bool { return s.irqs.listening(index, vector) }

// Close ends the client's connection, as if the client had disconnected.
func (s *Session) Close() { s.conn.fail(ErrClosed) }

// run answers requests until the connection ends. It returns nil if the client disconnected, else
// the reason.
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

// next returns the next request, queued ones first. own is true if the payload is the session's
// spare buffer.
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
			// The last reader queued a request and then returned the token: that request is first.
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

// enqueue queues a request for the goroutine in run. It is the connection's onRequest.
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

// refuseReply answers a reply that matches no request with EINVAL, as libvfio-user does.
func (s *Session) refuseReply(h Header) error { return s.fail(h, syscall.EINVAL) }

// fail sends an error reply. The reader may call it, so it has a buffer of its own.
func (s *Session) fail(h Header, errno syscall.Errno) error {
	b := make([]byte, SizeofHeader)
	r := Header{ID: h.ID, Cmd: h.Cmd, Size: SizeofHeader, Flags: FlagTypeReply | FlagError, Errno: uint32(errno)}
	r.MarshalBytes(b)
	return s.conn.write(b, nil)
}

// drop closes the descriptors of queued requests after the connection has ended.
func (s *Session) drop() {
	// A reader in DMARead may be about to queue another request.
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

// body returns the n bytes of the reply's body, to be filled in before reply.
func (s *Session) body(n int) []byte {
	s.out = grow(s.out, SizeofHeader+n)
	return s.out[SizeofHeader:]
}

// reply sends the first n bytes of body as the answer to m.
func (s *Session) reply(m *message, n int, fds []int) error {
	if !m.wantsReply() {
		return nil
	}
	b := s.out[:SizeofHeader+n]
	h := Header{ID: m.ID, Cmd: m.Cmd, Size: uint32(len(b)), Flags: FlagTypeReply}
	h.MarshalBytes(b)
	return s.conn.write(b, fds)
}

// handle answers one request. An error ends the connection; an error of the request alone is a
// reply. Descriptors that no handler took are closed before the reply, so the client can rely on
// that.
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

// attach negotiates with the client and attaches it to the device. The client has been told of an
// error.
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
