package ipc

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/internal/unixmsg"
)

const (
	// MaxMessage bounds a message's text, MaxFiles its descriptors.
	MaxMessage = 64 << 10
	MaxFiles   = 40
)

// sendLimit is how long Send waits for room. A process that reads nothing for so long is stopped or
// stuck.
const sendLimit = time.Second

// Message is a message between processes of one host: a kind, a body that depends on the kind, and
// descriptors. ID pairs a reply with its request; 0 asks for no reply.
type Message struct {
	Kind  Kind            `json:"kind"`
	ID    uint64          `json:"id,omitempty"`
	Error string          `json:"error,omitempty"`
	Body  json.RawMessage `json:"body,omitempty"`

	// Files are the descriptors. Send borrows them; the caller closes those that Receive returns.
	Files []*os.File `json:"-"`
	// Sender is the process that sent the message, and SenderUID its user, as the kernel reports
	// them. They are 0 on a Conn that is not [Dial]'s.
	Sender    int `json:"-"`
	SenderUID int `json:"-"`
}

// NewMessage returns a message with body encoded.
func NewMessage(kind Kind, body any, files ...*os.File) (Message, error) {
	m := Message{Kind: kind, Files: files}
	if body == nil {
		return m, nil
	}
	b, err := json.Marshal(body)
	if err != nil {
		return Message{}, fmt.Errorf("encode a %s message: %w", kind, err)
	}
	m.Body = b
	return m, nil
}

// Decode decodes the body into v.
func (m *Message) Decode(v any) error {
	if err := json.Unmarshal(m.Body, v); err != nil {
		return fmt.Errorf("decode a %s message: %w", m.Kind, err)
	}
	return nil
}

// CloseFiles closes all descriptors of a received message.
func (m *Message) CloseFiles() error {
	err := unixmsg.CloseAll(m.Files)
	m.Files = nil
	return err
}

// Conn carries messages over a SOCK_SEQPACKET socket, one in a packet. Send may be called from any
// goroutine, Receive from one at a time.
type Conn struct {
	c  *net.UnixConn
	mu sync.Mutex // serialises Send
}

// room is where one message is received.
type room struct {
	text, oob []byte
}

// roomForFiles is how long the control data of a message can be.
var roomForFiles = unix.CmsgSpace(4*MaxFiles) + unix.CmsgSpace(unix.SizeofUcred)

// rooms are for all Conns: a daemon has one for each guest, and nearly all of them wait.
var rooms = sync.Pool{New: func() any { return &room{make([]byte, MaxMessage), make([]byte, roomForFiles)} }}

// NewConn returns a Conn over a SOCK_SEQPACKET socket, which it takes over.
func NewConn(c *net.UnixConn) *Conn {
	return &Conn{c: c}
}

// Pair returns two connected ends: one to keep, and one for a child process.
func Pair() (*Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket pair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "socket"), os.NewFile(uintptr(fds[1]), "socket")
	conn, err := FromFile(ours)
	if err != nil {
		return nil, nil, closing(theirs, err)
	}
	return conn, theirs, nil
}

// FromFile returns a Conn over an inherited socket, and closes f.
func FromFile(f *os.File) (*Conn, error) {
	c, err := net.FileConn(f)
	if err != nil {
		return nil, closing(f, fmt.Errorf("use %s as a link: %w", f.Name(), err))
	}
	if err := f.Close(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("use %s as a link: not a unix socket", f.Name()), c.Close())
	}
	return NewConn(uc), nil
}

// Dial connects to a socket that listens for Conns. Messages received on it have a sender. The
// socket's own credentials would be those of the process that made it listen, which for a guest's
// socket is a daemon.
func Dial(path string) (*Conn, error) {
	// The option is set before the socket is connected, so that no message lacks its sender.
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var e error
		err := c.Control(func(fd uintptr) { e = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) })
		return errors.Join(err, e)
	}}
	c, err := d.Dial("unixpacket", path)
	if err != nil {
		return nil, err
	}
	return NewConn(c.(*net.UnixConn)), nil
}

