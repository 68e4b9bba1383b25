package exposition

import (
	"io"
	"math"
	"strconv"
	"strings"
)

// flushAt is the length of buffered text that is written.
const flushAt = 32 << 10

// Text is a [Sink] that writes Prometheus' text format, version 0.0.4. Families come in the order in
// which they are collected, and series as well.
type Text struct {
	w      io.Writer
	buf    []byte
	err    error
	family *Family // whose head is written
}

// NewText returns a sink that writes to w. Flush must be called in the end.
func NewText(w io.Writer) *Text { return &Text{w: w, buf: make([]byte, 0, flushAt+4<<10)} }

// Flush writes what is buffered. It returns the first error of any write.
func (t *Text) Flush() error {
	if t.err == nil && len(t.buf) > 0 {
		_, t.err = t.w.Write(t.buf)
	}
	t.buf = t.buf[:0]
	return t.err
}

// Sample implements [Sink].
func (t *Text) Sample(f *Family, l *Labels, value float64) {
	t.begin(f)
	t.line(f, "", l.asText(f), "", value)
}

// Distribution implements [Sink].
func (t *Text) Distribution(f *Family, l *Labels, d Distribution) {
	t.begin(f)
	labels := l.asText(f)
	for i, bound := range d.Bounds {
		t.bucket(f, labels, bound, d.UpTo[i])
	}
	if n := len(d.Bounds); n == 0 || !math.IsInf(d.Bounds[n-1], 1) {
		t.bucket(f, labels, math.Inf(1), d.Count)
	}
	t.line(f, "_sum", labels, "", d.Sum)
	t.line(f, "_count", labels, "", float64(d.Count))
}

func (t *Text) bucket(f *Family, labels []byte, bound float64, upTo uint64) {
	var b [32]byte
	t.line(f, "_bucket", labels, string(appendFloat(b[:0], bound)), float64(upTo))
}

// begin writes the head of a family if it is another than before.
func (t *Text) begin(f *Family) {
	if t.family == f {
		return
	}
	t.family = f
	t.buf = append(t.buf, "# HELP "...)
	t.buf = append(t.buf, f.name...)
	t.buf = append(t.buf, ' ')
	t.buf = append(t.buf, helpEscaper.Replace(f.help)...)
	t.buf = append(t.buf, "\n# TYPE "...)
	t.buf = append(t.buf, f.name...)
	t.buf = append(t.buf, ' ')
	t.buf = append(t.buf, f.kind.String()...)
	t.buf = append(t.buf, '\n')
}

// line writes a sample. le is the value of a label of that name, or "" for none.
func (t *Text) line(f *Family, suffix string, labels []byte, le string, value float64) {
	b := append(append(t.buf, f.name...), suffix...)
	if len(labels) > 0 || le != "" {
		b = append(b, '{')
		b = append(b, labels...)
		if le != "" {
			if len(labels) > 0 {
				b = append(b, ',')
			}
			b = append(append(append(b, `le="`...), le...), '"')
		}
		b = append(b, '}')
	}
	b = appendFloat(append(b, ' '), value)
	t.buf = append(b, '\n')
	if len(t.buf) >= flushAt {
		t.Flush() // which keeps an error
	}
}

var (
	helpEscaper  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	valueEscaper = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// asText returns the labels as they stand between braces.
func (l *Labels) asText(f *Family) []byte {
	if l.text != nil || len(f.labels) == 0 {
		return l.text
	}
	size := 0
	for i, v := range l.values {
		size += len(f.labels[i]) + len(`="",`) + len(v)
	}
	l.text = make([]byte, 0, size)
	for _, i := range f.order {
		if len(l.text) > 0 {
			l.text = append(l.text, ',')
		}
		l.text = append(append(l.text, f.labels[i]...), `="`...)
		v := l.values[i]
		if strings.ContainsAny(v, "\\\n\"") {
			v = valueEscaper.Replace(v)
		}
		l.text = append(append(l.text, strings.ToValidUTF8(v, "\uFFFD")...), '"')
	}
	return l.text
}

func appendFloat(b []byte, v float64) []byte {
	switch {
	case math.IsInf(v, 1):
		return append(b, "+Inf"...)
	case v == math.Trunc(v) && math.Abs(v) < 1e6: // what AppendFloat gives, sooner; -0 is 0
		return strconv.AppendInt(b, int64(v), 10)
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}
