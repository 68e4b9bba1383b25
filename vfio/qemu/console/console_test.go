package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// here is a guest whose programs run on this machine.
type here struct{ power chan string }

func (here) Start(args, env []string) (Child, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = env
	in, err := cmd.StdinPipe()
	if err != nil {
		return Child{}, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return Child{}, err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return Child{}, err
	}
	if err := cmd.Start(); err != nil {
		return Child{}, err
	}
	return Child{
		PID: cmd.Process.Pid, Stdin: in, Stdout: keepOpen{out}, Stderr: keepOpen{stderr},
		Wait: func() (int, int) {
			state, err := cmd.Process.Wait() // unlike cmd.Wait it leaves the pipes open
			if err != nil {
				return -1, 0
			}
			if s := state.Sys().(syscall.WaitStatus); s.Signaled() {
				return -1, int(s.Signal())
			}
			return state.ExitCode(), 0
		},
		Signal: func(n int) error { return cmd.Process.Signal(syscall.Signal(n)) },
	}, nil
}

// keepOpen is a pipe.
type keepOpen struct{ io.ReadCloser }

func (h here) Power(action string) error {
	h.power <- action
	return errors.New("this machine stays")
}

// boot connects a client to a server whose guest is here.
func boot(t *testing.T) (*Client, here) {
	t.Helper()
	host, guest := net.Pipe()
	h := here{make(chan string, 1)}
	s := Server{Guest: h, Boot: 7, Text: "here"}
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background(), guest) }()
	c := NewClient(host, func(p []byte) { t.Errorf("noise %q", p) })
	t.Cleanup(func() {
		c.Close()
		if err := <-served; err == nil {
			t.Error("the server ended without an error")
		}
	})
	text, err := c.Ready(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if text != "here" {
		t.Errorf("the guest says %q", text)
	}
	return c, h
}

