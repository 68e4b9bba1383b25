package qemu

import (
	"bytes"
	"io"
	"strings"
	"sync"
)

// Of what is written the last lines are kept, for errors.
const (
	keptLines   = 60  // a kernel's panic takes 50
	maxLineSize = 512 // what is longer is cut
)

// lines takes what a VM prints: it keeps the last lines, and hands whole ones
// to a log. Its methods may be called from several goroutines at once.
type lines struct {
	prefix string
	log    *sharedLog

	mu   sync.Mutex
	part []byte // a line that has not ended
	last []string
}

// sharedLog lets several lines write to one writer.
type sharedLog struct {
	mu sync.Mutex
	w  io.Writer // may be nil
}

func (l *sharedLog) print(line string) {
	if l.w == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = io.WriteString(l.w, line+"\n") // a log that can't be written stops no VM
}

// Write takes what was printed. It never fails.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for rest := p; len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		l.part = append(l.part, line[:min(len(line), max(0, maxLineSize-len(l.part)))]...)
		if rest = after; !whole {
			break
		}
		l.add(strings.TrimRight(string(l.part), "\r"))
		l.part = l.part[:0]
	}
	return len(p), nil
}

func (l *lines) add(line string) {
	if line == "" {
		return
	}
	if l.last = append(l.last, line); len(l.last) > keptLines {
		l.last = l.last[1:]
	}
	l.log.print(l.prefix + line)
}

// String is the last lines, with the one that has not ended.
func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.last
	if len(l.part) > 0 {
		all = append(all[:len(all):len(all)], string(l.part))
	}
	return strings.Join(all, "\n")
}
