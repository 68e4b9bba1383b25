package qemu

import (
	"bytes"
	"io"
	"strings"
	"sync"
)

// Limits of the output that is kept for errors.
const (
	keptLines   = 60  // a kernel's panic takes 50
	maxLineSize = 512 // longer lines are cut
)

// lines receives a VM's output. It keeps the last lines and passes complete ones to a log. Its
// methods may be called from several goroutines at once.
type lines struct {
	prefix string
	log    *sharedLog

	mu   sync.Mutex
	part []byte // an incomplete line
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
	_, _ = io.WriteString(l.w, line+"\n") // a failing log must not stop a VM
}

// Write appends output. It never fails.
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

// String returns the last lines, including an incomplete one.
func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.last
	if len(l.part) > 0 {
		all = append(all[:len(all):len(all)], string(l.part))
	}
	return strings.Join(all, "\n")
}
