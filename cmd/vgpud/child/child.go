// Package child starts and ends the processes of the demo and the measurements. Each has a log of
// its own, and none outlives the process that started it.
package child

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/clock"
)

// endLimit bounds the time in which a process ends after SIGTERM, on a busy machine.
const endLimit = 5 * time.Minute

// Process is a child. Its methods are safe for concurrent use.
type Process struct {
	Name string
	Cmd  *exec.Cmd
	Log  string // the file of its standard error
	done chan struct{}
	err  error // set when done is closed
}

// Start starts a process that appends its log to NAME.log in dir, and its standard output too if
// that is [os.Stderr]. The caller ends it.
func Start(dir, name string, cmd *exec.Cmd) (*Process, error) {
	p := &Process{Name: name, Cmd: cmd, Log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	f, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if cmd.Stdout == os.Stderr {
		cmd.Stdout = f
	}
	cmd.Stderr = f
	// The parent handles an interrupt at the terminal and ends its children in order.
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	err = cmd.Start()
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.done }

// Err waits for the end and returns how the process ended, with the end of its log, or nil if it
// ended well.
func (p *Process) Err() error {
	<-p.done
	if p.err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w%s", p.Name, p.err, Tail(p.Log))
}

// EndError waits for an unexpected end and returns an error about it, even if the process ended
// well.
func (p *Process) EndError() error {
	<-p.done
	return fmt.Errorf("%s ended: %v%s", p.Name, p.err, Tail(p.Log))
}

// End sends SIGTERM, kills the process if it doesn't end within minutes, and waits for its end.
// [Process.Err] returns how it ended.
func (p *Process) End() error {
	if err := p.Cmd.Process.Signal(unix.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end %s: %w", p.Name, err)
	}
	t := time.NewTimer(endLimit)
	defer t.Stop()
	select {
	case <-p.done:
		return nil
	case <-t.C:
		return p.Kill()
	}
}

// Kill kills the process and waits for its end.
func (p *Process) Kill() error {
	if err := p.Cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.Name, err)
	}
	<-p.done
	return nil
}

// Tail returns the end of a log, on lines of its own, for an error; "" if there is no log.
func Tail(log string) string {
	const most = 2000
	b, err := os.ReadFile(log)
	if err != nil {
		return ""
	}
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return ""
	}
	return "\n" + string(b[max(len(b)-most, 0):])
}

// WaitUntil calls f until it succeeds, p ends, or ctx does.
func WaitUntil(ctx context.Context, p *Process, f func() error) error {
	const pause = 5 * time.Millisecond
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return p.EndError()
		default:
		}
		if cerr := clock.Sleep(ctx, clock.Real{}, pause); cerr != nil {
			return fmt.Errorf("%s: %w, last: %w", p.Name, cerr, err)
		}
	}
}
