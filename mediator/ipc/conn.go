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

// sendLimit is how long the other end may leave messages unread until nothing
// more fits. A process that reads nothing for so long is stopped or stuck, and
// nobody should be stuck with it.
const sendLimit = time.Second

// Message is what processes of one guest send each other: a kind, a body that
// depends on it, and descriptors. ID pairs a reply with its request; 0 asks for
// no reply.
type Message struct {
	Kind  Kind            `json:"kind"`
	ID    uint64          `json:"id,omitempty"`
	Error string          `json:"error,omitempty"`
	Body  json.RawMessage `json:"body,omitempty"`

	// Files travel beside the text. Send borrows them; Receive's are the
	// caller's to close.
	Files []*os.File `json:"-"`
	// Sender is the process that sent it, and SenderUID its user, by the kernel's word; 0
	// where that is not known, as on every Conn that is not [Dial]'s.
	Sender    int `json:"-"`
	SenderUID int `json:"-"`
}

// NewMessage makes a message with body encoded.
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

// Decode reads the body into v.
func (m *Message) Decode(v any) error {
	if err := json.Unmarshal(m.Body, v); err != nil {
		return fmt.Errorf("decode a %s message: %w", m.Kind, err)
	}
	return nil
}

// CloseFiles closes all descriptors of a received message; for those who don't
// want them.
func (m *Message) CloseFiles() error {
	err := unixmsg.CloseAll(m.Files)
	m.Files = nil
	return err
}

// Conn carries messages over a SOCK_SEQPACKET socket, a message a packet. Send
// may be called from any goroutine, Receive from one.
type Conn struct {
	c  *net.UnixConn
	mu sync.Mutex // keeps packets of one sender in order

	text []byte
	oob  []byte
}

// NewConn makes a Conn of a SOCK_SEQPACKET socket, which it takes over.
func NewConn(c *net.UnixConn) *Conn {
	return &Conn{c: c, text: make([]byte, MaxMessage), oob: make([]byte, unix.CmsgSpace(4*MaxFiles)+unix.CmsgSpace(unix.SizeofUcred))}
}

// Pair makes two connected ends: one to keep, and one to hand to a child.
func Pair() (*Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket pair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "link"), os.NewFile(uintptr(fds[1]), "link")
	conn, err := FromFile(ours)
	if err != nil {
		return nil, nil, closing(theirs, err)
	}
	return conn, theirs, nil
}

// FromFile makes a Conn of an inherited socket; f is closed.
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

// Dial connects to a listening link. Of what is received on it the sender is known: the
// socket itself tells only who made it listen, which for a guest's is a daemon.
func Dial(path string) (*Conn, error) {
	// Before it is connected, so that no message comes without its sender.
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

// Send writes one message. The files stay the caller's. Where the other end
// reads nothing for a second it fails with os.ErrDeadlineExceeded.
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

// ReceiveWithin is Receive with a limit. Once that is over it fails with
// os.ErrDeadlineExceeded.
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

// ErrMalformed says that what came is no message, or was too large for one, or came
// when this process had no room for its files. It is dropped, and the next one can be
// read.
var ErrMalformed = errors.New("not a message")

// Receive reads one message. At the other end's close it returns io.EOF.
func (c *Conn) Receive() (Message, error) {
	in, err := unixmsg.Read(c.c, c.text, c.oob)
	switch {
	case errors.Is(err, unix.ECONNRESET): // it was closed before it had read everything
		err = io.EOF
		fallthrough
	case in.Bytes == 0:
		return Message{}, errors.Join(fmt.Errorf("receive a message: %w", cmp.Or(err, io.EOF)), unixmsg.CloseAll(in.Files))
	case in.Truncated:
		err = errors.Join(err, fmt.Errorf("longer than %d bytes or %d files", MaxMessage, MaxFiles))
	}
	m := Message{}
	if err == nil {
		err = json.Unmarshal(c.text[:in.Bytes], &m)
	}
	if err != nil {
		return Message{}, fmt.Errorf("%w: %w", ErrMalformed, errors.Join(err, unixmsg.CloseAll(in.Files)))
	}
	m.Files, m.Sender, m.SenderUID = in.Files, int(in.Sender.Pid), int(in.Sender.Uid)
	return m, nil
}

// Shut has the other end's Receive return io.EOF after what was sent before. The
// other end has grace to close its side; then Receive fails with
// os.ErrDeadlineExceeded, here.
func (c *Conn) Shut(grace time.Duration) error {
	if err := errors.Join(c.c.CloseWrite(), c.c.SetReadDeadline(time.Now().Add(grace))); err != nil {
		return fmt.Errorf("shut a link: %w", err)
	}
	return nil
}

// Expire has Receive fail with os.ErrDeadlineExceeded from now on, here. The
// other end notices nothing.
func (c *Conn) Expire() error { return c.c.SetReadDeadline(time.Unix(1, 0)) }

// Close ends the connection; a Receive that waits returns.
func (c *Conn) Close() error { return c.c.Close() }
