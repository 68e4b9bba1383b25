package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ending is how a test command ended.
type ending int

const (
	passed   ending = iota
	failed          // a test did
	notBuilt        // the test, or what it tests, does not compile
	noTests         // no test has that name
	skipped         // all tests with that name
	noEnd           // it had to be killed
	broke           // it failed outside of any test
)

// grace is how long compiling a test may take beyond the test's own time.
const grace = 10 * time.Minute

// test runs a test in the tree. It returns how the test ended and the end of its output.
func (t tree) test(ctx context.Context, c command, tags string, limit time.Duration) (ending, string, error) {
	args := []string{"test", "-json", "-vet=off", "-run", c.run}
	if tags != "" && !c.has("-tags") {
		args = append(args, "-tags="+tags)
	}
	if !c.has("-count") {
		args = append(args, "-count=1")
	}
	if !c.has("-timeout") {
		args = append(args, "-timeout="+limit.String())
	}
	for _, f := range c.flags {
		if v, ok := strings.CutPrefix(f, "-timeout="); ok {
			var err error
			if limit, err = time.ParseDuration(v); err != nil {
				return 0, "", fmt.Errorf("-timeout: %w", err)
			}
		}
	}
	args = append(append(args, c.flags...), c.pkg)
	if len(c.args) > 0 {
		args = append(append(args, "-args"), c.args...)
	}
	limited, cancel := context.WithTimeout(ctx, limit+grace)
	defer cancel()
	out, err := t.goTool(limited, args...)
	switch {
	case ctx.Err() != nil:
		return 0, "", ctx.Err()
	case limited.Err() != nil:
		return noEnd, tail(out), nil
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return 0, "", fmt.Errorf("run %v: %w", c, err)
	}
	how, said := judge(out, len(elements(c.run)), err != nil)
	return how, said, nil
}

// compile compiles all packages of the tree. If one does not compile, it returns false and the
// output.
func (t tree) compile(ctx context.Context, tags string) (bool, string, error) {
	// Unlike go build, this links nothing.
	out, err := t.goTool(ctx, "list", "-export", "-tags="+tags, "-f", "{{/**/}}", "./...")
	if ctx.Err() != nil {
		return false, "", ctx.Err()
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return false, "", fmt.Errorf("compile the tree: %w", err)
	}
	return err == nil, tail(out), nil
}

// goTool runs the go command in the tree and returns its output. If ctx ends, so does every process
// that the command started in its group.
func (t tree) goTool(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = t.dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	if ctx.Err() != nil && cmd.Process != nil {
		unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	}
	return out.Bytes(), err
}

// event is an event of test2json (go doc test2json) or of go build.
type event struct {
	Action      string
	Test        string
	Output      string
	FailedBuild string
}

// judge interprets the output of go test -json. depth is the number of levels in its tests' names;
// bad reports whether go test failed.
func judge(out []byte, depth int, bad bool) (ending, string) {
	var said strings.Builder
	var ran, ok, fell, unbuilt bool
	for line := range bytes.Lines(out) {
		var e event
		if json.Unmarshal(line, &e) != nil { // output of the go command itself
			said.Write(line)
			continue
		}
		said.WriteString(e.Output)
		unbuilt = unbuilt || e.Action == "build-fail" || e.FailedBuild != ""
		// A subtest that did not run because its parent failed adds nothing.
		fell = fell || e.Test != "" && e.Action == "fail"
		if e.Test != "" && strings.Count(e.Test, "/")+1 >= depth {
			ran = ran || e.Action == "run"
			ok = ok || e.Action == "pass"
		}
	}
	last := tail([]byte(said.String()))
	switch {
	case unbuilt:
		return notBuilt, last
	case fell && bad, ran && bad: // the second where the process ended in the test
		return failed, last
	case bad:
		return broke, last
	case !ran:
		return noTests, last
	case !ok:
		return skipped, last
	}
	return passed, last
}

// tail returns the last lines of an output.
func tail(out []byte) string {
	const most = 2000 // bytes
	if len(out) <= most {
		return string(out)
	}
	out = out[len(out)-most:]
	if i := bytes.IndexByte(out, '\n'); i >= 0 {
		out = out[i+1:]
	}
	return "…\n" + string(out)
}

// indent writes a test's output below a line of progress.
func indent(w io.Writer, text string) {
	for line := range strings.Lines(text) {
		fmt.Fprint(w, "    ", strings.TrimRight(line, "\n"), "\n")
	}
}
