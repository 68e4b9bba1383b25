package ptx

import "strings"

// scanner is the lexer: a cursor over the source that recognizes one token at a time on the
// parser's request, and returns substrings. Each of its methods leaves the cursor directly after
// what was read, without skipping space, since adjacency matters in PTX (%tid.x, ld.global).
type scanner struct {
	src       string
	pos       int
	line      uint32 // from 1
	lineStart int    // offset of the line's first byte
}

// Classes of bytes, as bits of class[b].
const (
	isBlank     = 1 << iota // space except newlines
	isIdent                 // may continue a name
	isNameStart             // may begin a name
	isDigit
	isHex
)

var class = func() (t [256]uint8) {
	for _, c := range " \t\r\f\v" {
		t[c] |= isBlank
	}
	for c := '0'; c <= '9'; c++ {
		t[c] |= isDigit | isHex | isIdent
	}
	for c := 'a'; c <= 'z'; c++ {
		t[c] |= isIdent | isNameStart
		t[c-'a'+'A'] |= isIdent | isNameStart
	}
	for c := 'a'; c <= 'f'; c++ {
		t[c] |= isHex
		t[c-'a'+'A'] |= isHex
	}
	for _, c := range "_$" {
		t[c] |= isIdent | isNameStart
	}
	t['%'] |= isNameStart
	// Names in languages without name mangling: bytes of UTF-8 outside ASCII.
	for c := 0x80; c <= 0xff; c++ {
		t[c] |= isIdent | isNameStart
	}
	return t
}()

// newScanner starts at the source's first byte, or after a byte order mark. It drops zero bytes at
// the end, which strings from fat binaries have.
func newScanner(src string) scanner {
	src = strings.TrimRight(src, "\x00")
	s := scanner{src: src, line: 1}
	if strings.HasPrefix(src, "\uFEFF") {
		s.pos = len("\uFEFF")
	}
	return s
}

// here returns the cursor's line and column.
func (s *scanner) here() Pos { return Pos{s.line, uint32(s.pos-s.lineStart) + 1} }

// peek returns the byte at the cursor, or 0 at the end.
func (s *scanner) peek() byte {
	if s.pos < len(s.src) {
		return s.src[s.pos]
	}
	return 0
}

// peekAt returns the byte n places after the cursor, or 0 past the end.
func (s *scanner) peekAt(n int) byte {
	if s.pos+n < len(s.src) {
		return s.src[s.pos+n]
	}
	return 0
}

// atEnd reports whether the source is exhausted.
func (s *scanner) atEnd() bool { return s.pos >= len(s.src) }

// skip skips space, comments and lines that begin with # (left by a preprocessor). An unclosed
// comment ends the source.
func (s *scanner) skip() {
	for s.pos < len(s.src) {
		switch c := s.src[s.pos]; {
		case c == '\n':
			s.pos++
			s.newline()
		case class[c]&isBlank != 0:
			s.pos++
		case c == '/' && s.peekAt(1) == '/':
			s.skipLine()
		case c == '/' && s.peekAt(1) == '*':
			end := strings.Index(s.src[s.pos+2:], "*/")
			if end < 0 {
				s.advance(len(s.src))
				return
			}
			s.advance(s.pos + 2 + end + 2)
		case c == '#' && strings.TrimLeft(s.src[s.lineStart:s.pos], " \t") == "":
			s.skipLine()
		default:
			return
		}
	}
}

// newline records that the cursor is at the start of a line.
func (s *scanner) newline() {
	s.line++
	s.lineStart = s.pos
}

// skipLine moves to the newline that ends the line, or to the end.
func (s *scanner) skipLine() {
	if n := strings.IndexByte(s.src[s.pos:], '\n'); n >= 0 {
		s.pos += n
	} else {
		s.pos = len(s.src)
	}
}

// advance moves the cursor to offset to and counts the lines passed.
func (s *scanner) advance(to int) {
	for {
		n := strings.IndexByte(s.src[s.pos:to], '\n')
		if n < 0 {
			break
		}
		s.pos += n + 1
		s.newline()
	}
	s.pos = to
}

// accept reads the byte c and the space that follows, if c is next.
func (s *scanner) accept(c byte) bool {
	if s.peek() != c || s.atEnd() {
		return false
	}
	s.pos++
	s.skip()
	return true
}

