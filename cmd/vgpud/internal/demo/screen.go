package demo

import (
	"bytes"
	"fmt"
	"io"
	"time"
	"unicode/utf8"
)

// screen shows a phase while it runs: a table drawn again and again on a
// terminal, a line now and then elsewhere.
type screen struct {
	w io.Writer
	// width is how many columns the terminal has, nil where there is none.
	width func() int
	rows  int // drawn last
}

func newScreen(w io.Writer, width func() int) *screen { return &screen{w: w, width: width} }

// every is how often to draw.
func (s *screen) every() time.Duration {
	if s.width != nil {
		return 500 * time.Millisecond
	}
	return 5 * time.Second
}

// draw shows where the phase stands.
func (s *screen) draw(p *Phase, whole time.Duration) error {
	if s.width == nil {
		return s.line(p, whole)
	}
	var b, text bytes.Buffer
	s.back(&b)
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

// rows is how many rows of a terminal text takes, whose longer lines it wraps.
func rows(text []byte, width int) int {
	n := 0
	for line := range bytes.Lines(text) {
		n += max(1, (utf8.RuneCount(bytes.TrimRight(line, "\n"))+width-1)/max(width, 1))
	}
	return n
}

// back moves the cursor over what was drawn last.
func (s *screen) back(b *bytes.Buffer) {
	if s.rows > 0 {
		fmt.Fprintf(b, "\x1b[%dA\x1b[J", s.rows)
	}
}

// clear takes the table away.
func (s *screen) clear() error {
	var b bytes.Buffer
	s.back(&b)
	s.rows = 0
	_, err := s.w.Write(b.Bytes())
	return err
}

// line is the table in one line.
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
