// Package statefile keeps small files that a later process goes by: what was answered for
// must be there after a crash, and what lies there instead must neither hang nor fill the
// process that looks.
//
// [Files.Write] writes a temporary file beside the file, has it and then its new name
// written to the disk, and returns. Until it returns nil nothing is promised to anybody.
// It is not for logs, nor for what changes many times a second.
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

// Step is one of the things done to keep a file.
type Step string

// The steps, in their order. SyncDir follows Remove, too.
const (
	Create  Step = "create"
	Write   Step = "write"
	Sync    Step = "sync"
	Rename  Step = "rename"
	SyncDir Step = "sync directory"
	Remove  Step = "remove"
)

// Files is the file system that files are kept in. The zero value is the host's.
type Files struct {
	// Fault, if not nil, is asked before each step, and an error of its is the step's: what a
	// disk does that is full, read-only or broken. It is called from many goroutines.
	Fault func(s Step, path string) error
}

// do does one step.
func (f Files) do(s Step, path string, step func() error) error {
	if f.Fault != nil {
		if err := f.Fault(s, path); err != nil {
			return err
		}
	}
	return step()
}

// temporary is what a file's next contents are called until they are complete.
func temporary(path string) string { return path + ".new" }

// Write puts b in the place of what the file at path holds. When it returns nil, b is there
// after a crash of the host, too. After an error the former contents are there, but where
// the last step failed, the one that has the new name written, either may be.
func (f Files) Write(path string, b []byte) (err error) {
	next := temporary(path)
	// One that a process left in its midst, or that somebody put there, is not written to.
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

// Remove removes the file or the tree at path. When it returns nil, none is there after a
// crash of the host.
func (f Files) Remove(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil // a disk that is read-only would refuse to
	}
	if err := f.do(Remove, path, func() error { return os.RemoveAll(path) }); err != nil {
		return &Error{path, err}
	}
	return f.SyncDir(filepath.Dir(path))
}

// SyncDir has the names in a directory written to the disk.
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

// Read reads the file at path, which must be a regular one of at most max bytes: no pipe,
// that would be waited for, and nothing behind a link. Where there is none the error is
// [fs.ErrNotExist].
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

// Faulty reports whether err is of a disk that is full, read-only or broken.
func Faulty(err error) bool {
	for _, e := range []error{unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.EIO} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Error is that a file could not be kept. Its text says what to do.
type Error struct {
	Path string
	Err  error
}

// Error says what failed, and what helps.
func (e *Error) Error() string {
	do := "see that the daemon may write there"
	switch {
	case errors.Is(e.Err, unix.ENOSPC), errors.Is(e.Err, unix.EDQUOT):
		do = "make room there"
	case errors.Is(e.Err, unix.EROFS):
		do = "make its file system writable"
	case errors.Is(e.Err, unix.EIO):
		do = "look after its disk"
	}
	return fmt.Sprintf("keep %s: %v; %s, and ask again", e.Path, e.Err, do)
}

// Unwrap is why.
func (e *Error) Unwrap() error { return e.Err }
