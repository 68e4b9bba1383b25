package usage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// maxQuarantined is how many corrupt databases are left for people to look at.
const maxQuarantined = 3

// quarantine renames a corrupt database with the files that belong to it, and returns its new name.
// Of more than maxQuarantined, the oldest are removed.
func quarantine(path string, now time.Time) (string, error) {
	name := path + ".corrupt-" + now.UTC().Format("20060102T150405.000")
	if err := os.Rename(path, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("move a corrupt database away: %w", err)
	}
	for _, suffix := range []string{"-wal", "-shm"} {
		if err := os.Rename(path+suffix, name+suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("move a corrupt database away: %w", err)
		}
	}
	old, err := filepath.Glob(globQuote(path) + ".corrupt-*")
	if err != nil {
		return "", err
	}
	old = slices.DeleteFunc(old, func(s string) bool {
		ext := filepath.Ext(s)
		return len(ext) > 4 && (ext[len(ext)-4:] == "-wal" || ext[len(ext)-4:] == "-shm")
	})
	slices.Sort(old)
	for len(old) > maxQuarantined {
		for _, suffix := range []string{"", "-wal", "-shm"} {
			if err := os.Remove(old[0] + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return "", err
			}
		}
		old = old[1:]
	}
	return name, nil
}

// globQuote returns a pattern that matches a path alone.
func globQuote(path string) string {
	var b []byte
	for i := range len(path) {
		switch path[i] {
		case '*', '?', '[', '\\':
			b = append(b, '\\')
		}
		b = append(b, path[i])
	}
	return string(b)
}
