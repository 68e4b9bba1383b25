package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// event is one of test2json's (go doc test2json), or of go build's, which has no
// package.
type event struct {
	Action     string
	Package    string
	Test       string
	Output     string
	ImportPath string
}

// key is a test, or a package where Test is "".
type key struct{ pkg, test string }

// reporter keeps what tests say until it is known whether anybody wants to read it.
type reporter struct {
	out     *bufio.Writer
	said    map[key]*strings.Builder
	skipped []string
}

// report copies what is worth reading from in to out. A line that is no event is.
func report(in io.Reader, out io.Writer) error {
	r := &reporter{out: bufio.NewWriter(out), said: make(map[key]*strings.Builder)}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			r.take(line)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("read the tests' events: %w", err)
		}
	}
	for k := range r.said { // cut off
		r.show(k)
	}
	if len(r.skipped) > 0 {
		fmt.Fprintln(r.out, "skipped:")
	}
	for _, s := range r.skipped {
		fmt.Fprintln(r.out, "  "+s)
	}
	return r.out.Flush()
}

// take takes one line, and writes it at once where it is of use by itself.
func (r *reporter) take(line string) {
	var e event
	if err := json.Unmarshal([]byte(line), &e); err != nil || e.Action == "" {
		_, _ = r.out.WriteString(line)
		return
	}
	k := key{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		_, _ = r.out.WriteString(e.Output)
	case "output":
		if r.said[k] == nil {
			r.said[k] = new(strings.Builder)
		}
		r.said[k].WriteString(e.Output)
	case "pass", "skip":
		if e.Test != "" && e.Action == "skip" {
			r.skipped = append(r.skipped, fmt.Sprintf("%s.%s: %s", e.Package, e.Test, r.reason(k)))
		}
		r.end(k, e.Test == "")
	case "fail":
		r.end(k, true)
	}
	if e.Test == "" {
		_ = r.out.Flush() // a package at a time
	}
}

// end is the end of a test or a package, of which shown says whether it is to be
// read. A package that ends takes with it what its tests have said that have no end of
// their own, as when it panics.
func (r *reporter) end(k key, shown bool) {
	if k.test == "" {
		for other := range r.said {
			if other.pkg == k.pkg && other.test != "" {
				r.show(other)
			}
		}
	}
	if shown {
		r.show(k)
	}
	delete(r.said, k)
}

// show writes what a test or a package has said, but for what it says in any case.
func (r *reporter) show(k key) {
	if said := r.said[k]; said != nil {
		for line := range strings.Lines(said.String()) {
			if line != "PASS\n" && !marker(line) {
				_, _ = r.out.WriteString(line)
			}
		}
	}
	delete(r.said, k)
}

// reason is what a test that was skipped has said, in one line.
func (r *reporter) reason(k key) string {
	var words []string
	if said := r.said[k]; said != nil {
		for line := range strings.Lines(said.String()) {
			if line = strings.TrimSpace(line); !marker(line) && !strings.HasPrefix(line, "--- SKIP") {
				words = append(words, line)
			}
		}
	}
	return strings.Join(words, " ")
}

// marker tells lines that say no more than that a test runs.
func marker(line string) bool {
	return slices.ContainsFunc([]string{"=== RUN", "=== PAUSE", "=== CONT", "=== NAME"}, func(m string) bool { return strings.HasPrefix(line, m) })
}
