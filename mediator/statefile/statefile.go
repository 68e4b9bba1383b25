// Package statefile stores small files that a later process relies on. An acknowledged file
// survives a crash, and reading one neither blocks nor fills memory, whatever lies at its path.
//
// [Files.Write] writes a temporary file beside the file, syncs it, renames it, syncs the directory,
// and returns. The new contents are not promised until it returns nil. The package is not for logs,
// nor for files that change many times a second.
package statefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Step is one of the steps of storing a file.
type Step string

// The steps, in order. SyncDir follows Remove, too.
const (
	Create  Step = "create"
	Write   Step = "write"
	Sync    Step = "sync"
	Rename  Step = "rename"
	SyncDir Step = "sync directory"
	Remove  Step = "remove"
)

// Files is the file system to store files in. The zero value is the host's.
type Files struct {
	// Fault, if not nil, is called before each step, and its error is the step's: it simulates a
	// full, read-only or broken disk. It is called from many goroutines.
	Fault func(s Step, path string) error
}

// do runs one step.
func (f Files) do(s Step, path string, step func() error) error {
	if f.Fault != nil {
		if err := f.Fault(s, path); err != nil {
			return err
		}
	}
	return step()
}

// temporary returns the name of a file's next contents until they are complete.
func temporary(path string) string { return path + ".new" }

// Write replaces the contents of the file at path by b. When it returns nil, b survives a crash of
// the host. After an error the former contents are there, except that after a failed SyncDir it may
// be either.
func (f Files) Write(path string, b []byte) (err error) {
	next := temporary(path)
	// Never write to an existing file: another process may have left or planted it.
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &Error{path, err}
	}
	var file *os.File
	err = f.do(Create, next, func() (err error) {
		file, err = os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
		return err
	})
	if err != nil {
		return &Error{path, err}
	}
	err = f.do(Write, next, func() error {
		_, err := file.Write(b)
		return err
	})
	if err == nil {
		err = f.do(Sync, next, file.Sync)
	}
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = f.do(Rename, path, func() error { return os.Rename(next, path) })
	}
	if err != nil {
		if rerr := os.Remove(next); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
		return &Error{path, err}
	}
	return f.SyncDir(filepath.Dir(path))
}

// Remove removes the file or tree at path. When it returns nil, that survives a crash of the host.
func (f Files) Remove(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil // removing would fail on a read-only disk
	}
	if err := f.do(Remove, path, func() error { return os.RemoveAll(path) }); err != nil {
		return &Error{path, err}
	}
	return f.SyncDir(filepath.Dir(path))
}

// SyncDir writes the names in a directory to the disk.
func (f Files) SyncDir(dir string) error {
	err := f.do(SyncDir, dir, func() (err error) {
		d, err := os.Open(dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Close()) }()
		return d.Sync()
	})
	if err != nil {
		return &Error{dir, err}
	}
	return nil
}

// Read reads the file at path, which must be a regular file of at most max bytes: a pipe could
// block, and a link could lead elsewhere. Without a file the error is [fs.ErrNotExist].
func Read(path string, max int64) (b []byte, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
		return nil, fmt.Errorf("%s is a link or a socket: want a regular file; remove it", path)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is %v: want a regular file; remove it", path, st.Mode())
	}
	if b, err = io.ReadAll(io.LimitReader(f, max+1)); err != nil {
		return nil, err
	}
	if int64(len(b)) > max {
		return nil, fmt.Errorf("%s has %d bytes: want at most %d; remove it", path, st.Size(), max)
	}
	return b, nil
}

// IsDiskError reports whether err comes from a full, read-only or broken disk.
func IsDiskError(err error) bool {
	for _, e := range []error{unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.EIO} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Error means that a file could not be stored. Its text says what to do.
type Error struct {
	Path string
	Err  error
}

// Error says what failed and what to do.
func (e *Error) Error() string {
	do := "give the daemon the right to write there"
	switch {
	case errors.Is(e.Err, unix.ENOSPC), errors.Is(e.Err, unix.EDQUOT):
		do = "make room there"
	case errors.Is(e.Err, unix.EROFS):
		do = "make its file system writable"
	case errors.Is(e.Err, unix.EIO):
		do = "check its disk"
	}
	return fmt.Sprintf("save %s: %v; %s, and try again", e.Path, e.Err, do)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
