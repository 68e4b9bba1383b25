package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultPath is where the agent keeps its cache.
const DefaultPath = "/var/lib/vgpu-agent/kernels"

// File is a Cache with a file on disk. Several programs may use the same file: saving keeps what
// others have saved meanwhile.
type File struct {
	*Cache
	path string
	log  *slog.Logger
}

// Open reads the file at path, which need not exist. A file that can't be decoded is renamed to
// path + ".bad" and logged, and the cache starts empty. The error is that of reading.
func Open(path string, log *slog.Logger) (*File, error) {
	f := &File{Cache: New(), path: path, log: log}
	entries, err := f.read()
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range slices.Backward(entries) {
		f.put(e)
	}
	return f, nil
}

// read returns the file's entries, or none if it does not exist or is corrupt.
func (f *File) read() ([]Entry, error) {
	// A pipe must not block the program: it is renamed like a file that can't be decoded.
	file, err := os.OpenFile(f.path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the kernel cache: %w", err)
	}
	var b []byte
	st, err := file.Stat()
	if err == nil && st.Mode()&fs.ModeNamedPipe == 0 {
		b, err = io.ReadAll(io.LimitReader(file, MaxBytes+1))
	}
	if e := file.Close(); err == nil {
		err = e
	}
	if err != nil {
		return nil, fmt.Errorf("read the kernel cache %s: %w", f.path, err)
	}
	entries, err := Decode(b)
	if err == nil {
		return entries, nil
	}
	aside := f.path + ".bad"
	if e := os.Rename(f.path, aside); e != nil {
		err = errors.Join(err, e)
	}
	f.log.Warn("the kernel cache can't be decoded; it is renamed, and the cache starts empty", "path", f.path, "aside", aside, "err", err)
	return nil, nil
}

// Save writes the file, atomically, if anything was stored since it was last saved.
func (f *File) Save() error {
	f.mu.Lock()
	changed := f.changed
	f.changed = false
	f.mu.Unlock()
	if !changed {
		return nil
	}
	if err := f.save(); err != nil {
		f.mu.Lock()
		f.changed = true
		f.mu.Unlock()
		return fmt.Errorf("save the kernel cache: %w", err)
	}
	return nil
}

func (f *File) save() (err error) {
	entries := f.All()
	others, err := f.read()
	if err != nil {
		return err
	}
	have := make(map[Key]bool, len(entries))
	for _, e := range entries {
		have[e.Key] = true
	}
	for _, e := range others {
		if !have[e.Key] && len(entries) < MaxEntries {
			entries = append(entries, e)
		}
	}
	b, err := Encode(entries)
	if err != nil {
		return err
	}
	dir := filepath.Dir(f.path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f.sweep(dir)
	tmp, err := os.CreateTemp(dir, filepath.Base(f.path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	_, err = tmp.Write(b)
	err = errors.Join(err, tmp.Chmod(0o644), tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), f.path)
}

// savedWithin is more time than a save takes.
const savedWithin = 10 * time.Minute

// sweep removes the temporary files of programs that ended while they saved. Errors are for the next
// save.
func (f *File) sweep(dir string) {
	all, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range all {
		number, ok := strings.CutPrefix(e.Name(), filepath.Base(f.path)+".")
		if _, err := strconv.ParseUint(number, 10, 64); !ok || err != nil || !e.Type().IsRegular() {
			continue
		}
		if st, err := e.Info(); err == nil && time.Since(st.ModTime()) > savedWithin {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// Learn stores entries and saves the file.
func (f *File) Learn(ctx context.Context, entries []Entry) error {
	return errors.Join(f.Cache.Learn(ctx, entries), f.Save())
}
