package domain

import "github.com/rogpeppe/go-internal/diff"

// Diff shows how a document changes, as `diff -u` does; nothing where it doesn't.
func Diff(name string, before, after []byte) []byte {
	return diff.Diff(name, before, name+" (new)", after)
}
