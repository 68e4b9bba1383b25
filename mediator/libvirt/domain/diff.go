package domain

import "github.com/rogpeppe/go-internal/diff"

// Diff returns the changes to a document in the format of `diff -u`, or nothing without changes.
func Diff(name string, before, after []byte) []byte {
	return diff.Diff(name, before, name+" (new)", after)
}
