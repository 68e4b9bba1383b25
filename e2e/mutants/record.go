package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// record keeps the results of a campaign that may be interrupted, in a file with a JSON object a
// line.
type record struct {
	file *os.File          // nil keeps nothing
	kept map[string]result // the latest of each patch
}

// openRecord reads the file of that name, which may not exist yet. The name "" keeps nothing.
func openRecord(name string) (*record, error) {
	r := &record{kept: make(map[string]result)}
	if name == "" {
		return r, nil
	}
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the results: %w", err)
	}
	r.file = file
	text, err := io.ReadAll(file)
	if err == nil && len(text) > 0 && text[len(text)-1] != '\n' { // an interrupted write
		text = text[:bytes.LastIndexByte(text, '\n')+1]
		err = file.Truncate(int64(len(text)))
	}
	for line := range bytes.Lines(text) {
		var kept result
		if err == nil {
			err = json.Unmarshal(line, &kept)
		}
		r.kept[kept.Patch] = kept
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the results in %s: %w", name, err), file.Close())
	}
	return r, nil
}

// killed returns the results of those patches that were killed and have not changed, and the other
// patches.
func (r *record) killed(patches []patch) (results []result, rest []patch) {
	for _, p := range patches {
		if kept, ok := r.kept[p.name]; ok && kept.Verdict == killed && kept.Digest == p.digest {
			results = append(results, kept)
		} else {
			rest = append(rest, p)
		}
	}
	return results, rest
}

// add appends a result.
func (r *record) add(res result) error {
	if r.file == nil {
		return nil
	}
	if err := json.NewEncoder(r.file).Encode(res); err != nil {
		return fmt.Errorf("keep a result: %w", err)
	}
	return nil
}

// close closes the file. If that fails nothing is lost, because each result has been written.
func (r *record) close() {
	if r.file != nil {
		r.file.Close()
	}
}

// inOrder sorts results as the patches are.
func inOrder(results []result, patches []patch) []result {
	at := make(map[string]int)
	for i, p := range patches {
		at[p.name] = i
	}
	slices.SortFunc(results, func(a, b result) int { return at[a.Patch] - at[b.Patch] })
	return results
}
