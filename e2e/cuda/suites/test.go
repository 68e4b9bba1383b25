package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
)

// A test is a program of a suite: how to build it, how to run it, and what it must do.
type test struct {
	Suite string
	Name  string

	// Building. The steps' programs run in an empty directory and leave a program named "test".
	steps   []step
	sources []string

	// The options of the build by the suite's directives; optimize comes before options.
	optimize []string
	options  []string
	extra    []string
	dir      string

	// Running.
	command    []string // instead of the program that was built
	args       []string
	env        []string
	files      []string // copied into the directory in which the program runs
	output     string   // a pattern that its output must match, or ""
	success    string   // a text that its output must contain, or ""
	shouldFail bool     // it must end with a status other than 0
	xfail      bool     // the suite expects that the test fails
	offloads   bool     // it has device code of its own, so kernels must run

	// skip is why the test isn't run, or "".
	skip string
}

// A step is a command of a build. The program is one of the toolchain's, or begins with "./" if an
// earlier step made it.
type step struct {
	program string
	args    []string
}

// digest identifies what a test is built from: the text, the commands and the tools.
func (t *test) digest(tools string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, tools, t.steps)
	for _, s := range t.sources {
		_, all, err := readSource(s)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, len(all), all)
	}
	return hex.EncodeToString(h.Sum(nil)[:12]), nil
}

// skipFor notes why a test isn't run; the first reason stays.
func (t *test) skipFor(reason string) {
	if t.skip == "" {
		t.skip = reason
	}
}

// id returns the name under which results are stored.
func (t *test) id() string { return t.Suite + " " + t.Name }

// exists reports whether a file exists.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// sorted returns tests in the order of their suites and names.
func sorted(tests []*test) []*test {
	return slices.SortedFunc(slices.Values(tests), func(a, b *test) int {
		if a.id() < b.id() {
			return -1
		}
		return 1
	})
}
