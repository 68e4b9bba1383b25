package domain

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// Error is a problem in a domain's XML, on one line.
type Error struct {
	// Line counts from 1; 0 means the whole document.
	Line int
	// Element is the element's name as written, and Attr the attribute's; empty if the problem is
	// not about one.
	Element, Attr string
	// Problem is what was found and what would be right.
	Problem string
}

// Error formats the problem, such as "line 12: <vgpud:gpu>: attribute weight: …".
func (e *Error) Error() string {
	var b strings.Builder
	if e.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", e.Line)
	}
	if e.Element != "" {
		fmt.Fprintf(&b, "<%s>: ", e.Element)
	}
	if e.Attr != "" {
		fmt.Fprintf(&b, "attribute %s: ", e.Attr)
	}
	b.WriteString(e.Problem)
	return b.String()
}

// ErrMismatch is wrapped by [Domain.Check]'s errors: the domain's QEMU command line lacks devices
// that its metadata asks for.
var ErrMismatch = errors.New("run `vgpuctl define` on the domain again")

// maxShown bounds the bytes of the document that a message quotes.
const maxShown = 48

// quote quotes text of the document for a message: short, and on one line.
func quote(s string) string {
	if len(s) > maxShown {
		s = strings.ToValidUTF8(s[:maxShown], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}

// printable returns a name of the document for a message, unquoted.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, s)
	if len(s) > maxShown {
		s = strings.ToValidUTF8(s[:maxShown], "") + "…"
	}
	return s
}

// errorf returns an error about an element.
func (d *document) errorf(e *element, format string, args ...any) error {
	return &Error{Line: d.line(e.open.from), Element: printable(d.tag(e)), Problem: fmt.Sprintf(format, args...)}
}

// attrErrorf returns an error about an element's attribute.
func (d *document) attrErrorf(e *element, attr, format string, args ...any) error {
	return &Error{Line: d.line(e.open.from), Element: printable(d.tag(e)), Attr: printable(attr), Problem: fmt.Sprintf(format, args...)}
}
