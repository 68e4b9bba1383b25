package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"vgpud/mediator/api"
)

// explained is a daemon whose errors say what to do if it did not answer. Other services that a hook
// asks, such as Placement, fail with errors of the same kinds, which are not the daemon's.
type explained struct {
	daemon
	socket string
}

func (d explained) VMs(ctx context.Context) ([]api.VM, error) {
	all, err := d.daemon.VMs(ctx)
	return all, d.explain(err)
}

func (d explained) GPUs(ctx context.Context) ([]api.GPU, error) {
	all, err := d.daemon.GPUs(ctx)
	return all, d.explain(err)
}

func (d explained) DomainVMs(ctx context.Context, domain string) ([]api.VM, error) {
	all, err := d.daemon.DomainVMs(ctx, domain)
	return all, d.explain(err)
}

func (d explained) CreateVM(ctx context.Context, s api.VMSpec) (api.VM, error) {
	v, err := d.daemon.CreateVM(ctx, s)
	return v, d.explain(err)
}

func (d explained) ForceDeleteVM(ctx context.Context, name string) error {
	return d.explain(d.daemon.ForceDeleteVM(ctx, name))
}

// explain adds to an error what to do if the daemon did not answer.
func (d explained) explain(err error) error {
	switch _, answered := errors.AsType[*api.Error](err); {
	case err == nil, answered:
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the daemon on %s did not answer in time: see `journalctl -u vgpud`", d.socket)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no daemon listens on %s: start it (systemctl start vgpud), or name its socket in %s", d.socket, defaultConfig)
	}
	return err
}
