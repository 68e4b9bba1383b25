package corpus

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Tolerance is the permitted error of a floating-point result: |got − want| ≤ Abs + Rel·|want|. The
// zero value requires equality bit for bit.
type Tolerance struct {
	Abs, Rel float64
	Why      string // the instruction that does not define the last bits
}

// exact reports whether t requires equality.
func (t Tolerance) exact() bool { return t.Abs == 0 && t.Rel == 0 }

// Mismatch is the first wrong element of a buffer.
type Mismatch struct {
	Case      string // kernel, size and seed
	Buffer    string
	Index     int    // of the element
	Got, Want string // numbers, floating point with bits
	Bad, Of   int    // Bad of Of elements are wrong
	Within    Tolerance
}

// Error returns a description in one line.
func (m *Mismatch) Error() string {
	bound := "bit for bit"
	if !m.Within.exact() {
		bound = fmt.Sprintf("within %g + %g·|want|", m.Within.Abs, m.Within.Rel)
	}
	return fmt.Sprintf("%s: buffer %s[%d] is %s, want %s (%s; %d of %d elements differ)",
		m.Case, m.Buffer, m.Index, m.Got, m.Want, bound, m.Bad, m.Of)
}

// String returns the name of the case: "scan/small/1".
func (c *Case) String() string { return fmt.Sprintf("%s/%s/%d", c.Kernel, c.Size, c.Seed) }

// Check compares got, the contents of the named buffer after the last step, with the expected
// contents. A buffer of mode In must be unchanged. The error is a [*Mismatch] unless the buffer's
// name or length is wrong.
func (c *Case) Check(buffer string, got []byte) error {
	b := c.Buffer(buffer)
	if b == nil {
		return fmt.Errorf("%v: has no buffer %q", c, buffer)
	}
	if len(got) != b.Size {
		return fmt.Errorf("%v: buffer %s: got %d bytes, want %d", c, buffer, len(got), b.Size)
	}
	want := b.Want
	switch b.Mode {
	case Scratch:
		return nil
	case In:
		want = b.Init
	}
	if bytes.Equal(got, want) {
		return nil
	}
	step, n := b.Elem.Bytes(), b.Size/b.Elem.Bytes()
	first, bad := -1, 0
	for i := range n {
		if g, w := got[i*step:(i+1)*step], want[i*step:(i+1)*step]; !b.Within.accepts(b.Elem, g, w) {
			if first < 0 {
				first = i
			}
			bad++
		}
	}
	if bad == 0 {
		return nil
	}
	return &Mismatch{
		Case: c.String(), Buffer: buffer, Index: first, Bad: bad, Of: n, Within: b.Within,
		Got:  b.Elem.format(got[first*step:]),
		Want: b.Elem.format(want[first*step:]),
	}
}

// CheckAll reads every buffer with read and checks it. It stops at the first error.
func (c *Case) CheckAll(read func(*Buffer) ([]byte, error)) error {
	for i := range c.Buffers {
		b := &c.Buffers[i]
		if b.Mode == Scratch {
			continue
		}
		got, err := read(b)
		if err != nil {
			return fmt.Errorf("%v: reading buffer %s: %w", c, b.Name, err)
		}
		if err := c.Check(b.Name, got); err != nil {
			return err
		}
	}
	return nil
}

// CheckPrinted compares the launches' output with [Case.Printed].
func (c *Case) CheckPrinted(output string) error {
	var got []string
	if output != "" {
		got = strings.Split(strings.TrimSuffix(output, "\n"), "\n")
	}
	slices.Sort(got)
	for i := range max(len(got), len(c.Printed)) {
		switch {
		case i >= len(got):
			return fmt.Errorf("%v: printed %d lines, want %d: %q is missing", c, len(got), len(c.Printed), c.Printed[i])
		case i >= len(c.Printed):
			return fmt.Errorf("%v: printed %d lines, want %d: %q is too much", c, len(got), len(c.Printed), got[i])
		case got[i] != c.Printed[i]:
			return fmt.Errorf("%v: printed line %d (sorted) is %q, want %q", c, i, got[i], c.Printed[i])
		}
	}
	return nil
}

// accepts reports whether got is close enough to want, one element each.
func (t Tolerance) accepts(elem Elem, got, want []byte) bool {
	if bytes.Equal(got, want) {
		return true
	}
	if t.exact() {
		return false
	}
	g, w := elem.float(got), elem.float(want)
	// This form refuses a NaN.
	return math.Abs(g-w) <= t.Abs+float64(t.Rel*math.Abs(w))
}

// float returns one element as a number.
func (e Elem) float(b []byte) float64 {
	switch e {
	case U8:
		return float64(b[0])
	case U16:
		return float64(binary.LittleEndian.Uint16(b))
	case F16:
		return float64(float16(binary.LittleEndian.Uint16(b)).float32())
	case U32:
		return float64(binary.LittleEndian.Uint32(b))
	case I32:
		return float64(int32(binary.LittleEndian.Uint32(b)))
	case F32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case U64:
		return float64(binary.LittleEndian.Uint64(b))
	case I64:
		return float64(int64(binary.LittleEndian.Uint64(b)))
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(b))
}

// format returns the first element of b as text, floating point with its bits.
func (e Elem) format(b []byte) string {
	switch e {
	case U64:
		return fmt.Sprint(binary.LittleEndian.Uint64(b))
	case I64:
		return fmt.Sprint(int64(binary.LittleEndian.Uint64(b)))
	case F16:
		return fmt.Sprintf("%g (0x%04x)", e.float(b), binary.LittleEndian.Uint16(b))
	case F32:
		return fmt.Sprintf("%.9g (0x%08x)", e.float(b), binary.LittleEndian.Uint32(b))
	case F64:
		return fmt.Sprintf("%.17g (0x%016x)", e.float(b), binary.LittleEndian.Uint64(b))
	}
	return fmt.Sprintf("%.0f", e.float(b))
}
