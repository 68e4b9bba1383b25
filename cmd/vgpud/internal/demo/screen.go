package demo

import (
	"bytes"
	"fmt"
	"io"
	"time"
)

// screen shows a phase while it runs: a table drawn again and again on a
// terminal, a line now and then elsewhere.
type screen struct {
	w     io.Writer
	live  bool
	lines int // drawn last
}

func newScreen(w io.Writer, live bool) *screen { return &screen{w: w, live: live} }

// every is how often to draw.
func (s *screen) every() time.Duration {
	if s.live {
		return 500 * time.Millisecond
	}
	return 5 * time.Second
}

// draw shows where the phase stands.
func (s *screen) draw(p *Phase, whole time.Duration) error {
	if !s.live {
		return s.line(p, whole)
	}
	var b bytes.Buffer
	s.back(&b)
	if err := p.print(&b); err != nil {
		return err
	}
	s.lines = bytes.Count(b.Bytes(), []byte{'\n'})
	_, err := s.w.Write(b.Bytes())
	return err
}

// back moves the cursor over what was drawn last.
func (s *screen) back(b *bytes.Buffer) {
	if s.lines > 0 {
		fmt.Fprintf(b, "\x1b[%dA\x1b[J", s.lines)
	}
}

// clear takes the table away.
func (s *screen) clear() error {
	var b bytes.Buffer
	s.back(&b)
	s.lines = 0
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
