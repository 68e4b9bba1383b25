package main

import (
	_ "embed"
	"fmt"
	"path"
	"strings"
)

// excludedText lists the tests that can't run here by design. A line is "suite pattern: reason";
// "#" opens a comment. The list was written from the tests' sources and their compilers'
// documentation before the first run.
//
//go:embed excluded.txt
var excludedText string

// An exclusion is one line of the list.
type exclusion struct {
	suite, pattern, reason string
	used                   bool
}

func parseExclusions(text string) ([]*exclusion, error) {
	var list []*exclusion
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		head, reason, ok := strings.Cut(line, ": ")
		suite, pattern, ok2 := strings.Cut(head, " ")
		if !ok || !ok2 || reason == "" {
			return nil, fmt.Errorf("excluded.txt: line %d: want \"suite pattern: reason\"", i+1)
		}
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("excluded.txt: line %d: %w", i+1, err)
		}
		list = append(list, &exclusion{suite: suite, pattern: pattern, reason: reason})
	}
	return list, nil
}

// exclude sets the skip reason of the tests that the list names. A test keeps its suite's own
// reason. It fails if a line names no test, since then the list is out of date.
func exclude(tests []*test, list []*exclusion) error {
	for _, t := range tests {
		// A test in two languages is listed once, by its file.
		name := t.Name
		if i := strings.Index(name, ": "); i >= 0 {
			name = name[i+2:]
		}
		for _, e := range list {
			if ok, err := path.Match(e.pattern, name); e.suite == t.Suite && ok && err == nil {
				e.used = true
				t.skipFor(e.reason)
			}
		}
	}
	for _, e := range list {
		if !e.used {
			return fmt.Errorf("excluded.txt: %s has no test %s", e.suite, e.pattern)
		}
	}
	return nil
}
