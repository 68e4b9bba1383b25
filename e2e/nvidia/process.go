package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"vgpud/cmd/vgpud/child"
	"vgpud/e2e/nvidia/tenant"
)

// tenantEnds is how long a tenant may take to end when it is asked nothing more.
const tenantEnds = 5 * time.Second

// member is a tenant's process. It is asked one thing at a time.
type member struct {
	name    string
	process *child.Process
	in      io.WriteCloser
	answers chan tenant.Answer // closed at its end
	spins   []int              // numbers of jobs, where it has several of a kind
}

// newMember starts a tenant and hands it its setup. It is of use once it was awaited. The caller
// ends it, also after an error where there is one.
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
	p, err := child.Start(dir, s.Name, cmd)
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
			case <-p.Ended():
				return
			}
		}
	}()
	return m, m.send(s)
}

func (m *member) send(v any) error {
	if err := json.NewEncoder(m.in).Encode(v); err != nil {
		return fmt.Errorf("%s: %w%s", m.name, err, child.Tail(m.process.Log))
	}
	return nil
}

// answer waits for the answer to what was asked.
func (m *member) answer(ctx context.Context) (tenant.Answer, error) {
	select {
	case a, ok := <-m.answers:
		switch {
		case !ok:
			return a, m.process.EndError()
		case a.Error != "":
			return a, fmt.Errorf("%s: %s", m.name, a.Error)
		}
		return a, nil
	case <-ctx.Done():
		return tenant.Answer{}, fmt.Errorf("%s does not answer: %w%s", m.name, ctx.Err(), child.Tail(m.process.Log))
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
	t := time.NewTimer(tenantEnds)
	defer t.Stop()
	select {
	case <-m.process.Ended():
		return nil
	case <-t.C:
		return m.process.Kill()
	}
}
