package domain

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Bounds on a document. A libvirt domain with hundreds of devices has about 200 KiB, nested ten
// deep. Larger documents are refused.
const (
	maxBytes    = 1 << 20
	maxDepth    = 64
	maxAttrs    = 64 // of one element
	maxElements = 1 << 15
)

// span is a range of a document's bytes.
type span struct{ from, to int }

// document is a domain's XML as a tree whose elements know their position in the source.
type document struct {
	src  []byte
	root *element
}

// element is one element.
type element struct {
	// name has the namespace's URI as its Space.
	name        xml.Name
	attrs       []xml.Attr
	parent      *element
	children    []*element
	open, close span // its tags; of <a/>, close is empty at open's end
	text        []byte
}

// parseDocument reads a document. Only XML's own entities are known; a document type declaration,
// which could declare others, is refused.
func parseDocument(src []byte) (*document, error) {
	if len(src) > maxBytes {
		return nil, &Error{Problem: fmt.Sprintf("%d bytes of XML: a domain has at most %d", len(src), maxBytes)}
	}
	d := &document{src: src}
	p := parser{document: d, in: xml.NewDecoder(bytes.NewReader(src)), declared: make(map[string]int)}
	for {
		from := int(p.in.InputOffset())
		tok, err := p.in.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, &Error{Line: d.line(int(p.in.InputOffset())), Problem: syntaxProblem(err)}
		}
		if err := p.token(tok, span{from, int(p.in.InputOffset())}); err != nil {
			return nil, err
		}
	}
	if d.root == nil {
		return nil, &Error{Problem: "no XML element: want <domain>"}
	}
	return d, nil
}

// parser builds a document's tree.
type parser struct {
	*document
	in       *xml.Decoder
	at       *element // the innermost open element
	depth    int
	elements int
	declared map[string]int // declarations of each prefix in scope
}

func (p *parser) token(tok xml.Token, where span) error {
	switch tok := tok.(type) {
	case xml.StartElement:
		return p.start(tok, where)
	case xml.EndElement:
		p.at.close = where
		p.declare(p.at, -1)
		p.at, p.depth = p.at.parent, p.depth-1
	case xml.CharData:
		if p.at != nil {
			p.at.text = append(p.at.text, tok...)
		} else if len(bytes.TrimSpace(tok)) > 0 {
			return &Error{Line: p.line(where.from), Problem: "text outside of <domain>"}
		}
	case xml.Directive:
		return &Error{Line: p.line(where.from), Problem: "a document type declaration: a domain has none"}
	}
	return nil
}

func (p *parser) start(tok xml.StartElement, where span) error {
	e := &element{name: tok.Name, attrs: tok.Copy().Attr, parent: p.at, open: where}
	p.elements, p.depth = p.elements+1, p.depth+1
	switch {
	case p.at == nil && p.root != nil:
		return p.errorf(e, "a second element beside <domain>")
	case p.elements > maxElements:
		return p.errorf(e, "more than %d elements", maxElements)
	case p.depth > maxDepth:
		return p.errorf(e, "nested more than %d deep", maxDepth)
	case len(e.attrs) > maxAttrs:
		return p.errorf(e, "more than %d attributes", maxAttrs)
	}
	for i, a := range e.attrs {
		for _, b := range e.attrs[:i] {
			if a.Name == b.Name {
				return p.attrErrorf(e, a.Name.Local, "given twice")
			}
		}
	}
	p.declare(e, 1)
	if prefix := p.prefix(e); prefix != "" && prefix != "xml" && p.declared[prefix] == 0 {
		return p.errorf(e, "the prefix %s has no namespace: want xmlns:%s=… here or further out", printable(prefix), printable(prefix))
	}
	if p.at == nil {
		p.root = e
	} else {
		p.at.children = append(p.at.children, e)
	}
	p.at = e
	return nil
}

// declare adds n to the declarations of each prefix that an element declares.
func (p *parser) declare(e *element, n int) {
	for _, a := range e.attrs {
		if a.Name.Space == "xmlns" {
			p.declared[a.Name.Local] += n
		}
	}
}

// syntaxProblem formats the decoder's error on one line.
func syntaxProblem(err error) string {
	msg := err.Error()
	if s, ok := errors.AsType[*xml.SyntaxError](err); ok {
		msg = s.Msg
	}
	const most = 120
	if len(msg) > most {
		msg = strings.ToValidUTF8(msg[:most], "") + "…"
	}
	return "malformed XML: " + strings.Trim(fmt.Sprintf("%+q", msg), `"`)
}

// line returns the number, from 1, of the line at an offset.
func (d *document) line(offset int) int {
	return 1 + bytes.Count(d.src[:min(offset, len(d.src))], []byte("\n"))
}

// tag returns an element's name as written, with its prefix.
func (d *document) tag(e *element) string {
	raw := d.src[e.open.from+1 : e.open.to]
	if end := bytes.IndexAny(raw, " \t\r\n/>"); end >= 0 {
		raw = raw[:end]
	}
	return string(raw)
}

// prefix returns the prefix that an element is written with, or "".
func (d *document) prefix(e *element) string {
	prefix, _, ok := strings.Cut(d.tag(e), ":")
	if !ok {
		return ""
	}
	return prefix
}

// closesItself reports whether an element is written <a/>.
func (e *element) closesItself() bool { return e.close.from == e.close.to }

// extent returns the range of an element with its tags.
func (e *element) extent() span { return span{e.open.from, e.close.to} }

// is reports whether an element has that name in a namespace, which is empty for libvirt's own.
func (e *element) is(space, local string) bool {
	return e.name.Space == space && e.name.Local == local
}

// child returns libvirt's first child element of that name, or nil.
func (e *element) child(local string) *element {
	for _, c := range e.children {
		if c.is("", local) {
			return c
		}
	}
	return nil
}

// attr returns the value of an attribute without a namespace, or "".
func (e *element) attr(local string) string {
	for _, a := range e.attrs {
		if a.Name.Space == "" && a.Name.Local == local {
			return a.Value
		}
	}
	return ""
}

// value returns an element's text, trimmed.
func (e *element) value() string { return string(bytes.TrimSpace(e.text)) }

// attrSpan returns the range of an element's n-th attribute, from the end of what precedes it to
// its closing quote. The decoder has accepted the start tag.
func (d *document) attrSpan(e *element, n int) span {
	at := e.open.from + 1 + len(d.tag(e))
	for ; ; n-- {
		from := at
		at += bytes.IndexByte(d.src[at:], '=') + 1
		for isSpace(d.src[at]) {
			at++
		}
		quote := d.src[at]
		at += bytes.IndexByte(d.src[at+1:], quote) + 2
		if n == 0 {
			return span{from, at}
		}
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }
