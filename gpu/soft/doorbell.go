package soft

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
)

// doorbell is what the pacing thread sleeps on: an epoll of bells. A bell is an eventfd that is never read, since an
// edge comes with every write.
type doorbell struct{ fd int }

func newDoorbell() (*doorbell, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create a doorbell: %w", err)
	}
	return &doorbell{fd}, nil
}

// bell rings a doorbell. Each program that launches has one of its own, which it can spoil for itself only.
type bell struct{ f *os.File }

func (d *doorbell) newBell() (bell, error) {
	// Not a non-blocking one: such a file Go's runtime watches, here and in the program, and so all of them would be
	// woken by every ring. It blocks only a writer who has filled its counter.
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return bell{}, fmt.Errorf("create a bell: %w", err)
	}
	f := os.NewFile(uintptr(fd), "vgpud-soft-bell")
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET}
	if err := unix.EpollCtl(d.fd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return bell{}, closing(f, fmt.Errorf("hang a bell: %w", err))
	}
	return bell{f}, nil
}

// Bell wakes the pacing thread from another process: its file is an eventfd.
type Bell struct {
	e *Engine
	b bell
}

// NewBell hangs a bell for a program of its own, which it can spoil for itself only. The caller closes it.
func (e *Engine) NewBell() (*Bell, error) {
	b, err := e.door.newBell()
	if err != nil {
		return nil, err
	}
	return &Bell{e, b}, nil
}

// File is the eventfd that rings. It stays the bell's.
func (b *Bell) File() *os.File { return b.b.f }

// Close takes the bell down. Files of it in other processes live on and ring nothing.
func (b *Bell) Close() error {
	// Closing the eventfd, which comes next, takes it out in any case.
	err := b.e.do(func() { _ = unix.EpollCtl(b.e.door.fd, unix.EPOLL_CTL_DEL, int(b.b.f.Fd()), nil) })
	if errors.Is(err, gpu.ErrLost) {
		err = nil // the doorbell went with all its bells
	}
	return errors.Join(err, b.b.close())
}

// Ring rings a bell by its file.
func Ring(f *os.File) { ringFile(f) }

func (d *doorbell) close() error { return unix.Close(d.fd) }

// ring wakes the pacing thread.
func (b bell) ring() { ringFile(b.f) }

func (b bell) close() error { return b.f.Close() }

// ringFile writes without looking: the only failure is that the bell is closed, and then nobody listens.
func ringFile(f *os.File) {
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(raise)
	}
}