// name reads a name: a letter, _, $ or % and further characters. It returns "" if there is none.
func (s *scanner) name() string {
	start, i := s.pos, s.pos
	if i >= len(s.src) || class[s.src[i]]&isNameStart == 0 {
		return ""
	}
	i++
	for i < len(s.src) && class[s.src[i]]&isIdent != 0 {
		i++
	}
	if i == start+1 && s.src[start] == '%' {
		return "" // a lone percent sign is the remainder operator
	}
	s.pos = i
	return s.src[start:i]
}

// word reads the word after a dot at the cursor: letters, digits and, between them, double colons,
// as in .shared::cta. It returns the word without the dot, or "" if there is none.
func (s *scanner) word() string {
	if s.peek() != '.' || class[s.peekAt(1)]&isIdent == 0 {
		return ""
	}
	start := s.pos + 1
	i := start
	for i < len(s.src) {
		if class[s.src[i]]&isIdent != 0 {
			i++
		} else if s.src[i] == ':' && i+2 < len(s.src) && s.src[i+1] == ':' && class[s.src[i+2]]&isIdent != 0 {
			i += 2
		} else {
			break
		}
	}
	s.pos = i
	return s.src[start:i]
}

// peekWord returns the word at the cursor without moving.
func (s *scanner) peekWord() string {
	at := s.pos
	w := s.word()
	s.pos = at
	return w
}

// keyword reads name and the space that follows, if that is the name at the cursor.
func (s *scanner) keyword(name string) bool {
	at := *s
	if s.name() != name {
		*s = at
		return false
	}
	s.skip()
	return true
}

// number reads the text of a numeric constant: digits, then the letters, digits, points and signed
// exponents that belong to it. It returns "" if there is none.
func (s *scanner) number() string {
	start, i := s.pos, s.pos
	if i >= len(s.src) || class[s.src[i]]&isDigit == 0 {
		return ""
	}
	prefixed := s.src[i] == '0' && i+1 < len(s.src) && strings.IndexByte("xXfFdDbB", s.src[i+1]) >= 0
	for i++; i < len(s.src); i++ {
		c := s.src[i]
		if class[c]&isIdent != 0 || c == '.' && !prefixed {
			continue
		}
		if (c == '+' || c == '-') && !prefixed && (s.src[i-1]|0x20) == 'e' {
			continue
		}
		break
	}
	s.pos = i
	return s.src[start:i]
}

// str reads a string in double quotes and returns what is between them, unprocessed. It returns
// false if there is none or it does not end on its line.
func (s *scanner) str() (string, bool) {
	if s.peek() != '"' {
		return "", false
	}
	for i := s.pos + 1; i < len(s.src); i++ {
		switch s.src[i] {
		case '\\':
			i++
		case '\n':
			return "", false
		case '"':
			text := s.src[s.pos+1 : i]
			if strings.IndexByte(text, '\n') >= 0 { // an escaped newline
				return "", false
			}
			s.pos = i + 1
			return text, true
		}
	}
	return "", false
}

// found describes the text at the cursor for an error.
func (s *scanner) found() string {
	if s.atEnd() {
		return "the end of the file"
	}
	at := *s
	var text string
	switch c := s.peek(); {
	case c == '.':
		if text = at.word(); text != "" {
			text = "." + text
		}
	case c == '"':
		return "a string"
	case class[c]&isDigit != 0:
		text = at.number()
	default:
		text = at.name()
	}
	if text == "" {
		text = s.src[s.pos : s.pos+1]
	}
	const longest = 48 // a guest's text may be long, and errors are passed on
	if len(text) > longest {
		text = text[:longest] + "…"
	}
	return quoted(text)
}

// quoted puts text between single quotes and escapes everything that could affect a terminal.
func quoted(text string) string {
	var b strings.Builder
	b.WriteByte('\'')
	for _, c := range []byte(text) {
		if c < 0x20 || c == 0x7f {
			const digits = "0123456789abcdef"
			b.WriteString(`\x`)
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		} else {
			b.WriteByte(c)
		}
	}
	b.WriteByte('\'')
	return strings.ToValidUTF8(b.String(), "?")
}
