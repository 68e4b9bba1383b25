package vfiouser

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// conn is one end of a connection. It frames messages, matches replies to requests, and lets
// several goroutines have requests outstanding.
//
// Only the holder of the token reads the socket. A caller that waits for a reply takes the token if
// it is free and reads for everyone: replies go to their callers, requests to onRequest. When its
// own reply has arrived it returns the token, and the next waiter takes over.
//
// Locks: wmu is held while a message is written; watchMu guards watchdog and watching. Neither is
// held while the other is taken.
type conn struct {
	sock  *socket
	token chan struct{}

	// Owned by the holder of the token.
	head      [SizeofHeader]byte
	rbuf      []byte
	unawaited message

	// onRequest handles a request that arrived while its reader waited for something else. It owns
	// the message's descriptors. The payload is valid during the call.
	onRequest func(m *message) error
	// onStrayReply handles a reply that no call waits for.
	onStrayReply func(h Header) error

	wmu sync.Mutex // held for one whole message

	calls [maxCalls]call
	free  chan *call
	// The number of calls in flight, and the timer that ends the connection if one gets no reply:
	// see startWatchdog.
	inFlight atomic.Int32
	tick     atomic.Uint32
	timeout  time.Duration
	watchMu  sync.Mutex
	watchdog *time.Timer
	watching bool

	dead     chan struct{}
	failOnce sync.Once
	err      error // set before dead is closed
}

// maxCalls limits the requests that one end has in flight; further callers wait. It is a power of
// two, since a call's index is the low bits of its message ID.
const maxCalls = 64

// keepBytes is the largest buffer that a call keeps for the next one. maxCalls buffers of the
// largest size would be too much.
const keepBytes = 64 << 10

// call is a request of this end that waits for its reply. Later calls reuse its buffers.
type call struct {
	index   uint16
	gen     uint16
	cmd     uint16
	awaited atomic.Uint64 // an awaited word if the reply has not arrived, else 0
	req     []byte
	reply   []byte // payload of the reply
	limit   int    // maximum size of the reply's payload in bytes
	fds     []int  // of the reply
	errno   syscall.Errno
	done    chan struct{}
}

// An awaited word encodes which reply a call waits for, and since which tick. It is one word so
// that the reader and the watchdog can examine calls of other goroutines. It has the ID, the
// command, the low 31 bits of the tick, and a bit that distinguishes it from 0.
func awaitedWord(id, cmd uint16, tick uint32) uint64 {
	return 1<<63 | uint64(tick&0x7fffffff)<<32 | uint64(cmd)<<16 | uint64(id)
}

func awaitedIs(w uint64, id, cmd uint16) bool {
	return w != 0 && uint32(w) == uint32(cmd)<<16|uint32(id)
}

// awaitedAge returns how many ticks have passed since w was made.
func awaitedAge(w uint64, now uint32) uint32 { return (now - uint32(w>>32)) & 0x7fffffff }

func newConn(c *net.UnixConn, timeout time.Duration) (*conn, error) {
	sock, err := newSocket(c)
	if err != nil {
		return nil, err
	}
	cn := &conn{
		sock:    sock,
		token:   make(chan struct{}, 1),
		rbuf:    make([]byte, 4096),
		free:    make(chan *call, maxCalls),
		timeout: timeout,
		dead:    make(chan struct{}),
	}
	for i := range cn.calls {
		k := &cn.calls[i]
		k.index = uint16(i)
		k.done = make(chan struct{}, 1)
		cn.free <- k
	}
	cn.token <- struct{}{}
	return cn, nil
}

// fail ends the connection. The first reason is kept. It may be called from anywhere.
func (c *conn) fail(err error) {
	c.failOnce.Do(func() {
		c.err = err
		c.sock.Close()
		close(c.dead)
		c.watchMu.Lock()
		if c.watchdog != nil {
			c.watchdog.Stop()
		}
		c.watchMu.Unlock()
	})
}

// gone reports whether the connection has ended, or the peer has closed its end of it, which the
// reader may not have noticed yet.
func (c *conn) gone() bool {
	select {
	case <-c.dead:
		return true
	default:
		return c.sock.hungUp()
	}
}

// failRead is fail for an error of the socket. It turns the end of the stream and a closed socket
// into ErrClosed.
func (c *conn) failRead(err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		err = ErrClosed
	}
	c.fail(err)
}

