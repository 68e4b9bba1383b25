package vm

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
)

// Stderr is the standard error of a guest's process, to which its log is written. If it is a
// daemon's pipe (see [CaptureOutput]), writes never block, and the process outlives the daemon: the
// newest 4 KiB of what could not be written are kept for the next daemon.
type Stderr struct {
	mu      sync.Mutex
	pipe    bool // false: a terminal or a file, in a process run by hand
	pending []byte
}

// NewStderr prepares the standard error. A process calls it once.
func NewStderr() (*Stderr, error) {
	var st unix.Stat_t
	if err := unix.Fstat(unix.Stderr, &st); err != nil {
		return nil, fmt.Errorf("fstat the standard error: %w", err)
	}
	s := &Stderr{pipe: st.Mode&unix.S_IFMT == unix.S_IFIFO}
	if !s.pipe {
		return s, nil
	}
	// A write without a reader must not end the process. The runtime's own last output is lost
	// then.
	signal.Ignore(unix.SIGPIPE)
	if err := unix.SetNonblock(unix.Stderr, true); err != nil {
		return nil, fmt.Errorf("make the standard error non-blocking: %w", err)
	}
	return s, nil
}

// Write implements [io.Writer]. b is a line.
func (s *Stderr) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.pipe {
		return os.Stderr.Write(b)
	}
	s.flush()
	if len(s.pending) > 0 || !put(b) {
		s.pending = appendTail(s.pending, b[:max(len(b)-1, 0)])
	}
	return len(b), nil
}

// flush writes what was kept, if possible. Preconditions: mu is held.
func (s *Stderr) flush() {
	if len(s.pending) > 0 && put(s.pending) {
		s.pending = s.pending[:0]
	}
}

// put writes b to the standard error and reports whether it could. A pipe takes so few bytes all at
// once or not at all.
func put(b []byte) bool {
	for {
		_, err := unix.Write(unix.Stderr, b)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

// replace makes another daemon's pipe the standard error. The caller keeps f.
func (s *Stderr) replace(f *os.File) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.pipe {
		return nil
	}
	var st unix.Stat_t
	fd := int(f.Fd())
	err := unix.Fstat(fd, &st)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFIFO {
		err = unix.EINVAL
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err == nil {
		err = unix.Dup3(fd, unix.Stderr, 0)
	}
	if err != nil {
		return fmt.Errorf("replace the standard error: %w", err)
	}
	s.flush()
	return nil
}
