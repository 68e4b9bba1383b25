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
//
// A daemon also keeps the file locked. The kernel releases the lock when the daemon's process ends,
// however it ends. So a guest's processes know whether a daemon that is silent is gone or just slow:
// on a busy host it may not get a processor for seconds.

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
	f, err := openSuspensionFile(path, os.O_WRONLY)
	if err != nil {
		return fmt.Errorf("suspend a guest without its page: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(until)), 0); err != nil {
		return fmt.Errorf("suspend a guest without its page: %w", err)
	}
	return nil
}

// LockSuspensionFile opens the file at path and locks it, which shows the guest's processes that a
// daemon lives. The lock lasts until the file is closed or the process ends. It is a lock for
// reading: a guest's process that was taken over can have such a lock, too, but none that keeps a
// daemon from having one; and a file that is open for writing would keep the file system from being
// made read-only. LockSuspensionFile fails if there is no file.
func LockSuspensionFile(path string) (*os.File, error) {
	f, err := openSuspensionFile(path, os.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("show a guest that the daemon lives: %w", err)
	}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK}); err != nil {
		return nil, fmt.Errorf("show a guest that the daemon lives: lock %s: %w", path, closing(f, err))
	}
	return f, nil
}

// openSuspensionFile opens the file at path for a daemon. Opening another kind of file, such as a
// pipe, does not block.
func openSuspensionFile(path string, access int) (*os.File, error) {
	return os.OpenFile(path, access|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
}

// suspensionFile is a guest's process's end of the file.
type suspensionFile struct {
	f      *os.File     // nil if there is none
	word   atomic.Int64 // as last read
	locked atomic.Bool  // likewise
	next   atomic.Int64 // when to read it again
}

// SetSuspensionFile has SuspendWord obey the file f as well, and ask it whether a daemon lives. f
// stays the caller's, and must stay open as long as the page. SetSuspensionFile is called before the
// page's other methods.
func (p *ControlPage) SetSuspensionFile(f *os.File) { p.suspension.f = f }

// suspends reports whether the file says that the guest is suspended at now. A file that can't be
// read suspends nothing.
func (s *suspensionFile) suspends(now time.Duration) bool {
	lives := s.daemonLives(now)
	until := time.Duration(s.word.Load())
	if until > 0 && lives {
		until += HungLimit - SuspensionLimit
	}
	return now < until
}

// daemonLives reports whether a daemon has the file locked.
func (s *suspensionFile) daemonLives(now time.Duration) bool {
	if s.f == nil {
		return false
	}
	if int64(now) >= s.next.Load() {
		s.read()
		s.next.Store(int64(now + suspensionReadInterval))
	}
	return s.locked.Load()
}

func (s *suspensionFile) read() {
	var b [suspensionFileBytes]byte
	word := int64(0)
	if n, err := s.f.ReadAt(b[:], 0); n == suspensionFileBytes && (err == nil || errors.Is(err, io.EOF)) {
		word = int64(binary.LittleEndian.Uint64(b[:]))
	}
	s.word.Store(word)
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	err := unix.FcntlFlock(s.f.Fd(), unix.F_OFD_GETLK, &lock)
	s.locked.Store(err == nil && lock.Type != unix.F_UNLCK)
}
