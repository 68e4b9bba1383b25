package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"vgpud/mediator/api"
	"vgpud/mediator/libvirt/domain"
	"vgpud/mediator/nova"
	"vgpud/mediator/nova/instance"
	"vgpud/mediator/nova/placement"
)

// onInstance carries out an operation on an instance of Nova's, whose domain has nothing of vgpud's
// in it: its virtual GPUs are in Placement.
func (h *hook) onInstance(ctx context.Context, o operation, v *domain.Instance, xml []byte) error {
	switch {
	case o.ends && h.config.served(xml):
		return h.release(ctx, xml)
	case o.instance == nil:
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, h.config.limit(nova.MaxGrants))
	defer cancel()
	return o.instance(h, ctx, v)
}

// lookup calls f with what asks Placement.
func (h *hook) lookup(f func(l *instance.Lookup) error) error {
	c, err := placement.ReadConfig(h.config.Nova.Placement)
	if err != nil {
		return err
	}
	client, err := placement.New(c)
	if err != nil {
		return err
	}
	defer client.Close()
	return f(&instance.Lookup{
		Config: c, Placement: client, Known: instance.Known{Dir: h.config.Nova.StateDir}, GPUs: h.gpus, Warn: h.warn, Now: time.Now,
	})
}

// gpus returns the names of the daemon's GPUs.
func (h *hook) gpus(ctx context.Context) (names []string, err error) {
	all, err := h.daemon.GPUs(ctx)
	for i := range all {
		names = append(names, all[i].Name)
	}
	return names, err
}

var errSavedInstance = errors.New("an instance with a virtual GPU can't go on from a saved state, since its state on the GPU was not saved: boot it (openstack server reboot --hard)")

// migrateInstance refuses to move an instance with a virtual GPU while it runs. libvirt asks on the
// host to which it would move, which may have no GPU and no daemon.
func (h *hook) migrateInstance(ctx context.Context, v *domain.Instance) error {
	return h.lookup(func(l *instance.Lookup) error { return l.Movable(ctx, v) })
}

// restoreInstance refuses `virsh restore`: see [hook.refuseRestore].
func (h *hook) restoreInstance(ctx context.Context, v *domain.Instance) error {
	if h.saved(v.Name) {
		return nil
	}
	return h.lookup(func(l *instance.Lookup) error {
		grants, err := l.Grants(ctx, v)
		if err == nil && len(grants) > 0 {
			err = errSavedInstance
		}
		return err
	})
}

// prepareInstance gives an instance the virtual GPUs that Placement granted it, if any.
func (h *hook) prepareInstance(ctx context.Context, v *domain.Instance) error {
	var grants []nova.Grant
	err := h.lookup(func(l *instance.Lookup) (err error) {
		grants, err = l.Grants(ctx, v)
		return err
	})
	if err != nil {
		return err
	}
	if len(grants) == 0 {
		return h.withoutGPU(ctx, v)
	}
	if h.saved(v.Name) {
		return errSavedInstance
	}
	if dir := filepath.Dir(v.Emulator); dir != h.config.Nova.EmulatorDir {
		return fmt.Errorf("libvirt would start it with %q, which adds no virtual GPU: want vgpu-qemu in %s, where libvirt finds it first, and libvirt's daemon restarted since (docs/nova.md); emulator_dir of the section nova in %s names another directory", v.Emulator, h.config.Nova.EmulatorDir, defaultConfig)
	}
	uid, gid, err := h.config.owner(v.Owner)
	if err != nil {
		return err
	}
	args, err := v.Arguments(len(grants), h.config.RunDir)
	if err != nil {
		return err
	}
	specs, err := h.specs(v, grants)
	if err != nil {
		return err
	}
	file := instance.Arguments{RunDir: h.config.RunDir, UUID: v.UUID}
	if err := file.Remove(); err != nil {
		return err // the arguments of another start must not remain
	}
	if err := h.createAll(ctx, v.Name, v.UUID, specs, uid, gid); err != nil {
		return err
	}
	if err := file.Write(args, gid); err != nil {
		h.undo(v.UUID)
		return err
	}
	return nil
}

// specs returns the requests for an instance's virtual GPUs.
func (h *hook) specs(v *domain.Instance, grants []nova.Grant) ([]api.VMSpec, error) {
	d := domain.Domain{Name: v.Name, UUID: v.UUID, Account: v.Account}
	for n, g := range grants {
		gpu, err := instance.Terms(g, v, h.config.Nova.Share, h.config.Nova.Flavors)
		if err != nil {
			return nil, err
		}
		d.GPUs = append(d.GPUs, gpu)
		d.Devices = append(d.Devices, domain.Device{Number: n, Slot: -1, Socket: domain.SocketPath(h.config.RunDir, v.UUID, n), UUID: v.UUID})
	}
	specs := make([]api.VMSpec, len(grants))
	for n := range specs {
		specs[n] = d.Spec(n, domain.GuestName(v.Name, v.UUID, n, false))
		specs[n].Engine = nova.EngineNova
	}
	return specs, nil
}

// withoutGPU takes what the instance had before away: its flavor may be another than at its last
// start here. There is nothing to ask the daemon for an instance that never had a virtual GPU.
func (h *hook) withoutGPU(ctx context.Context, v *domain.Instance) error {
	file := instance.Arguments{RunDir: h.config.RunDir, UUID: v.UUID}
	if _, err := os.Stat(filepath.Dir(domain.SocketPath(h.config.RunDir, v.UUID, 0))); err != nil {
		return nil
	}
	if err := file.Remove(); err != nil {
		return err
	}
	vms, err := h.daemon.DomainVMs(ctx, v.UUID)
	if err != nil {
		return err
	}
	return h.remove(ctx, v.UUID, vms)
}

// startedInstance warns of an instance whose QEMU has not connected to its virtual GPUs.
func (h *hook) startedInstance(ctx context.Context, v *domain.Instance) error {
	if _, err := os.Stat(filepath.Dir(domain.SocketPath(h.config.RunDir, v.UUID, 0))); err != nil {
		return nil
	}
	vms, err := h.daemon.DomainVMs(ctx, v.UUID)
	if err != nil {
		return err
	}
	var errs []error
	for _, vm := range vms {
		if !vm.Attached {
			errs = append(errs, fmt.Errorf("its QEMU runs but is not connected to the virtual GPU at %s", vm.Socket))
		}
	}
	return errors.Join(errs...)
}
