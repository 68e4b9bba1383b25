package ptx

import (
	"fmt"
	"strings"
)

// Error is an error of the parser, or of Resolve, at one place in a module.
type Error struct {
	Pos  Pos
	Msg  string // what is wrong, if Want and Got don't say it all
	Got  string // what was found
	Want string // what was expected
}

// Error returns the error on one line: "12:7: expected an operand, found ';'".
func (e *Error) Error() string {
	var b strings.Builder
	if e.Pos.Line > 0 {
		fmt.Fprintf(&b, "%d:%d: ", e.Pos.Line, e.Pos.Col)
	}
	b.WriteString(e.Msg)
	if e.Want != "" {
		if e.Msg != "" {
			b.WriteString(": ")
		}
		b.WriteString("expected " + e.Want)
		if e.Got != "" {
			b.WriteString(", found " + e.Got)
		}
	} else if e.Got != "" {
		b.WriteString(": found " + e.Got)
	}
	return b.String()
}

// Errors is a list of errors in one module, in the order in which they were found. It is never
// empty.
type Errors []*Error

// Error returns the first error, and how many more there are.
func (e Errors) Error() string {
	if len(e) == 1 {
		return e[0].Error()
	}
	return fmt.Sprintf("%v (and %d more)", e[0], len(e)-1)
}

// Unwrap returns the single errors for errors.As and errors.Is.
func (e Errors) Unwrap() []error {
	out := make([]error, len(e))
	for i := range e {
		out[i] = e[i]
	}
	return out
}
