package domain

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
)

// edit replaces bytes of a document by a text.
type edit struct {
	span
	text string
}

// apply returns the document after the edits, which don't overlap; those at the same place are made
// in order.
func apply(src []byte, edits []edit) []byte {
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Compare(a.from, b.from) })
	var b bytes.Buffer
	at := 0
	for _, e := range edits {
		b.Write(src[at:e.from])
		b.WriteString(e.text)
		at = e.to
	}
	b.Write(src[at:])
	return b.Bytes()
}

// layout is how a document starts the lines of its elements.
type layout struct{ newline, unit string }

// maxIndent bounds the indentation that is copied.
const maxIndent = 16

// layout returns the layout of the root's first child. A document on a single line stays so.
func (d *document) layout() layout {
	if len(d.root.children) == 0 {
		return layout{}
	}
	before := d.src[d.root.open.to:d.root.children[0].open.from]
	i := bytes.LastIndexByte(before, '\n')
	if i < 0 {
		return layout{}
	}
	l := layout{"\n", string(before[i+1:])}
	if i > 0 && before[i-1] == '\r' {
		l.newline = "\r\n"
	}
	if strings.Trim(l.unit, " \t") != "" || len(l.unit) > maxIndent {
		l.unit = "  "
	}
	return l
}

// indent returns the start of a line for an element that deep within <domain>.
func (l layout) indent(depth int) string {
	if l.newline == "" {
		return ""
	}
	return l.newline + strings.Repeat(l.unit, depth)
}

// escape escapes text for an attribute in quotes of either kind. The double quotes of JSON stay
// readable in single quotes.
func escape(s string) string { return escaper.Replace(s) }

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&apos;", "\t", "&#9;", "\n", "&#10;", "\r", "&#13;")
