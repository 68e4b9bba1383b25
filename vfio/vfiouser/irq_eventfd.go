package vfiouser

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Eventfd returns a duplicate of the client's eventfd for a vector, for another process that
// signals the interrupt. The caller closes it. It is nil if the client has set no eventfd. Users of
// the duplicate don't see masks. They must poll before each write, as Trigger does, since a client
// may make writes block.
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
