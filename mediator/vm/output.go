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
	// maxLineBytes bounds a line of a process's output: a longer line is logged in parts.
	maxLineBytes = 2 << 10
	// keptBytes is how much of the end of the output is kept, for the log line of the process's
	// death: enough for some of a Go runtime's traceback.
	keptBytes = 4 << 10
	// drainLimit bounds the wait for the rest of the output of a process that has ended. A child of
	// that process could hold the pipe open.
	drainLimit = 100 * time.Millisecond
)

// Output logs what a process of a guest's writes to its standard error: its own log and the
// messages of libraries and the runtime. The process gets a pipe, because code of a guest's must
// not have the daemon's log file or socket: it could forge entries or cut the log off.
type Output struct {
	log  atomic.Pointer[slog.Logger]
	what string
	from *os.File
	done chan struct{}
	last []byte // once done is closed

	dumps atomic.Bool // further output is kept in dump, not logged
	dump  []byte      // once done is closed
}

// CaptureOutput returns the pipe end to use as a process's standard error, which the caller closes
// after the process's start. The process's output is logged with what as the message, until End or
// Close.
func CaptureOutput(log *slog.Logger, what string) (*Output, *os.File, error) {
	from, to, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("create a pipe for a process's standard error: %w", err)
	}
	s := &Output{what: what, from: from, done: make(chan struct{})}
	s.log.Store(log)
	go s.read()
	return s, to, nil
}

func (s *Output) read() {
	defer close(s.done)
	r := bufio.NewReaderSize(s.from, maxLineBytes)
	for {
		line, err := r.ReadSlice('\n')
		if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
			s.last = appendTail(s.last, line)
			s.pass(line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// pass logs a line, or keeps it for End.
func (s *Output) pass(line []byte) {
	if !s.dumps.Load() {
		s.log.Load().Log(context.Background(), levelOf(line), s.what, "text", string(line))
	} else if len(s.dump)+len(line) < dumpBytes {
		s.dump = append(append(s.dump, line...), '\n')
	}
}

// keepDump has further output taken for goroutines, of which up to dumpBytes are kept. End logs them
// briefly: of single lines the log's limits would leave little.
func (s *Output) keepDump() { s.dumps.Store(true) }

// With adds attributes to later log entries.
func (s *Output) With(attrs ...any) { s.log.Store(s.log.Load().With(attrs...)) }

// appendTail appends a line to tail and cuts it to the newest keptBytes bytes.
func appendTail(tail, line []byte) []byte {
	tail = append(append(tail, line...), '\n')
	if over := len(tail) - keptBytes; over > 0 {
		tail = append(tail[:0], tail[over:]...)
	}
	return tail
}

// Close stops the logging of a process that goes on.
func (s *Output) Close() error {
	err := s.from.Close()
	<-s.done
	return err
}

// End stops the logging of a process that has ended and returns the last of its output.
func (s *Output) End() (last string, err error) {
	grace := time.NewTimer(drainLimit)
	defer grace.Stop()
	select {
	case <-s.done:
	case <-grace.C:
	}
	err = s.Close()
	logDump(s.log.Load(), string(s.dump))
	return string(s.last), err
}

// levelOf returns the level that a line of slog's text or JSON format names, or Info.
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
