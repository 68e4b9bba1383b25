package vfiousertest

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/internal/unixmsg"
	"vgpud/vfio/vfiouser"
)

// testTimeout is how long a peer waits for bytes before its test fails. It only ends a test that
// hangs.
const testTimeout = 20 * time.Second

// Raw is one end of a connection that sends and receives any bytes. Its methods fail the test on an
// error that they don't return.
type Raw struct {
	t    testing.TB
	Conn *net.UnixConn
	id   uint16
}

// NewRaw wraps a connection.
func NewRaw(t testing.TB, c *net.UnixConn) *Raw { return &Raw{t: t, Conn: c, id: 0x100} }

// RawClient returns a client of dev that has sent nothing yet.
func RawClient(t testing.TB, dev vfiouser.Device) *Raw {
	t.Helper()
	return NewRaw(t, Serve(t, dev))
}

// Negotiated is RawClient with a VERSION without capabilities already sent and answered.
func Negotiated(t testing.TB, dev vfiouser.Device) *Raw {
	t.Helper()
	r := RawClient(t, dev)
	r.Negotiate()
	return r
}

// Negotiate sends a VERSION and expects a reply.
func (r *Raw) Negotiate() {
	r.t.Helper()
	if _, errno := r.Request(vfiouser.CmdVersion, []byte{0, 0, 0, 0}); errno != 0 {
		r.t.Fatalf("VERSION: %v", errno)
	}
}

// Message is a complete message.
type Message struct {
	vfiouser.Header
	Payload []byte
	FDs     []int // closed at the end of the test
}

// Encode returns the bytes of a message and sets the header's size.
func Encode(h vfiouser.Header, payload []byte) []byte {
	b := make([]byte, vfiouser.SizeofHeader+len(payload))
	h.Size = uint32(len(b))
	h.MarshalBytes(b)
	copy(b[vfiouser.SizeofHeader:], payload)
	return b
}

// SendBytes sends bytes as they are, with the descriptors attached to the first.
func (r *Raw) SendBytes(b []byte, fds ...int) {
	r.t.Helper()
	_ = r.Conn.SetWriteDeadline(time.Now().Add(testTimeout))
	n, err := unixmsg.Write(r.Conn, b, fds...)
	if err == nil && n < len(b) {
		_, err = r.Conn.Write(b[n:])
	}
	if err != nil {
		r.t.Fatalf("send %d bytes: %v", len(b), err)
	}
}

// Send sends a message with a new ID, which it returns.
func (r *Raw) Send(cmd uint16, flags uint32, payload []byte, fds ...int) uint16 {
	r.t.Helper()
	r.id++
	r.SendBytes(Encode(vfiouser.Header{ID: r.id, Cmd: cmd, Flags: flags}, payload), fds...)
	return r.id
}

// Receive receives the next message.
func (r *Raw) Receive() Message {
	r.t.Helper()
	m, err := r.receive()
	if err != nil {
		r.t.Fatalf("receive: %v", err)
	}
	return m
}

func (r *Raw) receive() (m Message, err error) {
	_ = r.Conn.SetReadDeadline(time.Now().Add(testTimeout))
	head := make([]byte, vfiouser.SizeofHeader)
	oob := make([]byte, 512)
	n, oobn, _, _, err := r.Conn.ReadMsgUnix(head, oob)
	if err != nil {
		return m, err
	}
	if n == 0 {
		return m, io.EOF
	}
	if _, err := io.ReadFull(r.Conn, head[n:]); err != nil {
		return m, err
	}
	m.UnmarshalBytes(head)
	control, _ := unixmsg.Parse(oob[:oobn])
	m.FDs = control.FDs
	r.t.Cleanup(func() {
		for _, fd := range m.FDs {
			unix.Close(fd)
		}
	})
	m.Payload = make([]byte, int(m.Size)-vfiouser.SizeofHeader)
	_, err = io.ReadFull(r.Conn, m.Payload)
	return m, err
}

// Reply receives the next message and checks that it is the reply to request id of command cmd.
func (r *Raw) Reply(cmd, id uint16) Message {
	r.t.Helper()
	m := r.Receive()
	if m.ID != id || m.Cmd != cmd || m.Flags&vfiouser.FlagTypeMask != vfiouser.FlagTypeReply {
		r.t.Fatalf("got %+v, want the reply to request %#x of command %d", m.Header, id, cmd)
	}
	if m.Flags&vfiouser.FlagError != 0 && (m.Errno == 0 || len(m.Payload) != 0) {
		r.t.Fatalf("error reply %+v with %d bytes", m.Header, len(m.Payload))
	}
	return m
}

// Request sends a request and returns its reply: the payload, or the error number.
func (r *Raw) Request(cmd uint16, payload []byte, fds ...int) ([]byte, syscall.Errno) {
	r.t.Helper()
	m := r.RequestMessage(cmd, payload, fds...)
	return m.Payload, syscall.Errno(m.Errno)
}

// RequestMessage is Request that returns the whole reply.
func (r *Raw) RequestMessage(cmd uint16, payload []byte, fds ...int) Message {
	r.t.Helper()
	return r.Reply(cmd, r.Send(cmd, vfiouser.FlagTypeCommand, payload, fds...))
}

// WantClosed checks that the peer closes the connection without sending anything more.
func (r *Raw) WantClosed() {
	r.t.Helper()
	m, err := r.receive()
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		return
	}
	r.t.Fatalf("got %+v, %v; want the connection closed", m.Header, err)
}
