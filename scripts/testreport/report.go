package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// event is an event of test2json (go doc test2json), or of go build, which has no package.
type event struct {
	Action     string
	Package    string
	Test       string
	Output     string
	Elapsed    float64 // seconds
	ImportPath string
}

// key is a test, or a package if Test is "".
type key struct{ pkg, test string }

// reporter stores the output of tests until it is known whether to print it.
type reporter struct {
	out     *bufio.Writer
	output  map[key]*strings.Builder
	skipped []string
	failed  []string
	slow    []timed
	running []string // packages, in the order of their starts
	done    int      // packages
	printed bool     // since the last tick
}

// timed is a test that took seconds.
type timed struct {
	key
	seconds float64
}

// The tests that took longest are listed, of those that took at least slowSeconds the first mostSlow.
const (
	slowSeconds = 5
	mostSlow    = 15
)

// slowest returns the lines about the tests that took longest.
func (r *reporter) slowest() []string {
	slices.SortStableFunc(r.slow, func(a, b timed) int { return cmp.Compare(b.seconds, a.seconds) })
	var lines []string
	for _, t := range r.slow[:min(len(r.slow), mostSlow)] {
		lines = append(lines, fmt.Sprintf("%.0f s %s.%s", t.seconds, t.pkg, t.test))
	}
	return lines
}

// mostNamed bounds the packages that a line of progress names.
const mostNamed = 4

// underWay says which packages are tested now.
func (r *reporter) underWay() string {
	if len(r.running) == 0 {
		return fmt.Sprintf("%d packages tested; tests are built", r.done)
	}
	named := strings.Join(r.running[:min(len(r.running), mostNamed)], ", ")
	if more := len(r.running) - mostNamed; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%d packages tested; %s under way", r.done, named)
}

// firstLines is how many lines of a failed test are repeated at the end. A test's own messages come
// first, and logs that it adds as it ends may take hundreds of lines.
const firstLines = 12

// read is a line of the input, or the end of it.
type read struct {
	line string
	err  error
}

// report copies the useful part of in to out. Lines that are no events are always copied. At each
// tick it says on progress what is under way, unless something was printed since the last one.
func report(in io.Reader, out, progress io.Writer, ticks <-chan time.Time) error {
	r := &reporter{out: bufio.NewWriter(out), output: make(map[key]*strings.Builder)}
	lines := make(chan read)
	go func() {
		defer close(lines)
		b := bufio.NewReader(in)
		for {
			line, err := b.ReadString('\n')
			lines <- read{line, err}
			if err != nil {
				return
			}
		}
	}()
	var failed error
	for lines != nil {
		select {
		case l, ok := <-lines:
			if !ok {
				lines = nil
				continue
			}
			if l.line != "" {
				r.add(l.line)
			}
			if l.err != nil && l.err != io.EOF {
				failed = fmt.Errorf("read the tests' events: %w", l.err)
			}
		case <-ticks:
			if !r.printed {
				fmt.Fprintln(progress, r.underWay())
			}
			r.printed = false
		}
	}
	if failed != nil {
		return failed
	}
	for k := range r.output { // cut off
		r.show(k)
	}
	r.list("slowest:", r.slowest())
	r.list("skipped:", r.skipped)
	r.list("failed:", r.failed)
	return r.out.Flush()
}

// list prints lines under a title, if there are any.
func (r *reporter) list(title string, lines []string) {
	if len(lines) > 0 {
		fmt.Fprintln(r.out, title)
	}
	for _, s := range lines {
		fmt.Fprintln(r.out, "  "+s)
	}
}

// add handles one line, and prints it at once if it is useful by itself.
func (r *reporter) add(line string) {
	var e event
	if err := json.Unmarshal([]byte(line), &e); err != nil || e.Action == "" {
		_, _ = r.out.WriteString(line)
		return
	}
	k := key{e.Package, e.Test}
	if e.Test == "" && e.Package != "" {
		r.follow(e.Action, e.Package)
	}
	// A test's time has its subtests' in it.
	if (e.Action == "pass" || e.Action == "fail") && e.Elapsed >= slowSeconds && e.Test != "" && !strings.Contains(e.Test, "/") {
		r.slow = append(r.slow, timed{k, e.Elapsed})
	}
	switch e.Action {
	case "build-output":
		_, _ = r.out.WriteString(e.Output)
	case "output":
		if r.output[k] == nil {
			r.output[k] = new(strings.Builder)
		}
		r.output[k].WriteString(e.Output)
	case "pass", "skip":
		if e.Test != "" && e.Action == "skip" {
			r.skipped = append(r.skipped, fmt.Sprintf("%s.%s: %s", e.Package, e.Test, r.reason(k)))
		}
		r.end(k, e.Test == "")
	case "fail":
		if e.Test != "" {
			r.failed = append(r.failed, r.first(k)...)
		}
		r.end(k, true)
	}
	if e.Test == "" {
		_ = r.out.Flush() // a package at a time
	}
}

// follow notes the start and the end of a package.
func (r *reporter) follow(action, pkg string) {
	switch action {
	case "start":
		r.running = append(r.running, pkg)
	case "pass", "skip", "fail":
		r.running = slices.DeleteFunc(r.running, func(other string) bool { return other == pkg })
		r.done++
		r.printed = true
	}
}

// end handles the end of a test or a package; shown says whether to print its output. The end of a
// package, for example by a panic, also ends its tests without an end of their own.
func (r *reporter) end(k key, shown bool) {
	if k.test == "" {
		for other := range r.output {
			if other.pkg == k.pkg && other.test != "" {
				r.failed = append(r.failed, r.first(other)...)
				r.show(other)
			}
		}
	}
	if shown {
		r.show(k)
	}
	delete(r.output, k)
}

// show prints the output of a test or a package, without the lines that every test has.
func (r *reporter) show(k key) {
	if output := r.output[k]; output != nil {
		for line := range strings.Lines(output.String()) {
			if line != "PASS\n" && !marker(line) {
				_, _ = r.out.WriteString(line)
			}
		}
	}
	delete(r.output, k)
}

// first returns a failed test's name, and the first lines of its output.
func (r *reporter) first(k key) []string {
	lines := []string{k.pkg + "." + k.test}
	if output := r.output[k]; output != nil {
		for line := range strings.Lines(output.String()) {
			if line = strings.TrimRight(line, "\n"); !marker(line) && !strings.Contains(line, "--- FAIL") && len(lines) <= firstLines {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// reason returns the output of a skipped test, on one line.
func (r *reporter) reason(k key) string {
	var words []string
	if output := r.output[k]; output != nil {
		for line := range strings.Lines(output.String()) {
			if line = strings.TrimSpace(line); !marker(line) && !strings.HasPrefix(line, "--- SKIP") {
				words = append(words, line)
			}
		}
	}
	return strings.Join(words, " ")
}

// marker reports whether a line only says that a test runs.
func marker(line string) bool {
	return slices.ContainsFunc([]string{"=== RUN", "=== PAUSE", "=== CONT", "=== NAME"}, func(m string) bool { return strings.HasPrefix(line, m) })
}
