package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// tree is a copy of a tree's files, outside any checkout, and how the go command compiles them.
type tree struct{ dir, tags, goflags string }

// copyTree copies the files below root of its checkout: those that git tracks, in their current
// state, and those that git does not ignore.
func copyTree(ctx context.Context, root, tags string) (tree, error) {
	goflags, err := exec.CommandContext(ctx, "go", "env", "GOFLAGS").Output()
	if err != nil {
		return tree{}, fmt.Errorf("ask for the go command's flags: %w", err)
	}
	list := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	var stderr bytes.Buffer
	list.Stderr = &stderr
	names, err := list.Output()
	if err != nil {
		return tree{}, fmt.Errorf("list the files of %s: %w: %s", root, err, bytes.TrimSpace(stderr.Bytes()))
	}
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return tree{}, fmt.Errorf("make a directory for the copy: %w", err)
	}
	// Without paths in them, compilations are shared by all copies of a tree, and by what their tests
	// build.
	t := tree{dir, tags, strings.TrimSpace(string(goflags)) + " -trimpath"}
	// Guests' processes have users of their own, which execute what tests build there.
	if err := os.Chmod(dir, 0o755); err != nil {
		t.remove()
		return tree{}, fmt.Errorf("open the copy's directory: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(names), "\x00"), "\x00") {
		if err := ctx.Err(); err != nil {
			t.remove()
			return tree{}, err
		}
		if err := copyFile(filepath.Join(root, name), filepath.Join(dir, name)); err != nil {
			t.remove()
			return tree{}, fmt.Errorf("copy %s: %w", name, err)
		}
	}
	return t, nil
}

// copyFile copies a file or a symbolic link. It copies nothing if there is none: git lists files
// whose removal is not committed.
func copyFile(from, to string) error {
	info, err := os.Lstat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case !info.Mode().IsRegular(): // a nested checkout
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// remove removes the copy.
func (t tree) remove() error { return os.RemoveAll(t.dir) }

// apply applies a diff, completely or not at all. With "--check" it only checks whether it could,
// with "--reverse" it reverts it.
func (t tree) apply(ctx context.Context, diff string, options ...string) error {
	cmd := exec.CommandContext(ctx, "git", append([]string{"apply", "--whitespace=nowarn"}, options...)...)
	cmd.Dir = t.dir
	// In a subdirectory of a checkout, git apply would skip files outside it.
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(t.dir))
	cmd.Stdin = strings.NewReader(diff)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}
