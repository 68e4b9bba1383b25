// Package child starts and ends the processes that the demo and the measurements are
// made of. Each has a log of its own, and none outlives who started it.
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

// endLimit is how long a process may take to end when told to, on a machine that does much
// else.
const endLimit = 5 * time.Minute

// Process is a child. Its methods are safe for concurrent use.
type Process struct {
	Name string
	Cmd  *exec.Cmd
	Log  string // the file that its standard error goes to
	done chan struct{}
	err  error // set when done is closed
}

// Start starts a process whose log is NAME.log in dir, added to where it is there. Its
// standard output goes there as well if it is [os.Stderr]. Whoever starts one ends it.
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
	// An interrupt at the terminal is passed on in order.
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

// Err is how the process ended, nil for well, with the end of its log. It waits for the
// end.
func (p *Process) Err() error {
	<-p.done
	if p.err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w%s", p.Name, p.err, Tail(p.Log))
}

// Why tells of an end that was not asked for, however it was. It waits for it.
func (p *Process) Why() error {
	<-p.done
	return fmt.Errorf("%s ended: %v%s", p.Name, p.err, Tail(p.Log))
}

// End tells the process to end by SIGTERM, kills it if it doesn't within minutes, and waits
// until it has. How it did says [Process.Err].
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

// Kill ends the process without warning, and waits until it has ended.
func (p *Process) Kill() error {
	if err := p.Cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.Name, err)
	}
	<-p.done
	return nil
}

// Tail is the end of a log, on lines of its own, for an error; nothing where there is
// none.
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

// Until calls ask until it succeeds, p ends, or ctx does.
func Until(ctx context.Context, p *Process, ask func() error) error {
	const pause = 5 * time.Millisecond
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return p.Why()
		default:
		}
		if cerr := clock.Sleep(ctx, clock.Real{}, pause); cerr != nil {
			return fmt.Errorf("%s: %w, last: %w", p.Name, cerr, err)
		}
	}
}
