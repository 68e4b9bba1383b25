// Package unixmsg sends and receives messages with file descriptors over unix sockets (unix(7),
// SCM_RIGHTS).
//
// It knows nothing of what messages say: their encoding, and how many bytes and descriptors one may
// have, are the caller's.
package unixmsg

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Write writes b with descriptors, which stay the caller's. On a stream socket it may write only
// the beginning of b; the descriptors go with its first byte.
func Write(c *net.UnixConn, b []byte, fds ...int) (n int, err error) {
	var control []byte
	if len(fds) > 0 {
		control = unix.UnixRights(fds...)
	}
	n, _, err = c.WriteMsgUnix(b, control, nil)
	return n, err
}

// FDs returns the descriptors of files, which stay open as long as the files do.
func FDs(files []*os.File) []int {
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	return fds
}

// Message is what was read beside a message's bytes.
type Message struct {
	// Bytes is how many bytes were read.
	Bytes int
	// Files are the descriptors, which are the caller's.
	Files []*os.File
	// Sender is the process that sent the message, where the socket has SO_PASSCRED set.
	Sender unix.Ucred
	// Truncated reports whether the message had more bytes or control data than there was room for.
	Truncated bool
}

// Wait waits until there is something to read, the end of the connection included, so that one who
// waits for long needs no room for a message meanwhile. Like Read it fails when c is closed and at
// its read deadline.
func Wait(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var peekErr error
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		for {
			_, _, peekErr = unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
			if peekErr != unix.EINTR && peekErr != unix.ECONNRESET { // see Read
				return peekErr != unix.EAGAIN
			}
		}
	})
	if err != nil {
		return err
	}
	return peekErr
}

// Read reads a message into b; control is room for its control data. With an error, it returns the
// files that came all the same.
//
// Linux reports once, and before what was sent earlier, that the other end was closed with messages
// unread (ECONNRESET). That says nothing of the messages that came, so Read reads on to the end of
// the connection.
func Read(c *net.UnixConn, b, control []byte) (Message, error) {
	n, length, flags, _, err := c.ReadMsgUnix(b, control)
	if errors.Is(err, unix.ECONNRESET) {
		n, length, flags, _, err = c.ReadMsgUnix(b, control)
	}
	data, parseErr := Parse(control[:max(length, 0)])
	m := Message{Bytes: max(n, 0), Sender: data.Sender, Truncated: flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0}
	for _, fd := range data.FDs {
		m.Files = append(m.Files, os.NewFile(uintptr(fd), "received"))
	}
	if err == nil {
		err = parseErr
	}
	return m, err
}

// Control is the content of control data.
type Control struct {
	FDs    []int
	Sender unix.Ucred
}

// Parse reads control data. With an error, it returns the descriptors that it found.
func Parse(control []byte) (c Control, err error) {
	if len(control) == 0 {
		return c, nil
	}
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return c, fmt.Errorf("parse control data: %w", err)
	}
	for i := range messages {
		m := &messages[i]
		if m.Header.Level != unix.SOL_SOCKET {
			continue
		}
		switch m.Header.Type {
		case unix.SCM_RIGHTS:
			fds, e := unix.ParseUnixRights(m)
			c.FDs, err = append(c.FDs, fds...), errors.Join(err, e)
		case unix.SCM_CREDENTIALS:
			sender, e := unix.ParseUnixCredentials(m)
			if err = errors.Join(err, e); sender != nil {
				c.Sender = *sender
			}
		}
	}
	return c, err
}

// CloseAll closes all files.
func CloseAll(files []*os.File) error {
	var errs []error
	for _, f := range files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// Peer returns the credentials of the process that made the other end of a connection
// (SO_PEERCRED).
func Peer(c syscall.Conn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); cerr != nil {
		return nil, cerr
	}
	return cred, err
}
