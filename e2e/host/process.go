package host

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// Process is a process of the host.
type Process struct {
	Cmd   *exec.Cmd
	log   string // a file: a pipe would be held open by the process's own children
	ended chan struct{}
	err   error
}

// Run starts the program with arguments. The process ends with the test at the latest.
func (h *Host) Run(args ...string) *Process {
	h.tb.Helper()
	p := h.start(args...)
	h.tb.Cleanup(func() { h.kill(p) })
	return p
}

func (h *Host) kill(p *Process) {
	if err := p.Kill(); err != nil {
		h.tb.Error(err)
	}
}

// start is Run for a process that the caller ends. If the test fails, the log is shown.
func (h *Host) start(args ...string) *Process {
	h.tb.Helper()
	p := &Process{Cmd: exec.Command(h.program, args...), ended: make(chan struct{})}
	log, err := os.CreateTemp(h.Dir, args[0]+"-*.log")
	if err != nil {
		h.tb.Fatal(err)
	}
	p.log, p.Cmd.Stderr = log.Name(), log
	err = p.Cmd.Start()
	if err := errors.Join(err, log.Close()); err != nil {
		h.tb.Fatal(err)
	}
	go func() {
		p.err = p.Cmd.Wait()
		close(p.ended)
	}()
	h.tb.Cleanup(func() {
		if h.tb.Failed() {
			h.tb.Logf("log of %v:\n%s", args, excerpt(p.Log()))
		}
	})
	return p
}

// excerpt returns the beginning and the end of a long text.
func excerpt(s string) string {
	const most = 4 << 10
	if len(s) <= 2*most {
		return s
	}
	return s[:most] + "\n…\n" + s[len(s)-most:]
}

// PID returns the process's ID.
func (p *Process) PID() int { return p.Cmd.Process.Pid }

// Log returns what the process and its children have logged so far.
func (p *Process) Log() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Kill kills a process, and waits for its end.
func (p *Process) Kill() error {
	if err := p.Cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.ended
	return nil
}

// End asks a process to end, and waits for its end.
func (p *Process) End() error {
	if err := p.Cmd.Process.Signal(unix.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.ended
	if p.err != nil {
		return fmt.Errorf("%v: %w", p.Cmd.Args, p.err)
	}
	return nil
}
