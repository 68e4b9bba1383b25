package vfiouser

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// one is the value that is written to signal an eventfd.
var one = [8]byte{1}

// signal signals the eventfd. The client shares the open file, so it could make a write block by
// filling the counter and clearing O_NONBLOCK; therefore signal polls first. A full counter is
// already signalled.
func (e *event) signal() {
	p := [1]unix.PollFd{{Fd: int32(e.fd), Events: unix.POLLOUT}}
	if n, err := unix.Poll(p[:], 0); n != 1 || err != nil {
		return
	}
	_, _ = unix.Write(e.fd, one[:])
}

// checkEventfd returns an error if fd is not an eventfd, and makes writes to it non-blocking.
func checkEventfd(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("stat descriptor for interrupt: %w", err)
	}
	if st.Mode&unix.S_IFMT != 0 {
		return fmt.Errorf("descriptor for interrupt is no eventfd: %w", syscall.EINVAL)
	}
	// Other files without an inode of their own (epoll, timers) don't accept an 8-byte write.
	// /proc, if available, identifies them.
	if name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err == nil && name != "anon_inode:[eventfd]" {
		return fmt.Errorf("descriptor for interrupt is %s: %w", name, syscall.EINVAL)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return fmt.Errorf("set interrupt's eventfd non-blocking: %w", err)
	}
	return nil
}

// Eventfd is a kernel counter that a server signals as an interrupt and a client waits for.
type Eventfd struct {
	file *os.File
	fd   int
}

// NewEventfd returns an eventfd with count 0. Close must be called to free it.
func NewEventfd() (*Eventfd, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("create eventfd: %w", err)
	}
	return &Eventfd{file: os.NewFile(uintptr(fd), "eventfd"), fd: fd}, nil
}

// OpenEventfd returns an Eventfd for a file that another process sent, and takes over the file. Its
// writes must not block.
func OpenEventfd(f *os.File) (*Eventfd, error) {
	fd := -1
	raw, err := f.SyscallConn()
	if err == nil {
		err = raw.Control(func(n uintptr) { fd = int(n) })
	}
	if err == nil {
		err = checkEventfd(fd)
	}
	if err != nil {
		return nil, fmt.Errorf("open eventfd: %w", err)
	}
	return &Eventfd{file: f, fd: fd}, nil
}

// FD returns the descriptor, which still belongs to the Eventfd.
func (e *Eventfd) FD() int { return e.fd }

// Wait waits until the eventfd is signalled, and returns the number of signals since the last Wait.
// It returns ctx's cause if ctx ends first, and os.ErrClosed after Close. One goroutine may wait at
// a time.
func (e *Eventfd) Wait(ctx context.Context) (uint64, error) {
	if ctx.Done() != nil {
		if err := ctx.Err(); err != nil {
			return 0, context.Cause(ctx)
		}
		ended := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			_ = e.file.SetReadDeadline(time.Unix(1, 0))
			close(ended)
		})
		defer func() {
			if !stop() {
				<-ended
				_ = e.file.SetReadDeadline(time.Time{})
			}
		}()
	}
	var b [8]byte
	_, err := e.file.Read(b[:])
	switch {
	case err == nil:
		return le.Uint64(b[:]), nil
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	}
	return 0, fmt.Errorf("wait for eventfd: %w", err)
}

// Signal signals the eventfd.
func (e *Eventfd) Signal() error {
	if _, err := e.file.Write(one[:]); err != nil {
		return fmt.Errorf("raise eventfd: %w", err)
	}
	return nil
}

// Close closes the eventfd and ends a Wait.
func (e *Eventfd) Close() error { return e.file.Close() }
