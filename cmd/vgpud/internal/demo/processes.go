package demo

import (
	"context"
	"os/exec"

	"vgpud/cmd/vgpud/child"
)

// process is a child of the demo's, which is to end well.
type process struct{ *child.Process }

func (p *process) ended() <-chan struct{} { return p.Ended() }

func (p *process) why() error { return p.Why() }

// end tells a process to end and waits until it has.
func (p *process) end() error {
	if err := p.End(); err != nil {
		return err
	}
	return p.Err()
}

// start runs a program of the demo's.
func (d *demo) start(name string, cmd *exec.Cmd) (*process, error) {
	c, err := child.Start(d.dir, name, cmd)
	if err != nil {
		return nil, err
	}
	p := &process{c}
	d.processes = append(d.processes, p)
	return p, nil
}

// until calls ask until it succeeds or the process it asks ends.
func until(ctx context.Context, p *process, ask func() error) error {
	return child.Until(ctx, p.Process, ask)
}
