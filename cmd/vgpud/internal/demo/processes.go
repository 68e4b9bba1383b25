package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/e2e/work"
)

// endLimit is how long a process may take to end when told to.
const endLimit = 5 * time.Second

// process is a child of the demo. Its log goes to a file of its own.
type process struct {
	name  string
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
	err   error // set when ended is closed
}

// start runs a program of the demo's.
func (d *demo) start(name string, cmd *exec.Cmd) (*process, error) {
	p := &process{name: name, cmd: cmd, log: filepath.Join(d.dir, name+".log"), ended: make(chan struct{})}
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
		close(p.ended)
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
	case <-p.ended:
	case <-t.C:
		if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		<-p.ended
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w%s", p.name, p.err, p.tail())
	}
	return nil
}

// tail is the end of the process's log, for an error.
func (p *process) tail() string {
	b, err := os.ReadFile(p.log)
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
		case <-p.ended:
			return fmt.Errorf("%s ended: %v%s", p.name, p.err, p.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s: %w, last: %v", p.name, ctx.Err(), err)
		case <-t.C:
		}
	}
}

// member is a guest of the demo.
type member struct {
	work.Plan
	weight  float64
	process *process
	ready   chan struct{} // closed when it works

	mu     sync.Mutex
	report work.Report
}

// startGuest runs a guest's process and follows its reports.
func (d *demo) startGuest(m *member) error {
	text, err := json.Marshal(m.Plan)
	if err != nil {
		return err
	}
	cmd, err := d.o.Program("demo-guest")
	if err != nil {
		return err
	}
	cmd.Stdin = bytes.NewReader(text)
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout = w
	m.process, err = d.start("guest-"+m.Name, cmd)
	if err := errors.Join(err, w.Close()); err != nil {
		return errors.Join(err, r.Close())
	}
	m.ready = make(chan struct{})
	d.readers.Go(func() {
		lines := bufio.NewScanner(r)
		for lines.Scan() {
			m.take(lines.Bytes())
		}
		if err := errors.Join(lines.Err(), r.Close()); err != nil {
			m.take([]byte(fmt.Sprintf(`{"error":%q}`, err)))
		}
	})
	return nil
}

// take takes in a line of a guest's.
func (m *member) take(line []byte) {
	var r work.Report
	if err := json.Unmarshal(line, &r); err != nil {
		r = m.last()
		r.Error = fmt.Sprintf("unreadable report %q", line)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.report = r
	if r.Ready {
		close(m.ready)
	}
}

func (m *member) last() work.Report {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.report
}
