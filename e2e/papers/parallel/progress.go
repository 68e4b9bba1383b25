package parallel

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"vgpud/clock"
)

// Progress writes a line now and then on how far Map is, since figures take minutes.
type Progress struct {
	name  string
	w     io.Writer
	clock clock.Clock
	every time.Duration

	mu          sync.Mutex
	begun, last time.Duration
	parts       int // calls of Map so far
}

// NewProgress returns a progress of the program name that writes to w, at most once in every.
func NewProgress(name string, w io.Writer, c clock.Clock, every time.Duration) *Progress {
	now := c.Now()
	return &Progress{name: name, w: w, clock: c, every: every, begun: now, last: now}
}

// shown is the progress that Map writes, or nil.
var shown atomic.Pointer[Progress]

// Show has every later Map write p, or nothing if p is nil.
func Show(p *Progress) { shown.Store(p) }

// part returns a function that Map calls after each of its n results.
func (p *Progress) part(n int) func() error {
	if p == nil {
		return func() error { return nil }
	}
	p.mu.Lock()
	p.parts++
	part := p.parts
	p.mu.Unlock()
	done := 0
	return func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		done++
		now := p.clock.Now()
		if now-p.last < p.every {
			return nil
		}
		p.last = now
		_, err := fmt.Fprintf(p.w, "%s: part %d, %d of %d runs, %v\n", p.name, part, done, n, (now - p.begun).Round(time.Second))
		if err != nil {
			return fmt.Errorf("show progress: %w", err)
		}
		return nil
	}
}
