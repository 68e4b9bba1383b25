package guest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

const (
	// maxSaid bounds a line of an executor's: a longer one comes in parts.
	maxSaid = 2 << 10
	// lastSaid is how much is kept of what it said last, in bytes: the beginning of a
	// runtime's account of why it ended.
	lastSaid = 4 << 10
	// saidGrace is how long after an executor's end its last words may take. A child of its
	// that outlives it is not waited for.
	saidGrace = 100 * time.Millisecond
)

// said is what an executor writes to its standard error: its log, and what libraries and
// the runtime have to say. It comes by a pipe, since the daemon's log is a file or a socket
// that code of a guest's must not have: it could forge what is there, or cut it off. The
// guest's process writes it to the log as an executor's words, at the pace of all that a
// guest can have said.
type said struct {
	log  *slog.Logger
	from *os.File
	done chan struct{}

	mu   sync.Mutex
	last []byte
}

// hear makes an executor's standard error, which the caller closes once the executor has
// it, and reads it until end is called.
func hear(log *slog.Logger) (*said, *os.File, error) {
	from, to, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("make an executor's standard error: %w", err)
	}
	s := &said{log: log, from: from, done: make(chan struct{})}
	go s.read()
	return s, to, nil
}

func (s *said) read() {
	defer close(s.done)
	r := bufio.NewReaderSize(s.from, maxSaid)
	for {
		line, err := r.ReadSlice('\n')
		if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
			s.keep(line)
			s.log.Log(context.Background(), levelOf(line), "executor says", "text", string(line))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// keep keeps a line as long as there is room for what was said since the last end of a
// line that fell out.
func (s *said) keep(line []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = append(append(s.last, line...), '\n')
	if over := len(s.last) - lastSaid; over > 0 {
		s.last = append(s.last[:0], s.last[over:]...)
	}
}

// end returns what the executor, which has ended, said last.
func (s *said) end() (last string, err error) {
	grace := time.NewTimer(saidGrace)
	defer grace.Stop()
	select {
	case <-s.done:
	case <-grace.C:
	}
	err = s.from.Close()
	<-s.done
	return string(s.last), err
}

// levelOf is the level that a line of a log in either format names, Info where it names
// none.
func levelOf(line []byte) slog.Level {
	for _, key := range []string{`level=`, `"level":"`} {
		if _, rest, ok := bytes.Cut(line, []byte(key)); ok {
			name := rest[:len(rest)-len(bytes.TrimLeft(rest, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"))]
			var l slog.Level
			if l.UnmarshalText(name) == nil {
				return l
			}
		}
	}
	return slog.LevelInfo
}
