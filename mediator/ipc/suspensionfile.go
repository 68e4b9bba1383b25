package ipc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A daemon gets a guest's control page from the guest's process. So a daemon that has just started
// can't suspend a guest whose process is stopped or swapped out, though the guest's executors run
// on. For that time the daemon has a file of its own with one word: the instant of clock.Real until
// which the guest is suspended. The guest's processes can only read the file. They read it while
// the page says that the daemon is silent, and never map it.

// suspensionFileBytes is the file's size.
const suspensionFileBytes = 8

// suspensionReadInterval is the time between two reads of the file.
const suspensionReadInterval = 10 * time.Millisecond

// NewSuspensionFile creates the file at path, with the guest not suspended, and opens it read-only
// for the guest's processes. The caller closes it.
func NewSuspensionFile(path string) (*os.File, error) {
	if err := os.WriteFile(path, make([]byte, suspensionFileBytes), 0o600); err != nil {
		return nil, fmt.Errorf("make a guest's suspension: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open a guest's suspension: %w", err)
	}
	return f, nil
}

// SuspendUntil suspends the guest whose file is at path until an instant of clock.Real, for as long
// as the guest's page is silent; 0 ends the suspension. It fails if there is no file.
func SuspendUntil(path string, until time.Duration) (err error) {
	// Opening another kind of file, such as a pipe, must not block.
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("suspend a guest without its page: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(until)), 0); err != nil {
		return fmt.Errorf("suspend a guest without its page: %w", err)
	}
	return nil
}

// suspensionFile is a guest's process's end of the file.
type suspensionFile struct {
	f    *os.File     // nil if there is none
	word atomic.Int64 // as last read
	next atomic.Int64 // when to read it again
}

// SetSuspensionFile has SuspendWord obey the file f as well. f stays the caller's, and must stay
// open as long as the page. SetSuspensionFile is called before the page's other methods.
func (p *ControlPage) SetSuspensionFile(f *os.File) { p.suspension.f = f }

// suspends reports whether the file says that the guest is suspended at now. A file that can't be
// read suspends nothing.
func (s *suspensionFile) suspends(now time.Duration) bool {
	if s.f == nil {
		return false
	}
	if int64(now) >= s.next.Load() {
		var b [suspensionFileBytes]byte
		word := int64(0)
		if n, err := s.f.ReadAt(b[:], 0); n == suspensionFileBytes && (err == nil || errors.Is(err, io.EOF)) {
			word = int64(binary.LittleEndian.Uint64(b[:]))
		}
		s.word.Store(word)
		s.next.Store(int64(now + suspensionReadInterval))
	}
	return int64(now) < s.word.Load()
}
