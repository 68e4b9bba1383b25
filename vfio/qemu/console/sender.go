package console

import (
	"io"
	"sync"
)

// sender writes the messages of one direction, numbered from the beginning of each boot. Its
// methods may be called from several goroutines at once.
type sender struct {
	mu   sync.Mutex
	w    io.Writer
	boot uint32
	next uint32
	buf  []byte
}

// begin starts the numbering of a boot.
func (s *sender) begin(boot uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.boot, s.next = boot, 0
}

// send writes a message of the current boot.
func (s *sender) send(m Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.Boot, m.Number = s.boot, s.next
	b, err := appendFrame(s.buf[:0], &m)
	s.buf = b
	if err != nil {
		return err
	}
	s.next++
	_, err = s.w.Write(b)
	return err
}
