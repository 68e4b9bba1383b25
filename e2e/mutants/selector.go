package main

import (
	"regexp"
	"strings"
	"unicode"
)

// selector is an argument of -run: alternatives, each with a regular expression for each level of a
// test's name.
type selector [][]*regexp.Regexp

// parseSelector splits an argument of -run at the bars and slashes outside brackets and
// parentheses, as package testing does.
func parseSelector(run string) (selector, error) {
	var s selector
	var levels []*regexp.Regexp
	end := func(element string) error {
		element = strings.Map(func(c rune) rune {
			if unicode.IsSpace(c) { // names of subtests have no blanks
				return '_'
			}
			return c
		}, element)
		re, err := regexp.Compile(element)
		levels = append(levels, re)
		return err
	}
	brackets, parens, from := 0, 0, 0
	for i := 0; i < len(run); i++ {
		switch c := run[i]; c {
		case '[':
			brackets++
		case ']':
			brackets = max(brackets-1, 0)
		case '(':
			if brackets == 0 {
				parens++
			}
		case ')':
			if brackets == 0 {
				parens--
			}
		case '\\':
			i++
		case '/', '|':
			if brackets > 0 || parens > 0 {
				continue
			}
			if err := end(run[from:i]); err != nil {
				return nil, err
			}
			from = i + 1
			if c == '|' {
				s, levels = append(s, levels), nil
			}
		}
	}
	if err := end(run[from:]); err != nil {
		return nil, err
	}
	return append(s, levels), nil
}

// selects reports whether a test is selected, and whether it runs because of the selector: it does
// as well if only some of its subtests are selected.
func (s selector) selects(test string) (selected, runs bool) {
	names := strings.Split(test, "/")
	for _, levels := range s {
		match := true
		for i := range min(len(levels), len(names)) {
			match = match && levels[i].MatchString(names[i])
		}
		runs = runs || match
		selected = selected || match && len(names) >= len(levels)
	}
	return selected, runs
}
