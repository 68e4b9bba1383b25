package demo

import (
	"bytes"
	"fmt"
	"io"
	"time"
	"unicode/utf8"
)

// screen shows a running phase: on a terminal as a table that is redrawn, elsewhere as a line every
// few seconds.
type screen struct {
	w io.Writer
	// width returns the terminal's number of columns; nil without a terminal.
	width func() int
	rows  int // of the last table
}

func newScreen(w io.Writer, width func() int) *screen { return &screen{w: w, width: width} }

// every returns the time between two draws.
func (s *screen) every() time.Duration {
	if s.width != nil {
		return 500 * time.Millisecond
	}
	return 5 * time.Second
}

// draw shows the phase's progress.
func (s *screen) draw(p *Phase, whole time.Duration) error {
	if s.width == nil {
		return s.line(p, whole)
	}
	var b, text bytes.Buffer
	s.erase(&b)
	if err := p.print(&text); err != nil {
		return err
	}
	b.Write(text.Bytes())
	if _, err := s.w.Write(b.Bytes()); err != nil {
		return err
	}
	s.rows = rows(text.Bytes(), s.width())
	return nil
}

// rows returns how many rows of a terminal text takes when longer lines are wrapped.
func rows(text []byte, width int) int {
	n := 0
	for line := range bytes.Lines(text) {
		n += max(1, (utf8.RuneCount(bytes.TrimRight(line, "\n"))+width-1)/max(width, 1))
	}
	return n
}

// erase writes the codes that erase the last table.
func (s *screen) erase(b *bytes.Buffer) {
	if s.rows > 0 {
		fmt.Fprintf(b, "\x1b[%dA\x1b[J", s.rows)
	}
}

// clear removes the table.
func (s *screen) clear() error {
	var b bytes.Buffer
	s.erase(&b)
	s.rows = 0
	_, err := s.w.Write(b.Bytes())
	return err
}

// line writes the table as one line.
func (s *screen) line(p *Phase, whole time.Duration) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "policy %s, %4.1f of %.0f s:", p.Policy, p.Seconds, whole.Seconds())
	for _, g := range p.Guests {
		fmt.Fprintf(&b, "  %s %.1f%% (entitled %.1f%%, %d kernels)", g.Name, 100*g.Share, 100*g.Entitled, g.Kernels)
	}
	b.WriteByte('\n')
	_, err := s.w.Write(b.Bytes())
	return err
}
