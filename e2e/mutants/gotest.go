package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
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

// testRun is a go test command that has ended.
type testRun struct {
	out    []byte // in JSON
	bad    bool   // it failed
	killed bool   // after its time
}

// test runs a test in the tree, which may take until limit. It compiles what the test needs.
func (t tree) test(ctx context.Context, c command, limit time.Duration) (testRun, error) {
	args := []string{"test", "-json", "-vet=off", "-run", c.run, "-timeout=" + limit.String()}
	if t.tags != "" && !c.has("-tags") {
		args = append(args, "-tags="+t.tags)
	}
	if !c.has("-count") {
		args = append(args, "-count=1")
	}
	args = append(append(args, c.flags...), c.pkg)
	if len(c.args) > 0 {
		args = append(append(args, "-args"), c.args...)
	}
	limited, cancel := context.WithTimeout(ctx, limit+grace)
	defer cancel()
	out, err := t.goTool(limited, args...)
	switch exit := (*exec.ExitError)(nil); {
	case ctx.Err() != nil:
		return testRun{}, ctx.Err()
	case limited.Err() != nil:
		return testRun{out: out, bad: true, killed: true}, nil
	case err != nil && !errors.As(err, &exit):
		return testRun{}, fmt.Errorf("run %v: %w", c, err)
	}
	return testRun{out: out, bad: err != nil}, nil
}

// goTool runs the go command in the tree and returns its output. If ctx ends, so does every process
// that the command started in its group.
func (t tree) goTool(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = t.dir
	cmd.Env = append(os.Environ(), "GOFLAGS="+t.goflags)
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

// judge interprets the output of go test -json for the selected tests. bad reports whether go test
// failed.
func judge(out []byte, tests selector, bad bool) (ending, string) {
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
		if e.Test == "" {
			continue
		}
		selected, runs := tests.selects(e.Test)
		// A subtest that did not run because its parent failed adds nothing.
		fell = fell || runs && e.Action == "fail"
		ran = ran || selected && e.Action == "run"
		ok = ok || selected && e.Action == "pass"
	}
	last := tail([]byte(said.String()))
	switch {
	case unbuilt:
		return notBuilt, last
	case fell, ran && bad: // the second where the process ended in the test
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
