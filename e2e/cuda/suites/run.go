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
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/mediator/api"
)

// Outcomes of a test.
const (
	passed  = "passed"
	failed  = "failed"
	listed  = "listed"   // it can't run here, by design
	xfailed = "expected" // it failed, and its suite expects that
	unbuilt = "unbuilt"  // its compiler refuses it, so that there is no program
)

// A result is what became of a test.
type result struct {
	Build   string  `json:"build,omitempty"` // of vgpud, as [buildOf] names it
	Suite   string  `json:"suite"`
	Name    string  `json:"name"`
	Outcome string  `json:"outcome"`
	Cause   string  `json:"cause,omitempty"`
	Kernels uint64  `json:"kernels"`
	Copied  uint64  `json:"copied_bytes"`
	Seconds float64 `json:"seconds,omitempty"`
	// Forms counts the kernels of the program's own code.
	Forms  *kernels `json:"forms,omitempty"`
	Output string   `json:"output,omitempty"` // the end of a failed test's output
}

// A worker runs tests one after the other on a guest of its own.
type worker struct {
	c     *toolchain
	build string
	h     *host
	guest api.VM
	limit time.Duration
}

// counters returns the guest's counters, after its process has ended.
func (w *worker) counters(ctx context.Context) (api.VM, error) {
	for {
		v, err := w.h.client.VM(ctx, w.guest.Name)
		// The counters are complete when the test's contexts are gone.
		if err != nil || !v.Attached && v.Contexts == 0 {
			return v, err
		}
		select {
		case <-ctx.Done():
			return v, fmt.Errorf("guest %s: its device stays attached: %w", w.guest.Name, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// run builds and runs a test. Its error is the machine's; the test's own failure is in the result.
func (w *worker) run(ctx context.Context, t *test) (result, error) {
	r := result{Build: w.build, Suite: t.Suite, Name: t.Name}
	program, err := w.c.build(ctx, t)
	var be *buildError
	switch {
	case errors.As(err, &be):
		r.Outcome, r.Cause, r.Output = unbuilt, be.cause(), tail(be.text)
		return r, nil
	case err != nil:
		return r, err
	}
	if t.command == nil && t.Suite == "libgomp" && neverReachesDevice(program) {
		r.Outcome, r.Cause = listed, "calls nothing of libgomp's device interface"
		return r, nil
	}
	before, err := w.counters(ctx)
	if err != nil {
		return r, err
	}
	dir, err := os.MkdirTemp(w.h.dir, "test-")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	for _, f := range t.files {
		if err := copyInto(dir, f); err != nil {
			return r, err
		}
	}
	start := time.Now()
	attached := w.watch(ctx, t)
	out, status, err := w.execute(ctx, t, dir, filepath.Join(program, "test"))
	r.Seconds = time.Since(start).Seconds()
	if err != nil {
		return r, err
	}
	ending, cancel := context.WithTimeout(ctx, w.limit)
	defer cancel()
	after, err := w.counters(ending)
	if err != nil {
		return r, err
	}
	if r.Forms, out, err = forms(t, program, out); err != nil {
		return r, err
	}
	r.Kernels, r.Copied = after.Kernels-before.Kernels, after.CopiedBytes-before.CopiedBytes
	used := attached() || after.Commands > before.Commands || r.Kernels+r.Copied > 0
	r.Cause = t.judge(out, status, used, r.Kernels)
	switch {
	case r.Cause == "":
		r.Outcome = passed
	case t.xfail:
		r.Outcome = xfailed
	default:
		r.Outcome, r.Output = failed, tail(out)
	}
	return r, nil
}

// watch looks whether the test opens the device, if the test is one that libgomp ends for a wrong
// argument: such a test has no commands for the GPU. The function that it returns ends the watch.
func (w *worker) watch(ctx context.Context, t *test) (attached func() bool) {
	if !t.shouldFail || t.offloads {
		return func() bool { return false }
	}
	ctx, cancel := context.WithCancel(ctx)
	seen := make(chan bool, 1)
	go func() {
		for ctx.Err() == nil {
			if v, err := w.h.client.VM(ctx, w.guest.Name); err == nil && v.Attached {
				seen <- true
				return
			}
			time.Sleep(time.Millisecond)
		}
		seen <- false
	}()
	return func() bool { cancel(); return <-seen }
}

// judge returns why a test failed, or "".
func (t *test) judge(out, status string, used bool, kernels uint64) string {
	switch {
	case status == "hang":
		return "hang: not ended within the limit"
	case t.shouldFail && status == "":
		return "ended well, where an error was to end it"
	case !t.shouldFail && status != "":
		return status
	case strings.Contains(out, "[SKIP]"):
		return "skipped itself"
	case t.success != "" && !strings.Contains(out, t.success):
		return "did not print " + t.success
	case !matches(t.output, out):
		return "its output does not match"
	case !used:
		return "left the GPU alone"
	case t.offloads && !t.shouldFail && kernels == 0:
		return "ran no kernel"
	}
	return ""
}

// forms counts the kernels of a test: those in a program that GCC built, and those that Halide
// compiled while the test ran. It returns the output without these.
func forms(t *test, program, out string) (*kernels, string, error) {
	k := new(kernels)
	if t.Suite == "libgomp" {
		objects, err := offloaded(program)
		if err != nil || len(objects) == 0 {
			return nil, out, err
		}
		k.countLinked(objects)
		return k, out, nil
	}
	modules, out := printed(out)
	for _, m := range modules {
		k.countModule(m)
	}
	return k, out, nil
}

// matches reports whether output matches a pattern of Tcl's.
func matches(pattern, out string) bool {
	if pattern == "" {
		return true
	}
	re, err := regexp.Compile("(?s)" + pattern) // in Tcl a dot matches a line break, too
	return err == nil && re.MatchString(strings.ReplaceAll(out, "\r\n", "\n"))
}

// deviceInterface matches the names of libgomp's functions that may use a device.
var deviceInterface = regexp.MustCompile(`\x00(GOMP_target|GOACC_|omp_target_|acc_|omp_get_mapped_ptr)[a-zA-Z_0-9]*\x00`)

// neverReachesDevice reports whether a program calls nothing that could reach a device, as its
// dynamic symbols show.
func neverReachesDevice(program string) bool {
	text, err := os.ReadFile(filepath.Join(program, "test"))
	return err == nil && !deviceInterface.Match(text)
}

// execute runs a test's program in dir and returns its output and how it ended: "" means well.
func (w *worker) execute(ctx context.Context, t *test, dir, program string) (out, status string, err error) {
	command := []string{program}
	if t.command != nil {
		command = t.command
	}
	command = append(slices.Clone(command), t.args...)
	ctx, cancel := context.WithTimeout(ctx, w.limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Env = append(w.c.env(w.c.library), append([]string{"VGPU_VFIO_USER=" + w.guest.Socket}, t.env...)...)
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	// Processes that the test has started end with it.
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return b.String(), "hang", nil
	case ctx.Err() != nil:
		return "", "", ctx.Err()
	case errors.As(err, &exit):
		return b.String(), exit.String(), nil
	}
	return b.String(), "", err
}

// tail returns the end of a text.
func tail(s string) string {
	const most = 2000
	s = strings.TrimSpace(strings.ToValidUTF8(s, "?"))
	return s[max(0, len(s)-most):]
}

// copyInto copies a file, or a directory's files, into dir.
func copyInto(dir, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.CopyFS(filepath.Join(dir, filepath.Base(path)), os.DirFS(path))
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, filepath.Base(path)), text, 0o644)
}
