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

// A guest's page comes from the guest's process, so a daemon that was started anew can't
// write to it while that process is stopped or swapped out, though its executors run on.
// For that time there is a file of the daemon's own, of one word: the instant of
// clock.Real until which the guest is suspended. The guest's processes can only read it.
// They look at it where the page says that the daemon is silent, and never map it.

// untilBytes is the file's size.
const untilBytes = 8

// lookUntilEvery is how long what the file said holds.
const lookUntilEvery = 10 * time.Millisecond

// NewUntil makes the file at path, which says that the guest is not suspended, and opens
// it for the guest's processes, which can only read it. The caller closes it.
func NewUntil(path string) (_ *os.File, err error) {
	if err := os.WriteFile(path, make([]byte, untilBytes), 0o600); err != nil {
		return nil, fmt.Errorf("make a guest's suspension: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open a guest's suspension: %w", err)
	}
	return f, nil
}

// SuspendUntil has the guest whose file is at path suspended until an instant of
// clock.Real, as long as its page is silent; 0 ends that. It fails where there is no file.
func SuspendUntil(path string, until time.Duration) (err error) {
	// What lies there instead must not be waited for: a pipe would be.
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

// until is what a guest's process knows of its file.
type until struct {
	f    *os.File     // nil: there is none
	word atomic.Int64 // as it was read last
	next atomic.Int64 // when it is to be read again
}

// SetUntil has Verdict go by the file f as well, which stays the caller's, open as long as
// the page. It is called before the page's other methods.
func (p *Page) SetUntil(f *os.File) { p.until.f = f }

// holds reports whether the guest is suspended at now, whatever its page says. A file that
// can't be read suspends nobody.
func (u *until) holds(now time.Duration) bool {
	if u.f == nil {
		return false
	}
	if int64(now) >= u.next.Load() {
		var b [untilBytes]byte
		word := int64(0)
		if n, err := u.f.ReadAt(b[:], 0); n == untilBytes && (err == nil || errors.Is(err, io.EOF)) {
			word = int64(binary.LittleEndian.Uint64(b[:]))
		}
		u.word.Store(word)
		u.next.Store(int64(now + lookUntilEvery))
	}
	return int64(now) < u.word.Load()
}
