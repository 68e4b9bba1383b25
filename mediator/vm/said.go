package vm

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

const (
	// maxSaid bounds a line of a process's: a longer one comes in parts.
	maxSaid = 2 << 10
	// lastSaid is how much is kept of what it said last, in bytes: some of a runtime's
	// account of why it ended.
	lastSaid = 4 << 10
	// saidGrace is how long after a process's end its last words may take. A child of its
	// that outlives it is not waited for.
	saidGrace = 100 * time.Millisecond
)

// Said is what a process of a guest's writes to its standard error: its log, and what
// libraries and the runtime have to say. It comes by a pipe, since the daemon's log is a
// file or a socket that code of a guest's must not have: it could forge what is there, or
// cut it off. Who started the process writes it to the log as that process's words.
type Said struct {
	log  atomic.Pointer[slog.Logger]
	what string
	from *os.File
	done chan struct{}
	last []byte // once done is closed
}

// Hear makes a process's standard error, which the caller closes once the process has it,
// and writes what comes to the log, with what as its message, until End or Close is called.
func Hear(log *slog.Logger, what string) (*Said, *os.File, error) {
	from, to, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("make a process's standard error: %w", err)
	}
	s := &Said{what: what, from: from, done: make(chan struct{})}
	s.log.Store(log)
	go s.read()
	return s, to, nil
}

func (s *Said) read() {
	defer close(s.done)
	r := bufio.NewReaderSize(s.from, maxSaid)
	for {
		line, err := r.ReadSlice('\n')
		if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
			s.last = newest(s.last, line)
			s.log.Load().Log(context.Background(), levelOf(line), s.what, "text", string(line))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// Is adds attributes to what the process is known by in the log from now on.
func (s *Said) Is(attrs ...any) { s.log.Store(s.log.Load().With(attrs...)) }

// newest is kept with one more line, cut to the newest lastSaid bytes.
func newest(kept, line []byte) []byte {
	kept = append(append(kept, line...), '\n')
	if over := len(kept) - lastSaid; over > 0 {
		kept = append(kept[:0], kept[over:]...)
	}
	return kept
}

// Close ends the hearing of a process that goes on.
func (s *Said) Close() error {
	err := s.from.Close()
	<-s.done
	return err
}

// End ends the hearing of a process that has ended, and returns what it said last.
func (s *Said) End() (last string, err error) {
	grace := time.NewTimer(saidGrace)
	defer grace.Stop()
	select {
	case <-s.done:
	case <-grace.C:
	}
	err = s.Close()
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