// Send writes one message. The files stay the caller's. It fails with os.ErrDeadlineExceeded if the
// other end reads nothing for a second.
func (c *Conn) Send(m Message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode a %s message: %w", m.Kind, err)
	}
	if len(text) > MaxMessage || len(m.Files) > MaxFiles {
		return fmt.Errorf("send a %s message: %d bytes and %d files, at most %d and %d", m.Kind, len(text), len(m.Files), MaxMessage, MaxFiles)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.c.SetWriteDeadline(time.Now().Add(sendLimit)); err != nil {
		return fmt.Errorf("send a %s message: %w", m.Kind, err)
	}
	if _, err := unixmsg.Write(c.c, text, unixmsg.FDs(m.Files)...); err != nil {
		return fmt.Errorf("send a %s message: %w", m.Kind, err)
	}
	return nil
}

// Unread returns how much of the kernel's memory, in bytes, sent messages take that the other end has
// not received. Each takes more than its own length.
func (c *Conn) Unread() (n int, err error) {
	raw, err := c.c.SyscallConn()
	if err == nil {
		cerr := raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
		err = errors.Join(err, cerr)
	}
	if err != nil {
		return 0, fmt.Errorf("see how many messages are unread: %w", err)
	}
	return n, nil
}

// ReceiveWithin is Receive with a time limit. After d it fails with os.ErrDeadlineExceeded.
func (c *Conn) ReceiveWithin(d time.Duration) (Message, error) {
	if err := c.c.SetReadDeadline(time.Now().Add(d)); err != nil {
		return Message{}, fmt.Errorf("receive a message: %w", err)
	}
	m, err := c.Receive()
	if err != nil {
		return m, err
	}
	if err := c.c.SetReadDeadline(time.Time{}); err != nil {
		return Message{}, errors.Join(fmt.Errorf("receive a message: %w", err), m.CloseFiles())
	}
	return m, nil
}

// ErrMalformed reports a packet that is no message, is too large for one, or came when this process
// had no room for its files. The packet is dropped, and the next one can be read.
var ErrMalformed = errors.New("not a message")

// Receive reads one message. It returns io.EOF if the other end is closed and what it sent was read.
func (c *Conn) Receive() (Message, error) {
	if err := unixmsg.Wait(c.c); err != nil {
		return Message{}, fmt.Errorf("receive a message: %w", err)
	}
	r := rooms.Get().(*room)
	defer rooms.Put(r)
	in, err := unixmsg.Read(c.c, r.text, r.oob)
	switch {
	case in.Bytes == 0:
		return Message{}, errors.Join(fmt.Errorf("receive a message: %w", cmp.Or(err, io.EOF)), unixmsg.CloseAll(in.Files))
	case in.Truncated:
		err = errors.Join(err, fmt.Errorf("longer than %d bytes or %d files", MaxMessage, MaxFiles))
	}
	m := Message{}
	if err == nil {
		err = json.Unmarshal(r.text[:in.Bytes], &m)
	}
	if err != nil {
		return Message{}, fmt.Errorf("%w: %w", ErrMalformed, errors.Join(err, unixmsg.CloseAll(in.Files)))
	}
	m.Files, m.Sender, m.SenderUID = in.Files, int(in.Sender.Pid), int(in.Sender.Uid)
	return m, nil
}

// Shut has the other end's Receive return io.EOF after what was sent before. Unless the other end
// closes within grace, Receive fails here with os.ErrDeadlineExceeded.
func (c *Conn) Shut(grace time.Duration) error {
	if err := errors.Join(c.c.CloseWrite(), c.c.SetReadDeadline(time.Now().Add(grace))); err != nil {
		return fmt.Errorf("shut a connection: %w", err)
	}
	return nil
}

// Expire has Receive fail here with os.ErrDeadlineExceeded from now on. The other end notices
// nothing.
func (c *Conn) Expire() error { return c.c.SetReadDeadline(time.Unix(1, 0)) }

// Close ends the connection. A Receive that waits returns.
func (c *Conn) Close() error { return c.c.Close() }
