package link

import (
	"fmt"
	"strings"
)

// Kind is the kind of an error.
type Kind uint8

// The kinds of errors.
const (
	Undefined    Kind = iota // a symbol that is used is defined nowhere
	Duplicate                // two objects define one symbol
	Mismatch                 // declarations of one symbol contradict each other
	Incompatible             // objects can't be linked with each other, or one can't be linked at all
)

var kindNames = [...]string{"undefined", "duplicate", "mismatch", "incompatible"}

// String returns the kind in lower case.
func (k Kind) String() string { return kindNames[k] }

// Error is one reason why objects can't be linked.
type Error struct {
	Kind    Kind
	Symbol  string   // as the objects write it; "" if the error is not about one
	Objects []string // the names of the objects concerned
	Detail  string   // explains it, for people
}

// Error returns the error on one line.
func (e *Error) Error() string {
	in := strings.Join(e.Objects, " and ")
	switch e.Kind {
	case Undefined:
		return fmt.Sprintf("undefined symbol %s: %s", e.Symbol, e.Detail)
	case Duplicate:
		return fmt.Sprintf("symbol %s is defined in %s", e.Symbol, in)
	case Mismatch:
		return fmt.Sprintf("symbol %s differs between %s: %s", e.Symbol, in, e.Detail)
	}
	return in + ": " + e.Detail
}

// Errors is a list of errors, never empty.
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

// maxErrors bounds the errors that are collected.
const maxErrors = 20

func (l *linker) fail(e *Error) {
	if len(l.errs) < maxErrors {
		l.errs = append(l.errs, e)
	}
}
