package vm

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
)

// Stderr is the standard error of a guest's process as its log's writer. Where that is a
// daemon's pipe (see [Hear]), the process waits for no daemon to read it, and outlives the
// one that did: what can't be written is kept, the newest 4 KiB of it, for the next.
type Stderr struct {
	mu   sync.Mutex
	pipe bool // and not the terminal or file of somebody who runs the process by hand
	kept []byte
}

// NewStderr makes it. There is one in a process.
func NewStderr() (*Stderr, error) {
	var st unix.Stat_t
	if err := unix.Fstat(unix.Stderr, &st); err != nil {
		return nil, fmt.Errorf("look at the standard error: %w", err)
	}
	s := &Stderr{pipe: st.Mode&unix.S_IFMT == unix.S_IFIFO}
	if !s.pipe {
		return s, nil
	}
	// Of what else writes there, the runtime's last words are lost where nobody reads.
	signal.Ignore(unix.SIGPIPE)
	if err := unix.SetNonblock(unix.Stderr, true); err != nil {
		return nil, fmt.Errorf("have nobody wait for who reads the standard error: %w", err)
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
	if len(s.kept) > 0 || !put(b) {
		s.kept = newest(s.kept, b[:max(len(b)-1, 0)])
	}
	return len(b), nil
}

// flush writes what was kept, if that can be. The caller holds mu.
func (s *Stderr) flush() {
	if len(s.kept) > 0 && put(s.kept) {
		s.kept = s.kept[:0]
	}
}

// put writes to the standard error, and reports whether it could. A pipe takes all of so
// little at once, or nothing.
func put(b []byte) bool {
	for {
		_, err := unix.Write(unix.Stderr, b)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

// replace puts another daemon's pipe in the place of the standard error. f stays the
// caller's.
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
		return fmt.Errorf("take over a standard error: %w", err)
	}
	s.flush()
	return nil
}
