package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"sync"
)

// results is a file of results, one JSON object a line, to which each test's is added as it comes.
type results struct {
	mu   sync.Mutex
	file *os.File
	of   map[string]result // by a test's id
	cut  bool              // the last line was cut off
}

// openResults opens a file of results; those in it are kept if resume is set.
func openResults(path string, resume bool) (*results, error) {
	rs := &results{of: make(map[string]result)}
	if resume {
		if err := rs.read(path); err != nil {
			return nil, err
		}
	}
	flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if !resume {
		flags |= os.O_TRUNC
	}
	var err error
	rs.file, err = os.OpenFile(path, flags, 0o644)
	if err == nil && rs.cut {
		_, err = rs.file.WriteString("\n")
	}
	return rs, err
}

// read reads the results of an earlier run. An incomplete last line is one that was cut off.
func (rs *results) read(path string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	rs.cut = len(text) > 0 && text[len(text)-1] != '\n'
	for line := range bytes.Lines(text) {
		var r result
		if json.Unmarshal(line, &r) == nil {
			rs.of[r.Suite+" "+r.Name] = r
		}
	}
	return nil
}

// add stores a result.
func (rs *results) add(r result) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.of[r.Suite+" "+r.Name] = r
	_, err = rs.file.Write(append(text, '\n'))
	return err
}

// has returns the result of a test.
func (rs *results) has(t *test) (result, bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r, ok := rs.of[t.id()]
	return r, ok
}

// forget leaves out the results of tests that will run again. The file has their lines until later
// ones replace them.
func (rs *results) forget(tests []*test) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, t := range tests {
		delete(rs.of, t.id())
	}
}

// Close closes the file.
func (rs *results) Close() error { return rs.file.Close() }
