package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"vgpud/mediator/access"
	"vgpud/mediator/api"
)

// fakeDaemon is a daemon on a socket, whose guests are records only.
type fakeDaemon struct {
	dir, socket string
	server      *http.Server
	requests    atomic.Int64
	hang        atomic.Bool
	quit        chan struct{}
	done        chan error
	stopping    sync.Once

	mu     sync.Mutex
	vms    []*fakeVM
	refuse int // the guest, counted down, that is refused
}

type fakeVM struct {
	spec     api.VMSpec
	attached bool
}

func (v *fakeVM) show() api.VM {
	return api.VM{Name: v.spec.Name, Domain: v.spec.Domain, DomainUUID: v.spec.DomainUUID, Socket: v.spec.Socket, Attached: v.attached, PID: 4711}
}

// stop ends the daemon, once.
func (d *fakeDaemon) stop() (err error) {
	d.stopping.Do(func() {
		close(d.quit)
		err = d.server.Close()
		if served := <-d.done; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		err = errors.Join(err, os.RemoveAll(d.dir))
	})
	return err
}

// specs returns the guests' specifications as requested.
func (d *fakeDaemon) specs() []api.VMSpec {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []api.VMSpec
	for _, v := range d.vms {
		all = append(all, v.spec)
	}
	return all
}

func (d *fakeDaemon) attach(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	i, err := d.find(name)
	if err == nil {
		d.vms[i].attached = true
	}
	return err
}

// find is where a guest is; the caller holds mu.
func (d *fakeDaemon) find(name string) (int, error) {
	i := slices.IndexFunc(d.vms, func(v *fakeVM) bool { return v.spec.Name == name })
	if i < 0 {
		return i, fmt.Errorf("guest %q: %w", name, api.ErrNotFound)
	}
	return i, nil
}

func (d *fakeDaemon) VMs() []api.VM {
	d.mu.Lock()
	defer d.mu.Unlock()
	vms := []api.VM{}
	for _, v := range d.vms {
		vms = append(vms, v.show())
	}
	return vms
}

func (d *fakeDaemon) VM(name string) (api.VM, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i, err := d.find(name)
	if err != nil {
		return api.VM{}, err
	}
	return d.vms[i].show(), nil
}

func (d *fakeDaemon) CreateVM(_ access.Caller, s api.VMSpec) (api.VM, error) {
	if err := errors.Join(api.CheckName(s.Name), s.Terms().Check(), api.CheckUUID(s.DomainUUID)); err != nil {
		return api.VM{}, err
	}
	v, err := d.create(s)
	if d.hang.Load() {
		<-d.quit // having made it
	}
	return v, err
}

func (d *fakeDaemon) create(s api.VMSpec) (api.VM, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refuse--; d.refuse == 0 {
		return api.VM{}, fmt.Errorf("guest %q: no GPU has room: %w", s.Name, api.ErrNoRoom)
	}
	if _, err := d.find(s.Name); err == nil {
		return api.VM{}, fmt.Errorf("guest %q: %w", s.Name, api.ErrExists)
	}
	if filepath.Dir(filepath.Dir(filepath.Dir(s.Socket))) == d.dir {
		if err := os.MkdirAll(filepath.Dir(s.Socket), 0o711); err != nil {
			return api.VM{}, err
		}
	}
	v := &fakeVM{spec: s}
	d.vms = append(d.vms, v)
	return v.show(), nil
}

func (d *fakeDaemon) DeleteVM(_ access.Caller, name string, force bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	i, err := d.find(name)
	switch {
	case err == nil && d.vms[i].attached && !force:
		return fmt.Errorf("guest %q: %w", name, api.ErrInUse)
	case err == nil:
		socket := d.vms[i].spec.Socket
		d.vms = slices.Delete(d.vms, i, i+1)
		if filepath.Dir(filepath.Dir(filepath.Dir(socket))) == d.dir {
			_ = os.Remove(filepath.Dir(socket)) // stays while something is in it
		}
	}
	return err
}

func (d *fakeDaemon) UpdateVM(_ access.Caller, name string, _ api.VMUpdate) (api.VM, error) {
	return d.VM(name)
}

func (d *fakeDaemon) GPUs() []api.GPU { return []api.GPU{{Name: "gpu0"}, {Name: "gpu1"}} }

func (d *fakeDaemon) Tasks() api.Tasks { return api.Tasks{} }

func (d *fakeDaemon) GPU(name string) (api.GPU, error) {
	return api.GPU{}, fmt.Errorf("GPU %q: %w", name, api.ErrNotFound)
}

func (d *fakeDaemon) UpdateGPU(_ access.Caller, name string, _ api.GPUUpdate) (api.GPU, error) {
	return d.GPU(name)
}

func (d *fakeDaemon) Usage(context.Context, api.UsageQuery) (api.Usage, error) {
	return api.Usage{}, api.ErrNotFound
}

func (d *fakeDaemon) UsageCosts(context.Context, api.UsageQuery) (any, error) {
	return nil, api.ErrNotFound
}

func (d *fakeDaemon) Health() api.Health { return api.Health{Version: "test", Healthy: true} }
