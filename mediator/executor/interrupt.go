package executor

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// eventfd raises an interrupt in the guest. The VMM holds the same open file, and could make a
// write block by filling the counter and clearing O_NONBLOCK. So Raise polls for room first; a full
// counter is a raised interrupt.
type eventfd struct{ f *os.File }

// NewEventfd returns an [Interrupt] that raises an eventfd, which it takes over.
func NewEventfd(f *os.File) (Interrupt, error) {
	if err := unix.SetNonblock(int(f.Fd()), true); err != nil {
		if cerr := f.Close(); cerr != nil {
			return nil, cerr
		}
		return nil, fmt.Errorf("set an interrupt's eventfd non-blocking: %w", err)
	}
	return eventfd{f}, nil
}

var one = [8]byte{1}

func (e eventfd) Raise() error {
	fd := int(e.f.Fd())
	p := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	if n, err := unix.Poll(p[:], 0); err != nil {
		return fmt.Errorf("poll an eventfd: %w", err)
	} else if n == 0 {
		return nil
	}
	if _, err := unix.Write(fd, one[:]); err != nil && err != unix.EAGAIN {
		return fmt.Errorf("raise an eventfd: %w", err)
	}
	return nil
}

func (e eventfd) Close() error { return e.f.Close() }
