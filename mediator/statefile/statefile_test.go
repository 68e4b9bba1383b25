package statefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// TestWriteOrder checks that the file is renamed when its contents are on the disk, and that Write
// returns when the name is, too.
func TestWriteOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	var steps []Step
	f := Files{Fault: func(s Step, at string) error {
		steps = append(steps, s)
		return nil
	}}
	for _, text := range []string{"one", "two"} {
		steps = nil
		if err := f.Write(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]Step{Create, Write, Sync, Rename, SyncDir}, steps); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if b, err := Read(path, 10); err != nil || string(b) != text {
			t.Errorf("read %q, %v", b, err)
		}
	}
}

// TestWriteFails checks that, whichever step fails, the former contents stay, nothing else is left,
// and the error says what to do.
func TestWriteFails(t *testing.T) {
	for err, want := range map[error]string{
		unix.ENOSPC: "make room there", unix.EDQUOT: "make room there", unix.EROFS: "make its file system writable", unix.EIO: "check its disk",
		unix.EACCES: "give the daemon the right to write there",
	} {
		for _, step := range []Step{Create, Write, Sync, Rename} {
			dir := t.TempDir()
			path := filepath.Join(dir, "state")
			if err := (Files{}).Write(path, []byte("old")); err != nil {
				t.Fatal(err)
			}
			got := Files{Fault: func(s Step, at string) error {
				if s == step {
					return err
				}
				return nil
			}}.Write(path, []byte("new"))
			if !errors.Is(got, err) || !strings.Contains(got.Error(), want) || !strings.Contains(got.Error(), path) {
				t.Errorf("%s: %v: %v", step, err, got)
			}
			if b, err := os.ReadFile(path); err != nil || string(b) != "old" {
				t.Errorf("%s: %v: left %q, %v", step, got, b, err)
			}
			entries, rerr := os.ReadDir(dir)
			if rerr != nil || len(entries) != 1 {
				t.Errorf("%s: left %v, %v", step, entries, rerr)
			}
		}
	}
}

// TestLeftovers checks that an existing temporary file is not written to.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "state"), filepath.Join(dir, "other")
	for _, leave := range []func(string) error{
		func(p string) error { return os.WriteFile(p, []byte("half"), 0o600) },
		func(p string) error { return unix.Mkfifo(p, 0o600) },
		func(p string) error { return os.Symlink(other, p) },
	} {
		if err := leave(temporary(path)); err != nil {
			t.Fatal(err)
		}
		if err := (Files{}).Write(path, []byte("new")); err != nil {
			t.Error(err)
		}
		if b, err := Read(path, 10); err != nil || string(b) != "new" {
			t.Errorf("read %q, %v", b, err)
		}
	}
	if _, err := os.Lstat(other); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what a link led to: %v", err)
	}
}

// TestRead checks that anything but a small regular file is refused at once, with what to do.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	large := filepath.Join(dir, "large")
	if err := errors.Join(os.WriteFile(large, nil, 0o600), os.Truncate(large, 200<<20)); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/dev/zero", link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		large: "has 209715200 bytes: want at most 1024; remove it", pipe: "want a regular file; remove it", link: "want a regular file; remove it",
		dir: "want a regular file; remove it", "/dev/zero": "want a regular file; remove it",
	} {
		if b, err := Read(path, 1<<10); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %d bytes, %v", path, len(b), err)
		}
	}
	if _, err := Read(filepath.Join(dir, "none"), 1<<10); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
}

// TestRemove checks that a removal is durable, and that removing nothing is no error.
func TestRemove(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	var steps []Step
	f := Files{Fault: func(s Step, at string) error {
		steps = append(steps, s)
		return nil
	}}
	for _, p := range []string{path, filepath.Dir(path), path} {
		if err := f.Remove(p); err != nil {
			t.Error(err)
		}
	}
	if want := []Step{Remove, SyncDir, Remove, SyncDir}; !slices.Equal(steps, want) {
		t.Errorf("steps %v", steps)
	}
	broken := Files{Fault: func(Step, string) error { return unix.EROFS }}
	if err := broken.Remove(path); err != nil {
		t.Errorf("nothing on a read-only disk: %v", err)
	}
	if err := broken.Remove(dir); !errors.Is(err, unix.EROFS) {
		t.Errorf("on a read-only disk: %v", err)
	}
}
