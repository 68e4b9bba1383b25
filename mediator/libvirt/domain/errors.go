package domain

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// Error is something wrong with a domain's XML, on one line.
type Error struct {
	// Line counts from 1; 0 is the document as a whole.
	Line int
	// Element is the element's name as it is written, and Attr the attribute's;
	// empty where it is about none.
	Element, Attr string
	// Problem is what was found and what would be right.
	Problem string
}

// Error is "line 12: <vgpud:gpu>: attribute weight: …".
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

// ErrMismatch is wrapped by what [Domain.Check] finds: the domain's QEMU command
// line does not have the devices that its metadata asks for.
var ErrMismatch = errors.New("run `vgpuctl define` on the domain again")

// maxShown is how many bytes of the document a message repeats of one thing.
const maxShown = 48

// show is text of the document for a message: short, and on one line.
func show(s string) string {
	if len(s) > maxShown {
		s = strings.ToValidUTF8(s[:maxShown], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}

// plain is a name of the document for a message, unquoted.
func plain(s string) string {
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

// errorf is about an element.
func (d *document) errorf(e *element, format string, args ...any) error {
	return &Error{Line: d.line(e.open.from), Element: plain(d.tag(e)), Problem: fmt.Sprintf(format, args...)}
}

// attrErrorf is about an element's attribute.
func (d *document) attrErrorf(e *element, attr, format string, args ...any) error {
	return &Error{Line: d.line(e.open.from), Element: plain(d.tag(e)), Attr: plain(attr), Problem: fmt.Sprintf(format, args...)}
}
