package soft

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
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
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
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

// remove takes a bell down. Its file may live on in another process.
func (d *doorbell) remove(b bell) error {
	err := unix.EpollCtl(d.fd, unix.EPOLL_CTL_DEL, int(b.f.Fd()), nil)
	return errors.Join(err, b.f.Close())
}

func (d *doorbell) close() error { return unix.Close(d.fd) }

// ring wakes the pacing thread. A full counter can't be added to, and has rung already.
func (b bell) ring() { ringFile(b.f) }

func (b bell) close() error { return b.f.Close() }

var one = [8]byte{1}

func ringFile(f *os.File) {
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { _, _ = unix.Write(int(fd), one[:]) })
	}
}
