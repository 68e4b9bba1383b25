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
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/e2e/nvidia/tenant"
)

// endLimit is how long a process may take to end when told to.
const endLimit = 5 * time.Second

// process is a child, whose log goes to a file.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{}
	err  error // set when done is closed
}

// start starts a process with its log in dir.
func start(dir, name string, cmd *exec.Cmd) (*process, error) {
	p := &process{name: name, cmd: cmd, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	f, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
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

// why tells of an end that was not asked for.
func (p *process) why() error { return fmt.Errorf("%s ended: %v%s", p.name, p.err, tail(p.log)) }

// end tells the process to end, and kills it if it doesn't.
func (p *process) end() error {
	if err := p.cmd.Process.Signal(unix.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	t := time.NewTimer(endLimit)
	defer t.Stop()
	select {
	case <-p.done:
		return nil
	case <-t.C:
		return p.kill()
	}
}

// kill ends the process without warning.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return nil
}

// tail is the end of a log, for an error.
func tail(log string) string {
	const most = 2000
	b, err := os.ReadFile(log)
	if err != nil {
		return ""
	}
	b = bytes.TrimSpace(b)
	if len(b) > most {
		b = b[len(b)-most:]
	}
	return "\n" + string(b)
}

// until calls ask until it succeeds, or p ends.
func until(ctx context.Context, p *process, ask func() error) error {
	const pause = 5 * time.Millisecond
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return p.why()
		default:
		}
		if cerr := clock.Sleep(ctx, clock.Real{}, pause); cerr != nil {
			return fmt.Errorf("%s: %w, last: %w", p.name, cerr, err)
		}
	}
}

// member is a tenant's process. It is asked one thing at a time.
type member struct {
	name    string
	process *process
	in      io.WriteCloser
	answers chan tenant.Answer // closed at its end
	spins   []int              // numbers of jobs, where it has several of a kind
}

// newMember starts a tenant and hands it its setup. It is of use once it was
// awaited.
func newMember(dir string, cmd *exec.Cmd, s tenant.Setup) (*member, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// Not by StdoutPipe, which Wait closes under its reader.
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = w
	p, err := start(dir, s.Name, cmd)
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	m := &member{name: s.Name, process: p, in: in, answers: make(chan tenant.Answer)}
	go func() {
		defer close(m.answers)
		defer r.Close() //nolint:errcheck // it was only read
		d := json.NewDecoder(r)
		for {
			var a tenant.Answer
			if d.Decode(&a) != nil {
				return
			}
			select {
			case m.answers <- a:
			case <-p.done:
				return
			}
		}
	}()
	return m, m.send(s)
}

func (m *member) send(v any) error {
	if err := json.NewEncoder(m.in).Encode(v); err != nil {
		return fmt.Errorf("%s: %w%s", m.name, err, tail(m.process.log))
	}
	return nil
}

// answer waits for the answer to what was asked.
func (m *member) answer(ctx context.Context) (tenant.Answer, error) {
	select {
	case a, ok := <-m.answers:
		switch {
		case !ok:
			<-m.process.done
			return a, m.process.why()
		case a.Error != "":
			return a, fmt.Errorf("%s: %s", m.name, a.Error)
		}
		return a, nil
	case <-ctx.Done():
		return tenant.Answer{}, fmt.Errorf("%s does not answer: %w%s", m.name, ctx.Err(), tail(m.process.log))
	}
}

// ask asks and waits for the answer.
func (m *member) ask(ctx context.Context, r tenant.Request) (tenant.Answer, error) {
	if err := m.send(r); err != nil {
		return tenant.Answer{}, err
	}
	return m.answer(ctx)
}

// load loads a job.
func (m *member) load(ctx context.Context, j tenant.Job) (int, error) {
	a, err := m.ask(ctx, tenant.Request{Load: &j})
	return a.Job, err
}

// run runs a job.
func (m *member) run(ctx context.Context, r tenant.Run) (*tenant.Ran, error) {
	a, err := m.ask(ctx, tenant.Request{Run: &r})
	return a.Ran, err
}

// end has the tenant end, which it does when it is asked nothing more.
func (m *member) end() error {
	if err := m.in.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	t := time.NewTimer(endLimit)
	defer t.Stop()
	select {
	case <-m.process.done:
		return nil
	case <-t.C:
		return m.process.kill()
	}
}