func run(t *testing.T, c *Client, cmd Command) *Process {
	t.Helper()
	p, err := c.Run(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestProgramsRun(t *testing.T) {
	c, _ := boot(t)
	long := strings.Repeat("0123456789abcde\n", 20000)
	for _, test := range []struct {
		name string
		cmd  Command
		want string // standard output
		err  string
	}{
		{"output", Command{Args: []string{"/bin/sh", "-c", "echo a; echo; echo b"}}, "a\n\nb\n", ""},
		{"no end of line", Command{Args: []string{"/bin/sh", "-c", "printf x"}}, "x\n", ""},
		{"any bytes", Command{Args: []string{"/bin/sh", "-c", `printf '\036\377\000'`}}, "\x1e\xff\x00\n", ""},
		{"environment", Command{Args: []string{"/bin/sh", "-c", "echo $A"}, Env: []string{"A=b c"}}, "b c\n", ""},
		{"input", Command{Args: []string{"/bin/cat"}, Stdin: []byte(long)}, long, ""},
		{"unread input", Command{Args: []string{"/bin/true"}, Stdin: []byte(long)}, "", ""},
		{"input closed by the program", Command{Args: []string{"/bin/sh", "-c", "exec <&-; echo x"}, Stdin: []byte(long)}, "x\n", ""},
		{"exit status", Command{Args: []string{"/bin/sh", "-c", "echo x; echo bad >&2; exit 3"}}, "x\n",
			"/bin/sh -c echo x; echo bad >&2; exit 3 in the guest: exit status 3: bad"},
		{"signal", Command{Args: []string{"/bin/sh", "-c", "kill -9 $$"}}, "", "/bin/sh -c kill -9 $$ in the guest: signal: killed"},
		{"what it started lives on", Command{Args: []string{"/bin/sh", "-c", "sleep 1000 & echo $!; exit 0"}}, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := run(t, c, test.cmd)
			var out strings.Builder
			for line := range p.Lines() {
				out.WriteString(line + "\n")
			}
			text := ""
			if err := p.Wait(); err != nil {
				text = err.Error()
			}
			if text != test.err {
				t.Errorf("error %q, want %q", text, test.err)
			}
			if test.want != "" && out.String() != test.want {
				t.Errorf("output -want +got %s", cmp.Diff(test.want, out.String()))
			}
			if test.name == "what it started lives on" {
				var pid int
				if _, err := fmt.Sscan(out.String(), &pid); err != nil {
					t.Fatal(err)
				}
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestAMissingProgramIsSaid(t *testing.T) {
	c, _ := boot(t)
	for _, args := range [][]string{{"/nothing/here"}, nil} {
		_, err := c.Run(t.Context(), Command{Args: args})
		var exit *ExitError
		if !errors.As(err, &exit) || exit.Reason == "" {
			t.Errorf("%q: %v, want an ExitError with a reason", args, err)
		}
	}
	_, err := c.Run(t.Context(), Command{Args: []string{strings.Repeat("x", MaxFrame)}})
	if err == nil || !strings.Contains(err.Error(), "over the limit") {
		t.Errorf("arguments that don't fit: %v", err)
	}
}

// Programs that run at the same time have separate input and output.
func TestProgramsRunAtOnce(t *testing.T) {
	c, _ := boot(t)
	const n = 20
	var all [n]*Process
	for i := range all {
		all[i] = run(t, c, Command{
			Args:  []string{"/bin/sh", "-c", fmt.Sprintf("cat; echo e%d >&2; exit %d", i, i)},
			Stdin: fmt.Appendf(nil, "%s\n", strings.Repeat(string(rune('a'+i)), 5000)),
		})
	}
	for i, p := range all {
		lines := slices.Collect(p.Lines())
		if want := []string{strings.Repeat(string(rune('a'+i)), 5000)}; !slices.Equal(lines, want) {
			t.Errorf("program %d printed %d lines, not its own one", i, len(lines))
		}
		err := p.Wait()
		var exit *ExitError
		if i == 0 {
			if err != nil {
				t.Error(err)
			}
		} else if !errors.As(err, &exit) || exit.Status != i || exit.Stderr != fmt.Sprintf("e%d\n", i) {
			t.Errorf("program %d ended with %v", i, err)
		}
	}
}

func TestMoreProgramsThanTheLimitAreRefused(t *testing.T) {
	c, _ := boot(t)
	var all []*Process
	for range maxPrograms {
		all = append(all, run(t, c, Command{Args: []string{"/bin/sleep", "1000"}}))
	}
	if _, err := c.Run(t.Context(), Command{Args: []string{"/bin/true"}}); err == nil {
		t.Error("one more is run")
	}
	for _, p := range all {
		if err := p.Signal(syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	for _, p := range all {
		if err := p.Wait(); err == nil {
			t.Error("a killed program ended well")
		}
	}
	if err := run(t, c, Command{Args: []string{"/bin/true"}}).Wait(); err != nil {
		t.Error(err)
	}
}

func TestSignalsArrive(t *testing.T) {
	c, _ := boot(t)
	var stderr bytes.Buffer
	p := run(t, c, Command{Args: []string{"/bin/sh", "-c", `trap 'echo caught >&2; exit 5' TERM; echo ready; while :; do sleep 0.01; done`}, Stderr: &stderr})
	for line := range p.Lines() {
		if line == "ready" {
			if err := p.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	var exit *ExitError
	if err := p.Wait(); !errors.As(err, &exit) || exit.Status != 5 {
		t.Errorf("it ended with %v", err)
	}
	if stderr.String() != "caught\n" {
		t.Errorf("standard error %q", stderr.String())
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("a signal to a program that has ended: %v", err)
	}
}

func TestAContextEndsAProgram(t *testing.T) {
	c, _ := boot(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	p, err := c.Run(ctx, Command{Args: []string{"/bin/sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	why := errors.New("no longer wanted")
	cancel(why)
	if err := p.Wait(); !errors.Is(err, why) {
		t.Errorf("it ended with %v", err)
	}
	// It was killed, so its PID becomes free.
	if err := waitGone(p.PID()); err != nil {
		t.Error(err)
	}
	if _, err := c.Run(ctx, Command{Args: []string{"/bin/true"}}); !errors.Is(err, why) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

// waitGone waits for the end of a process.
func waitGone(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 60000)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && n == 0 {
			err = fmt.Errorf("process %d is there after a minute", pid)
		}
		return err
	}
}

func TestPowerReachesTheGuest(t *testing.T) {
	c, h := boot(t)
	p := run(t, c, Command{Args: []string{"/bin/sleep", "1000"}})
	if err := c.Power(Panic); err != nil {
		t.Fatal(err)
	}
	if got := <-h.power; got != Panic {
		t.Errorf("the guest was asked for %q", got)
	}
	// This guest can't power off, and its programs fail with the reason.
	if err := p.Wait(); err == nil || !strings.Contains(err.Error(), "this machine stays") {
		t.Errorf("the program ended with %v", err)
	}
}
