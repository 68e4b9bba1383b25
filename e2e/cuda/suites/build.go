package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// A buildError is a test's own failure to build, as opposed to one of the machine.
type buildError struct{ text string }

func (e *buildError) Error() string { return e.text }

// compilerError matches what the compilers, their linkers and mkoffload say of an error.
var compilerError = regexp.MustCompile(`(?m)(?:error: |sorry, unimplemented: |unresolved symbol |undefined reference ).*$`)

// cause returns the first error.
func (e *buildError) cause() string {
	m := compilerError.FindString(e.text)
	if m == "" {
		return "the compiler fails"
	}
	return strings.TrimPrefix(m, "error: ")
}

// build builds a test, unless its program is there from an earlier run, and returns the program's
// directory.
func (c *toolchain) build(ctx context.Context, t *test) (string, error) {
	digest, err := t.digest(c.version)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(c.dir, "programs", digest)
	failure := dir + ".failed"
	if text, err := os.ReadFile(failure); err == nil {
		return "", &buildError{string(text)}
	}
	if exists(dir) {
		return dir, nil
	}
	work, err := os.MkdirTemp(c.dir, "build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	for _, s := range t.steps {
		if text, err := c.step(ctx, work, s); err != nil {
			if ctx.Err() != nil || !errors.As(err, new(*exec.ExitError)) {
				return "", err
			}
			text = fmt.Sprintf("%s: %v\n%s", s.program, err, text)
			return "", errors.Join(os.WriteFile(failure, []byte(text), 0o644), &buildError{text})
		}
	}
	// Files that aren't needed to run the program take much room.
	for _, name := range []string{"generator", "runtime.a"} {
		os.Remove(filepath.Join(work, name))
	}
	err = os.Rename(work, dir)
	if err != nil && exists(dir) {
		err = nil // another test has the same program
	}
	return dir, err
}

// step runs a command of a build in dir and returns what it printed.
func (c *toolchain) step(ctx context.Context, dir string, s step) (string, error) {
	var cmd *exec.Cmd
	if strings.HasPrefix(s.program, "./") {
		cmd = exec.CommandContext(ctx, filepath.Join(dir, s.program), s.args...)
	} else {
		cmd = exec.CommandContext(ctx, filepath.Join(c.root, "usr", "bin", s.program),
			append([]string{"--sysroot=" + c.root, "-B" + filepath.Join(c.root, "usr", "bin")}, append(c.ours(), s.args...)...)...)
	}
	cmd.Dir, cmd.Env = dir, c.env()
	out, err := cmd.CombinedOutput()
	return string(bytes.TrimSpace(out)), err
}

// ours returns the options for this project's own headers and libraries.
func (c *toolchain) ours() []string {
	var args []string
	for _, dir := range c.includes {
		args = append(args, "-I"+dir)
	}
	return append(args, "-L"+c.library)
}

// prepare makes what all builds share: directories and a precompiled header.
func (c *toolchain) prepare(ctx context.Context) error {
	pch := filepath.Join(c.dir, "pch")
	for _, dir := range []string{pch, filepath.Join(c.dir, "programs")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	header := filepath.Join(c.root, "usr", "include", "halide14", "Halide.h")
	// Where the compiler can't use the compiled form it reads this one.
	if err := os.Symlink(header, filepath.Join(pch, "Halide.h")); err != nil && !os.IsExist(err) {
		return err
	}
	compiled := filepath.Join(pch, "Halide.h.gch")
	if exists(compiled) || !exists(header) {
		return nil
	}
	text, err := c.step(ctx, pch, step{"g++-12", append(halideFlags[:len(halideFlags):len(halideFlags)], "-x", "c++-header", header, "-o", compiled+".new")})
	if err != nil {
		return fmt.Errorf("precompile %s: %w\n%s", header, err, text)
	}
	return os.Rename(compiled+".new", compiled)
}