// readHeader reads the next header and the descriptors that come with it, which then belong to the
// caller.
func (c *conn) readHeader() (h Header, fds []int, err error) {
	n, fds, err := c.sock.readWithFDs(c.head[:])
	if err != nil {
		return h, nil, err
	}
	if n < SizeofHeader {
		if _, err := io.ReadFull(c.sock, c.head[n:]); err != nil {
			closeFDs(fds)
			return h, nil, err
		}
	}
	h.UnmarshalBytes(c.head[:])
	return h, fds, nil
}

// badFrame is the error for a header with an impossible size, after which messages can't be
// delimited.
type badFrame struct{ h Header }

func (e *badFrame) Error() string {
	return protocolErrorf("%s with a size of %d bytes", commandName(e.h.Cmd), e.h.Size).Error()
}

// next reads until a request arrives, and delivers replies meanwhile. The caller holds the token.
// The message and its payload are valid until the next read; its descriptors belong to the caller.
// If until is not nil, next returns with ok false as soon as that call is answered.
func (c *conn) next(m *message, until *call) (ok bool, err error) {
	for {
		if until != nil && until.awaited.Load() == 0 {
			return false, nil
		}
		h, fds, err := c.readHeader()
		if err != nil {
			return false, err
		}
		if h.Size < SizeofHeader || h.Size > MaxMessageBytes {
			closeFDs(fds)
			return false, &badFrame{h}
		}
		n := int(h.Size) - SizeofHeader
		if h.Flags&FlagTypeMask == FlagTypeReply {
			if err := c.deliver(h, n, fds); err != nil {
				return false, err
			}
			continue
		}
		c.rbuf = grow(c.rbuf, n)
		if _, err := io.ReadFull(c.sock, c.rbuf); err != nil {
			closeFDs(fds)
			return false, err
		}
		m.Header, m.payload, m.fds = h, c.rbuf, fds
		return true, nil
	}
}

// deliver reads the n payload bytes of a reply and passes it to the call that waits for it.
func (c *conn) deliver(h Header, n int, fds []int) error {
	k := &c.calls[h.ID%maxCalls]
	if !awaitedIs(k.awaited.Load(), h.ID, h.Cmd) {
		closeFDs(fds)
		c.rbuf = grow(c.rbuf, n)
		if _, err := io.ReadFull(c.sock, c.rbuf); err != nil {
			return err
		}
		return c.onStrayReply(h)
	}
	k.errno = 0
	if h.Flags&FlagError != 0 {
		if k.errno = syscall.Errno(h.Errno); k.errno == 0 {
			k.errno = syscall.EIO
		}
	}
	if n > k.limit {
		closeFDs(fds)
		return protocolErrorf("reply to %s has %d bytes, at most %d expected", commandName(h.Cmd), n, k.limit)
	}
	k.reply = grow(k.reply, n)
	if _, err := io.ReadFull(c.sock, k.reply); err != nil {
		closeFDs(fds)
		return err
	}
	k.fds = fds
	k.awaited.Store(0)
	k.done <- struct{}{}
	return nil
}

// begin reserves a call of command cmd. The caller writes the request's n payload bytes to the
// returned slice. The reply has at most limit payload bytes. The caller must call end.
func (c *conn) begin(cmd uint16, n, limit int) (*call, []byte, error) {
	var k *call
	select {
	case <-c.dead:
		return nil, nil, c.err
	default:
	}
	select {
	case k = <-c.free:
	case <-c.dead:
		return nil, nil, c.err
	}
	k.cmd, k.limit = cmd, limit
	k.gen++
	k.req = grow(k.req, SizeofHeader+n)
	return k, k.req[SizeofHeader:], nil
}

// send sends a call's request. With FlagNoReply no reply will arrive.
func (c *conn) send(k *call, flags uint32, fds []int) error {
	id := k.index | k.gen*maxCalls
	h := Header{ID: id, Cmd: k.cmd, Size: uint32(len(k.req)), Flags: FlagTypeCommand | flags}
	h.MarshalBytes(k.req)
	if flags&FlagNoReply == 0 {
		k.awaited.Store(awaitedWord(id, k.cmd, c.tick.Load()))
		c.inFlight.Add(1)
		c.startWatchdog()
	}
	return c.write(k.req, fds)
}

// write sends one message.
func (c *conn) write(p []byte, fds []int) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	n, err := 0, error(nil)
	if len(fds) == 0 {
		n, err = c.sock.writeNow(p)
	}
	if err == nil && n < len(p) {
		err = c.writeRest(p[n:], fds)
	}
	if err != nil {
		c.failRead(err) // after an incomplete message the connection is unusable
		return c.err
	}
	return nil
}

