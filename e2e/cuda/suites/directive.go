package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// A directive is a DejaGnu directive in a test's source: "{ dg-do run { target c } }".
type directive struct {
	name string
	args []string
	line int
}

// dgLine matches a directive as DejaGnu's dg-get-options does: the braces are set off by blanks.
var dgLine = regexp.MustCompile(`\{[ \t]+(dg-[-a-z]+)[ \t]+(.*)[ \t]+\}`)

// directives returns the directives of a source, in their order.
func directives(source string) ([]directive, error) {
	var list []directive
	for i, line := range strings.Split(source, "\n") {
		m := dgLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		args, err := tclWords(m[2])
		if err != nil {
			return nil, fmt.Errorf("line %d: %s: %w", i+1, m[1], err)
		}
		list = append(list, directive{name: m[1], args: args, line: i + 1})
	}
	return list, nil
}

// arg returns an argument, or "" if there are fewer.
func (d directive) arg(i int) string {
	if i < len(d.args) {
		return d.args[i]
	}
	return ""
}

// tclWords splits a Tcl command into its words. A word in braces is verbatim; in others backslash
// sequences are replaced. The tests use neither variables nor nested commands.
func tclWords(s string) ([]string, error) {
	var words []string
	for {
		s = strings.TrimLeft(s, " \t")
		if s == "" {
			return words, nil
		}
		var (
			word string
			n    int
		)
		switch s[0] {
		case '{':
			if n = closingBrace(s); n < 0 {
				return nil, fmt.Errorf("unclosed brace: %s", s)
			}
			word = s[1:n]
			n++
		case '"':
			if n = closingQuote(s); n < 0 {
				return nil, fmt.Errorf("unclosed quotation: %s", s)
			}
			word = tclUnescape(s[1:n])
			n++
		default:
			if n = strings.IndexAny(s, " \t"); n < 0 {
				n = len(s)
			}
			word = tclUnescape(s[:n])
		}
		words = append(words, word)
		s = s[n:]
	}
}

// closingBrace returns the index of the brace that closes s[0], or -1.
func closingBrace(s string) int {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// closingQuote returns the index of the quotation mark that closes s[0], or -1.
func closingQuote(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}

// tclUnescape replaces Tcl's backslash sequences, as Tcl(n) describes them.
func tclUnescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch s[i] {
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 't':
			b.WriteByte('\t')
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// readSource returns a test's text and, after it, that of the files that it includes from its own
// directory, directly or indirectly.
func readSource(path string) (own, all string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", "", err
	}
	seen := map[string]bool{path: true}
	return string(text), string(text) + included(path, string(text), seen), nil
}
