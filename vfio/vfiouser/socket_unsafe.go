package vfiouser

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"vgpud/internal/unixmsg"
)

// socket is a unix stream socket that carries descriptors. It reads headers by recvmsg with buffers
// that live as long as the socket, so it allocates only when descriptors arrive.
type socket struct {
	*net.UnixConn
	raw  syscall.RawConn
	recv recvOp
	send sendOp
}

// recvOp is one recvmsg and its result. It is reused; its pointers point into itself or to the
// buffer read.
type recvOp struct {
	msg   unix.Msghdr
	iov   unix.Iovec
	oob   [oobBytes]byte
	n     int
	errno syscall.Errno
	try   func(fd uintptr) bool
}

// sendOp is one non-blocking write and its result. It is reused.
type sendOp struct {
	p   []byte
	n   int
	err error
	try func(fd uintptr) bool
}

// oobBytes is the room for MaxMessageFDs descriptors: a cmsghdr of 16 bytes, then 4 bytes each. The
// kernel closes descriptors that don't fit and sets MSG_CTRUNC.
const oobBytes = 16 + 4*MaxMessageFDs

func newSocket(c *net.UnixConn) (*socket, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("raw access to vfio-user socket: %w", err)
	}
	s := &socket{UnixConn: c, raw: raw}
	op := &s.recv
	op.msg.Iov = &op.iov
	op.msg.Iovlen = 1
	op.msg.Control = &op.oob[0]
	op.try = func(fd uintptr) bool {
		for {
			// A raw call, since it doesn't block: for a call that might, Go's runtime would wake
			// its monitor first.
			n, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&op.msg)), unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
			switch errno {
			case unix.EINTR:
				continue
			case unix.EAGAIN:
				return false // wait until readable, then again
			}
			op.n, op.errno = int(n), errno
			raceAcquire(fd)
			return true
		}
	}
	out := &s.send
	out.try = func(fd uintptr) bool {
		raceRelease(fd)
		for {
			out.n, out.err = unix.Write(int(fd), out.p)
			switch out.err {
			case unix.EINTR:
				continue
			case unix.EAGAIN:
				out.n, out.err = 0, nil
			}
			return true // never wait
		}
	}
	return s, nil
}

// writeNow writes as much of p as fits without waiting, which may be nothing.
func (s *socket) writeNow(p []byte) (int, error) {
	out := &s.send
	out.p = p
	err := s.raw.Write(out.try)
	out.p = nil
	if err == nil {
		err = out.err
	}
	if err != nil {
		return 0, fmt.Errorf("write: %w", err)
	}
	return out.n, nil
}

// readWithFDs reads at most len(p) bytes and the descriptors that came with the first of them,
// which then belong to the caller. It returns io.EOF at the end of the stream.
func (s *socket) readWithFDs(p []byte) (n int, fds []int, err error) {
	op := &s.recv
	op.iov.Base = &p[0]
	op.iov.SetLen(len(p))
	op.msg.SetControllen(len(op.oob))
	op.msg.Flags = 0
	if err := s.raw.Read(op.try); err != nil {
		return 0, nil, err
	}
	op.iov.Base = nil
	if op.errno != 0 {
		return 0, nil, fmt.Errorf("recvmsg: %w", op.errno)
	}
	if op.msg.Controllen > 0 {
		control, perr := unixmsg.Parse(op.oob[:op.msg.Controllen])
		fds, err = control.FDs, perr
		if err == nil && op.msg.Flags&unix.MSG_CTRUNC != 0 {
			err = protocolErrorf("more than %d descriptors in a message", MaxMessageFDs)
		}
		if err != nil {
			closeFDs(fds)
			return 0, nil, err
		}
	}
	if op.n == 0 {
		closeFDs(fds)
		return 0, nil, io.EOF
	}
	return op.n, fds, nil
}

// writeWithFDs writes all of p, with the descriptors attached to its first byte.
func (s *socket) writeWithFDs(p []byte, fds []int) error {
	if err := s.raw.Control(raceRelease); err != nil {
		return err
	}
	n, err := unixmsg.Write(s.UnixConn, p, fds...)
	if err != nil {
		return err
	}
	if n < len(p) {
		_, err = s.Write(p[n:])
	}
	return err
}

func closeFDs(fds []int) {
	for _, fd := range fds {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// hungUp reports whether the peer has closed its end, or this one is closed. Earlier messages of the
// peer may still be unread.
func (s *socket) hungUp() bool {
	p := []unix.PollFd{{Events: unix.POLLRDHUP}}
	var err error
	closed := s.raw.Control(func(fd uintptr) {
		p[0].Fd = int32(fd)
		for {
			if _, err = unix.Poll(p, 0); !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
	return closed != nil || err == nil && p[0].Revents != 0
}
