package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// patch is a file in patches/.
type patch struct {
	name    string // of the file, without .patch
	item    string // the item that asks for the mechanism
	removes string // the mechanism
	fails   command
	diff    string
	digest  string // of the whole file
}

// command is the test that a patch names.
type command struct {
	pkg   string        // "./gpu/soft/simt"
	run   string        // the regular expression
	flags []string      // for go test, each "-name" or "-name=value"
	args  []string      // for the test itself
	limit time.Duration // its -timeout; 0 if it has none
}

// String returns the command in a shell's syntax.
func (c command) String() string {
	words := []string{"go", "test", c.pkg, "-run", c.run}
	words = append(words, c.flags...)
	if c.limit != 0 {
		words = append(words, "-timeout="+c.limit.String())
	}
	if len(c.args) > 0 {
		words = append(words, "-args")
		words = append(words, c.args...)
	}
	for i, w := range words {
		if !bare.MatchString(w) || i == 4 { // a pattern is quoted in any case
			words[i] = "'" + strings.ReplaceAll(w, "'", `'"'"'`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// selector returns which tests the command selects. parseCommand has checked that it is one.
func (c command) selector() selector {
	s, err := parseSelector(c.run)
	if err != nil {
		panic(err)
	}
	return s
}

// has reports whether the command has go test's flag name, such as "-timeout".
func (c command) has(name string) bool {
	return slices.ContainsFunc(c.flags, func(f string) bool {
		n, _, _ := strings.Cut(f, "=")
		return n == name
	})
}

// readPatches reads the patches in dir whose item and name match which.
func readPatches(dir string, which *regexp.Regexp) ([]patch, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	var patches []patch
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read a patch: %w", err)
		}
		p, err := parsePatch(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		p.name = strings.TrimSuffix(filepath.Base(file), ".patch")
		p.digest = fmt.Sprintf("%x", sha256.Sum256(text))
		if which.MatchString(p.item + " " + p.name) {
			patches = append(patches, p)
		}
	}
	if len(patches) == 0 {
		return nil, fmt.Errorf("no patch of %s matches %q", dir, which)
	}
	slices.SortStableFunc(patches, func(a, b patch) int { return strings.Compare(a.item, b.item) })
	return patches, nil
}

// parsePatch parses a patch file: three header lines in this order, an empty line and a diff. It
// leaves the name empty.
func parsePatch(text string) (patch, error) {
	var p patch
	var fails string
	for _, h := range []struct {
		key string
		to  *string
	}{{"Item", &p.item}, {"Removes", &p.removes}, {"Fails", &fails}} {
		line, rest, _ := strings.Cut(text, "\n")
		value, ok := strings.CutPrefix(line, h.key+": ")
		value = strings.TrimSpace(value)
		if !ok || value == "" {
			return patch{}, fmt.Errorf("want a line \"%s: …\", got %q", h.key, line)
		}
		*h.to, text = value, rest
	}
	diff, ok := strings.CutPrefix(text, "\n")
	if !ok {
		line, _, _ := strings.Cut(text, "\n")
		return patch{}, fmt.Errorf("want an empty line after the header, got %q", line)
	}
	if !strings.HasPrefix(diff, "diff --git ") {
		return patch{}, errors.New("want git's diff after the empty line")
	}
	p.diff = diff
	var err error
	if p.fails, err = parseCommand(fails); err != nil {
		return patch{}, fmt.Errorf("parse the command that fails: %w", err)
	}
	return p, nil
}

// flags are the flags of go test that a command may have, and whether they take a value.
var flags = map[string]bool{
	"-count": true, "-cpu": true, "-parallel": true, "-tags": true, "-timeout": true,
	"-race": false, "-short": false, "-v": false,
}

// parseCommand parses "go test PKG -run 'RE' [flags] [-args …]", in any order that go test accepts.
// No shell sees it.
func parseCommand(line string) (command, error) {
	words, err := split(line)
	if err != nil {
		return command{}, err
	}
	if len(words) < 2 || words[0] != "go" || words[1] != "test" {
		return command{}, fmt.Errorf("want go test, got %q", line)
	}
	var c command
	for words = words[2:]; len(words) > 0; {
		word := words[0]
		words = words[1:]
		if word == "-args" {
			c.args = words
			break
		}
		if !strings.HasPrefix(word, "-") {
			if c.pkg != "" {
				return command{}, fmt.Errorf("want one package, got %s and %s", c.pkg, word)
			}
			if c.pkg = word; path.Clean(word) != strings.TrimPrefix(word, "./") || !strings.HasPrefix(word, "./") || strings.Contains(word, "..") {
				return command{}, fmt.Errorf("want a package of this tree, as ./accounting, got %q", word)
			}
			continue
		}
		name, value, given := strings.Cut(word, "=")
		takes, known := flags[name]
		switch {
		case name != "-run" && !known:
			return command{}, fmt.Errorf("flag %s is not one that may be given here; flags of the test's own come after -args", name)
		case name != "-run" && !takes:
			if given {
				return command{}, fmt.Errorf("flag %s has no value", name)
			}
			c.flags = append(c.flags, name)
			continue
		case !given && len(words) == 0:
			return command{}, fmt.Errorf("flag %s lacks its value", name)
		case !given:
			value, words = words[0], words[1:]
		}
		switch {
		case name == "-timeout":
			if c.limit, err = time.ParseDuration(value); err != nil || c.limit <= 0 {
				return command{}, fmt.Errorf("-timeout: want a duration above 0, got %q", value)
			}
		case name != "-run":
			c.flags = append(c.flags, name+"="+value)
		case c.run != "":
			return command{}, errors.New("-run is given twice")
		default:
			c.run = value
		}
	}
	if c.pkg == "" {
		return command{}, errors.New("no package is named")
	}
	if c.run == "" {
		return command{}, errors.New("no test is named: want -run")
	}
	if _, err := parseSelector(c.run); err != nil {
		return command{}, fmt.Errorf("-run: %w", err)
	}
	return c, nil
}

// bare matches a word that means the same to every shell without quotes. A dollar sign does only at
// its end.
var bare = regexp.MustCompile(`^[A-Za-z0-9_./=:,+^@%-]+\$?$`)

// split splits a line into words, at blanks outside single or double quotes. It refuses everything
// else that a shell might interpret.
func split(line string) ([]string, error) {
	var words []string
	for {
		line = strings.TrimLeft(line, " \t")
		if line == "" {
			return words, nil
		}
		var word strings.Builder
		for line != "" && line[0] != ' ' && line[0] != '\t' {
			if q := line[0]; q == '\'' || q == '"' {
				quoted, rest, ok := strings.Cut(line[1:], line[:1])
				if !ok {
					return nil, fmt.Errorf("the quote of %q does not end", line)
				}
				if q == '"' && strings.ContainsAny(quoted, "$`\\!") {
					return nil, fmt.Errorf("%q wants single quotes", quoted)
				}
				word.WriteString(quoted)
				line = rest
				continue
			}
			end := strings.IndexAny(line, " \t'\"")
			if end < 0 {
				end = len(line)
			}
			if !bare.MatchString(line[:end]) || strings.HasSuffix(line[:end], "$") && end < len(line) && !strings.Contains(" \t", line[end:end+1]) {
				return nil, fmt.Errorf("%q wants single quotes", line[:end])
			}
			word.WriteString(line[:end])
			line = line[end:]
		}
		words = append(words, word.String())
	}
}
