package demo

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
)

// endLimit is how long a process may take to end when told to.
const endLimit = 5 * time.Second

// process is a child of the demo. Its log goes to a file of its own.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{}
	err  error // set when done is closed
}

func (p *process) ended() <-chan struct{} { return p.done }

func (p *process) why() error { return fmt.Errorf("%s ended: %v%s", p.name, p.err, tail(p.log)) }

// start runs a program of the demo's.
func (d *demo) start(name string, cmd *exec.Cmd) (*process, error) {
	p := &process{name: name, cmd: cmd, log: filepath.Join(d.dir, name+".log"), done: make(chan struct{})}
	f, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	cmd.Stderr = f
	if cmd.Stdout == os.Stderr {
		cmd.Stdout = f
	}
	// An interrupt at the terminal is the demo's to pass on, in order.
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	err = cmd.Start()
	err = errors.Join(err, f.Close())
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	d.processes = append(d.processes, p)
	return p, nil
}

// end tells a process to end and waits until it has.
func (p *process) end() error {
	if err := p.cmd.Process.Signal(unix.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	t := time.NewTimer(endLimit)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C:
		if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		<-p.done
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w%s", p.name, p.err, tail(p.log))
	}
	return nil
}

// tail is the end of a log, for an error.
func tail(log string) string {
	b, err := os.ReadFile(log)
	if err != nil {
		return ""
	}
	b = bytes.TrimSpace(b)
	if i := len(b) - 2000; i > 0 {
		b = b[i:]
	}
	if len(b) == 0 {
		return ""
	}
	return "\n" + string(b)
}

// until calls ask until it succeeds or the process it asks ends.
func until(ctx context.Context, p *process, ask func() error) error {
	const pause = 10 * time.Millisecond
	t := time.NewTicker(pause)
	defer t.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return p.why()
		case <-ctx.Done():
			return fmt.Errorf("%s: %w, last: %v", p.name, ctx.Err(), err)
		case <-t.C:
		}
	}
}