// writeRest writes the part of a message that could not be written without waiting. The connection
// ends if the peer does not read it within the timeout: a client that sends requests and does not
// read their replies must not block its server. Only this path, which needs a client that reads
// slowly, sets deadlines.
func (c *conn) writeRest(p []byte, fds []int) error {
	if c.timeout > 0 {
		_ = c.sock.SetWriteDeadline(time.Now().Add(c.timeout))
		defer func() { _ = c.sock.SetWriteDeadline(time.Time{}) }()
	}
	var err error
	if len(fds) > 0 {
		err = c.sock.writeWithFDs(p, fds)
	} else {
		_, err = c.sock.Write(p)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = &unreadError{bytes: len(p), after: c.timeout}
	}
	return err
}

// wait waits for a call's reply, and reads the socket if no other goroutine does.
func (c *conn) wait(k *call) error {
	for {
		select {
		case <-c.token:
		default:
			select {
			case <-c.token:
			case <-k.done:
				return c.result(k)
			case <-c.dead:
				return c.abandon(k)
			}
		}
		err := c.readFor(k)
		c.token <- struct{}{}
		if err != nil {
			c.failRead(err)
			return c.abandon(k)
		}
		select {
		case <-k.done:
			return c.result(k)
		default:
		}
	}
}

// abandon stops waiting on a failed connection. It returns when no other goroutine can touch k.
func (c *conn) abandon(k *call) error {
	<-c.token // the reader, if any, is woken by the closing of the socket
	c.token <- struct{}{}
	select {
	case <-k.done:
		return c.result(k)
	default:
	}
	k.awaited.Store(0)
	c.inFlight.Add(-1)
	return c.err
}

// readFor reads for everyone until k is answered. The caller holds the token.
func (c *conn) readFor(k *call) error {
	m := &c.unawaited
	for {
		ok, err := c.next(m, k)
		if err != nil || !ok {
			return err
		}
		if err := c.onRequest(m); err != nil {
			return err
		}
	}
}

func (c *conn) result(k *call) error {
	c.inFlight.Add(-1)
	if k.errno != 0 {
		return &Error{Cmd: k.cmd, Errno: k.errno}
	}
	return nil
}

// end releases a call's slot and closes the descriptors of its reply that were not taken.
func (c *conn) end(k *call) {
	closeFDs(k.fds)
	k.fds = nil
	if cap(k.reply) > keepBytes {
		k.reply = nil
	}
	if cap(k.req) > keepBytes {
		k.req = nil
	}
	c.free <- k
}

// startWatchdog ensures that a call without a reply ends the connection after the timeout, or up to
// half as much later. One timer counts half timeouts while calls are in flight, so a call needs no
// timer of its own.
func (c *conn) startWatchdog() {
	if c.timeout <= 0 {
		return
	}
	c.watchMu.Lock()
	defer c.watchMu.Unlock()
	if c.watching {
		return
	}
	c.watching = true
	if c.watchdog == nil {
		c.watchdog = time.AfterFunc(c.timeout/2, c.checkTimeouts)
	} else {
		c.watchdog.Reset(c.timeout / 2)
	}
}

func (c *conn) checkTimeouts() {
	now := c.tick.Add(1)
	for i := range c.calls {
		w := c.calls[i].awaited.Load()
		if w != 0 && awaitedAge(w, now) > 2 {
			c.fail(&timeoutError{cmd: uint16(w >> 16), after: c.timeout})
			return
		}
	}
	c.watchMu.Lock()
	defer c.watchMu.Unlock()
	select {
	case <-c.dead:
		return
	default:
	}
	if c.inFlight.Load() == 0 {
		c.watching = false
		return
	}
	c.watchdog.Reset(c.timeout / 2)
}

// timeoutError ends a connection whose peer left a request unanswered. It is
// os.ErrDeadlineExceeded.
type timeoutError struct {
	cmd   uint16
	after time.Duration
}

func (e *timeoutError) Error() string {
	return "vfio-user " + commandName(e.cmd) + ": no reply within " + e.after.String()
}

func (e *timeoutError) Is(target error) bool { return target == os.ErrDeadlineExceeded }

// unreadError ends a connection whose peer does not read. It is os.ErrDeadlineExceeded.
type unreadError struct {
	bytes int
	after time.Duration
}

func (e *unreadError) Error() string {
	return fmt.Sprintf("vfio-user: %d bytes not read within %v", e.bytes, e.after)
}

func (e *unreadError) Is(target error) bool { return target == os.ErrDeadlineExceeded }
