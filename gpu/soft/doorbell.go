package soft

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
)

// doorbellSet is what the pacing thread sleeps on: an epoll of doorbells. A doorbell is an eventfd
// that is never read, since every write is an edge.
type doorbellSet struct{ fd int }

func newDoorbellSet() (*doorbellSet, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create an epoll for doorbells: %w", err)
	}
	return &doorbellSet{fd}, nil
}

// doorbell is one eventfd. Each program that launches has its own, so it can only break its own.
type doorbell struct{ f *os.File }

func (d *doorbellSet) newDoorbell() (doorbell, error) {
	// A non-blocking file would be watched by Go's runtime, here and in the program, and every ring
	// would wake both. A blocking one only blocks a writer that has filled its counter.
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return doorbell{}, fmt.Errorf("create a doorbell: %w", err)
	}
	f := os.NewFile(uintptr(fd), "vgpud-soft-doorbell")
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET}
	if err := unix.EpollCtl(d.fd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return doorbell{}, closing(f, fmt.Errorf("add a doorbell: %w", err))
	}
	return doorbell{f}, nil
}

// Doorbell wakes the pacing thread from another process. Its file is an eventfd.
type Doorbell struct {
	e *Engine
	b doorbell
}

// NewDoorbell adds a doorbell for one program. The caller closes it.
func (e *Engine) NewDoorbell() (*Doorbell, error) {
	b, err := e.door.newDoorbell()
	if err != nil {
		return nil, err
	}
	return &Doorbell{e, b}, nil
}

// File returns the eventfd, which still belongs to the doorbell.
func (b *Doorbell) File() *os.File { return b.b.f }

// Close removes the doorbell. Its files in other processes have no effect afterwards.
func (b *Doorbell) Close() error {
	// The close of the eventfd, which follows, removes it in any case.
	err := b.e.do(func() { _ = unix.EpollCtl(b.e.door.fd, unix.EPOLL_CTL_DEL, int(b.b.f.Fd()), nil) })
	if errors.Is(err, gpu.ErrLost) {
		err = nil // the set has been closed with all its doorbells
	}
	return errors.Join(err, b.b.close())
}

// Ring rings a doorbell through its file.
func Ring(f *os.File) { ringFile(f) }

func (d *doorbellSet) close() error { return unix.Close(d.fd) }

// ring wakes the pacing thread.
func (b doorbell) ring() { ringFile(b.f) }

func (b doorbell) close() error { return b.f.Close() }

// ringFile ignores errors: the only one is that the doorbell is closed, and then nothing waits for
// it.
func ringFile(f *os.File) {
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(raise)
	}
}
