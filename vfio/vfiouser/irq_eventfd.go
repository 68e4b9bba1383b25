package vfiouser

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Eventfd returns a duplicate of the eventfd that the client gave for a vector, for a process that raises the interrupt
// itself; it is the caller's to close. It is nil when the client does not listen to the vector. Masks are not seen
// by who uses it, and a client may make writes to it block, so it must be polled for room first, as Trigger does.
func (s *Session) Eventfd(index, vector uint32) (*os.File, error) {
	t := s.irqs
	t.mu.Lock()
	defer t.mu.Unlock()
	if index >= NumIRQs || int64(vector) >= int64(len(t.index[index].vectors)) {
		return nil, nil
	}
	e := t.index[index].vectors[vector].event
	if e == nil {
		return nil, nil
	}
	fd, err := unix.FcntlInt(uintptr(e.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate eventfd of interrupt %d, vector %d: %w", index, vector, err)
	}
	return os.NewFile(uintptr(fd), "eventfd"), nil
}
