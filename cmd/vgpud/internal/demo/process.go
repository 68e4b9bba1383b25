package demo

import (
	"context"
	"os/exec"

	"vgpud/cmd/vgpud/child"
)

// process is a child of the demo's that should end well.
type process struct{ *child.Process }

func (p *process) ended() <-chan struct{} { return p.Ended() }

func (p *process) endError() error { return p.EndError() }

// end ends the process and waits for that.
func (p *process) end() error {
	if err := p.End(); err != nil {
		return err
	}
	return p.Err()
}

// start starts a process of the demo's.
func (d *demo) start(name string, cmd *exec.Cmd) (*process, error) {
	c, err := child.Start(d.dir, name, cmd)
	if err != nil {
		return nil, err
	}
	p := &process{c}
	d.processes = append(d.processes, p)
	return p, nil
}

// waitUntil calls f until it succeeds or p ends.
func waitUntil(ctx context.Context, p *process, f func() error) error {
	return child.WaitUntil(ctx, p.Process, f)
}
